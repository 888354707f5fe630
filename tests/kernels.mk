check_PROGRAMS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c tests/op_case.c tests/op_case.h
tests_test_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka

noinst_PROGRAMS += tests/bench_ops
tests_bench_ops_SOURCES = tests/bench_ops.c tests/op_case.c tests/op_case.h
tests_bench_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS)

check_PROGRAMS += tests/test_known_ops tests/test_loss tests/test_optimizers
tests_test_known_ops_SOURCES = tests/test_known_ops.c tests/known.h tests/op_case.c tests/op_case.h
tests_test_known_ops_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka
tests_test_loss_SOURCES = tests/test_loss.c tests/known.h tests/op_case.c tests/op_case.h
tests_test_loss_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka
tests_test_optimizers_SOURCES = tests/test_optimizers.c
tests_test_optimizers_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka

check_PROGRAMS += tests/test_product
tests_test_product_SOURCES = tests/test_product.c tests/op_case.c tests/op_case.h
tests_test_product_LDADD = libkernels.a libamp.a libbase.a $(CUDA_LIBS) -lcmocka
