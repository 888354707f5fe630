dist_check_SCRIPTS += tests/test_commands.sh tests/test_gpu.sh tests/test_memory.sh tests/test_packing.sh tests/test_pictures.sh tests/test_resume.sh
EXTRA_DIST += tests/tiny.sh

check_PROGRAMS += tests/test_traces
tests_test_traces_SOURCES = tests/test_traces.c
tests_test_traces_LDADD = libbase.a -ljansson -lcmocka -lm
