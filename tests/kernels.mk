check_PROGRAMS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c tests/op_case.c tests/op_case.h
tests_test_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka
