libexec_a_SOURCES = \
	src/exec/bn_statistics.c \
	src/exec/bn_statistics.h \
	src/exec/device_allocators.c \
	src/exec/device_allocators.h \
	src/exec/diagnose.c \
	src/exec/exec.c \
	src/exec/exec.h \
	src/exec/exec_checks.h \
	src/exec/exec_parts.h \
	src/exec/exec_run.c \
	src/exec/exec_steps.c \
	src/exec/fingerprints.c \
	src/exec/glimpse.c \
	src/exec/redundant_execution.c \
	src/exec/store.c \
	src/exec/store.h
