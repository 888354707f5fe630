check_PROGRAMS += tests/compile/test_plan tests/compile/test_program tests/compile/test_recompute \
	tests/compile/test_streams tests/compile/test_micro_batches tests/compile/test_ranks \
	tests/compile/test_compile tests/compile/test_plans tests/compile/test_fuse_gradient_sums \
	tests/compile/test_dump tests/compile/test_simulate tests/compile/test_partition \
	tests/compile/test_verify_ranks tests/compile/test_fold tests/compile/test_relu_mask \
	tests/compile/test_pass_text tests/compile/test_kernel_plans tests/compile/test_fuse_pooling
EXTRA_DIST += tests/compile/mutate.sh

tests_compile_test_plan_SOURCES = tests/compile/test_plan.c
tests_compile_test_plan_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_program_SOURCES = tests/compile/test_program.c $(NET)
tests_compile_test_program_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_recompute_SOURCES = tests/compile/test_recompute.c $(NET)
tests_compile_test_recompute_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_streams_SOURCES = tests/compile/test_streams.c $(NET)
tests_compile_test_streams_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_micro_batches_SOURCES = tests/compile/test_micro_batches.c $(NET)
tests_compile_test_micro_batches_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_ranks_SOURCES = tests/compile/test_ranks.c $(NET)
tests_compile_test_ranks_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_compile_SOURCES = tests/compile/test_compile.c
tests_compile_test_compile_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_plans_SOURCES = tests/compile/test_plans.c
tests_compile_test_plans_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_fuse_gradient_sums_SOURCES = tests/compile/test_fuse_gradient_sums.c $(NET)
tests_compile_test_fuse_gradient_sums_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_dump_SOURCES = tests/compile/test_dump.c
tests_compile_test_dump_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_kernel_plans_SOURCES = tests/compile/test_kernel_plans.c \
	tests/support/caught.h $(NET)
tests_compile_test_kernel_plans_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_pass_text_SOURCES = tests/compile/test_pass_text.c tests/support/caught.h \
	tests/support/rounds.h $(NET)
tests_compile_test_pass_text_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_simulate_SOURCES = tests/compile/test_simulate.c
tests_compile_test_simulate_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_partition_SOURCES = tests/compile/test_partition.c
tests_compile_test_partition_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_verify_ranks_SOURCES = tests/compile/test_verify_ranks.c $(NET)
tests_compile_test_verify_ranks_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_fold_SOURCES = tests/compile/test_fold.c $(NET)
tests_compile_test_fold_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_relu_mask_SOURCES = tests/compile/test_relu_mask.c $(NET)
tests_compile_test_relu_mask_LDADD = $(GRAPH_LIBS) -lcmocka

tests_compile_test_fuse_pooling_SOURCES = tests/compile/test_fuse_pooling.c $(NET)
tests_compile_test_fuse_pooling_LDADD = $(GRAPH_LIBS) -lcmocka

EXTRA_DIST += $(wildcard $(srcdir)/tests/dumps/*)

CLEANFILES += tests/*.dump
