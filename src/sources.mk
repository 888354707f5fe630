amptrain_SOURCES = \
	src/cmd.c \
	src/cmd.h \
	src/cmd_bench.c \
	src/cmd_devices.c \
	src/cmd_eval.c \
	src/cmd_export.c \
	src/cmd_formats.c \
	src/cmd_models.c \
	src/cmd_ops.c \
	src/cmd_pack.c \
	src/cmd_plan.c \
	src/cmd_predict.c \
	src/cmd_train.c \
	src/forecast.c \
	src/forecast.h \
	src/main.c \
	src/patience.c \
	src/patience.h \
	src/trained.c \
	src/trained.h
