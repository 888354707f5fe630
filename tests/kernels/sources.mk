check_PROGRAMS += tests/kernels/test_ops tests/kernels/test_known_ops tests/kernels/test_loss \
	tests/kernels/test_optimizers tests/kernels/test_conv_batchnorm tests/kernels/test_moments \
	tests/kernels/test_product tests/kernels/test_update tests/kernels/test_images \
	tests/kernels/test_deferred_jpeg tests/kernels/test_blend tests/kernels/test_algorithm
dist_check_SCRIPTS += tests/kernels/test_instruction_sets.sh
noinst_PROGRAMS += tests/kernels/bench_ops

tests_kernels_test_ops_SOURCES = tests/kernels/test_ops.c tests/kernels/op_variants.c \
	tests/kernels/op_variants.h $(OP_CASE)
tests_kernels_test_ops_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_algorithm_SOURCES = tests/kernels/test_algorithm.c $(OP_CASE)
tests_kernels_test_algorithm_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_bench_ops_SOURCES = tests/kernels/bench_ops.c $(OP_CASE)
tests_kernels_bench_ops_LDADD = $(KERNEL_LIBS)

tests_kernels_test_known_ops_SOURCES = tests/kernels/test_known_ops.c tests/kernels/known.h $(OP_CASE) \
	$(PLACE)
tests_kernels_test_known_ops_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_loss_SOURCES = tests/kernels/test_loss.c tests/kernels/known.h $(OP_CASE) $(PLACE)
tests_kernels_test_loss_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_optimizers_SOURCES = tests/kernels/test_optimizers.c
tests_kernels_test_optimizers_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_conv_batchnorm_SOURCES = tests/kernels/test_conv_batchnorm.c $(OP_CASE) $(PLACE)
tests_kernels_test_conv_batchnorm_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_moments_SOURCES = tests/kernels/test_moments.c $(OP_CASE) $(PLACE)
tests_kernels_test_moments_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_product_SOURCES = tests/kernels/test_product.c $(OP_CASE)
tests_kernels_test_product_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_update_SOURCES = tests/kernels/test_update.c
tests_kernels_test_update_LDADD = $(KERNEL_LIBS) -lcmocka

tests_kernels_test_blend_SOURCES = tests/kernels/test_blend.c $(PLACE)
tests_kernels_test_blend_LDADD = $(LDADD) -lcmocka

tests_kernels_test_images_SOURCES = tests/kernels/test_images.c tests/support/rounds.h $(PLACE)
tests_kernels_test_images_LDADD = $(LDADD) -lcmocka

tests_kernels_test_deferred_jpeg_SOURCES = tests/kernels/test_deferred_jpeg.c $(DATA_CASE)
tests_kernels_test_deferred_jpeg_LDADD = $(LDADD) -lcmocka

if HAVE_CUDA
check_PROGRAMS += tests/kernels/test_autotune
tests_kernels_test_autotune_SOURCES = tests/kernels/test_autotune.c $(OP_CASE) $(PLACE)
tests_kernels_test_autotune_LDADD = $(KERNEL_LIBS) -lcmocka
else
EXTRA_DIST += tests/kernels/test_autotune.c
endif
