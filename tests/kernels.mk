KERNEL_LIBS = libkernels.a libamp.a libdevice.a libbase.a $(CUDA_LIBS)
OP_CASE = tests/op_case.c tests/op_case.h tests/op_device.c tests/op_device.h
PLACE = tests/place.c tests/place.h

check_PROGRAMS += tests/test_ops
tests_test_ops_SOURCES = tests/test_ops.c tests/op_variants.c tests/op_variants.h $(OP_CASE)
tests_test_ops_LDADD = $(KERNEL_LIBS) -lcmocka

noinst_PROGRAMS += tests/bench_ops
tests_bench_ops_SOURCES = tests/bench_ops.c $(OP_CASE)
tests_bench_ops_LDADD = $(KERNEL_LIBS)

check_PROGRAMS += tests/test_known_ops tests/test_loss tests/test_optimizers
tests_test_known_ops_SOURCES = tests/test_known_ops.c tests/known.h $(OP_CASE) $(PLACE)
tests_test_known_ops_LDADD = $(KERNEL_LIBS) -lcmocka
tests_test_loss_SOURCES = tests/test_loss.c tests/known.h $(OP_CASE) $(PLACE)
tests_test_loss_LDADD = $(KERNEL_LIBS) -lcmocka
tests_test_optimizers_SOURCES = tests/test_optimizers.c
tests_test_optimizers_LDADD = $(KERNEL_LIBS) -lcmocka

dist_check_SCRIPTS += tests/test_instruction_sets.sh

check_PROGRAMS += tests/test_conv_batchnorm
tests_test_conv_batchnorm_SOURCES = tests/test_conv_batchnorm.c $(OP_CASE) $(PLACE)
tests_test_conv_batchnorm_LDADD = $(KERNEL_LIBS) -lcmocka

check_PROGRAMS += tests/test_moments
tests_test_moments_SOURCES = tests/test_moments.c $(OP_CASE) $(PLACE)
tests_test_moments_LDADD = $(KERNEL_LIBS) -lcmocka

if HAVE_CUDA
check_PROGRAMS += tests/test_autotune
tests_test_autotune_SOURCES = tests/test_autotune.c $(OP_CASE) $(PLACE)
tests_test_autotune_LDADD = $(KERNEL_LIBS) -lcmocka
else
EXTRA_DIST += tests/test_autotune.c
endif

check_PROGRAMS += tests/test_product
tests_test_product_SOURCES = tests/test_product.c $(OP_CASE)
tests_test_product_LDADD = $(KERNEL_LIBS) -lcmocka

check_PROGRAMS += tests/test_update
tests_test_update_SOURCES = tests/test_update.c
tests_test_update_LDADD = $(KERNEL_LIBS) -lcmocka

check_PROGRAMS += tests/test_images
tests_test_images_SOURCES = tests/test_images.c tests/rounds.h $(PLACE)
tests_test_images_LDADD = $(LDADD) -lcmocka

check_PROGRAMS += tests/test_deferred_jpeg
tests_test_deferred_jpeg_SOURCES = tests/test_deferred_jpeg.c $(DATA_CASE)
tests_test_deferred_jpeg_LDADD = $(LDADD) -lcmocka
