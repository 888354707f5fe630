check_PROGRAMS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c tests/op_case.c tests/op_case.h
tests_test_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka

noinst_PROGRAMS += tests/bench_ops
tests_bench_ops_SOURCES = tests/bench_ops.c tests/op_case.c tests/op_case.h
tests_bench_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS)
