NET = tests/net.c tests/net.h $(PLACE)
GRAPH_LIBS = libexec.a libcompile.a libgraph.a libkernels.a libconf.a liballoc.a libamp.a libcomm.a \
	libdevice.a libbase.a $(CUDA_LIBS)

check_PROGRAMS += tests/test_model
tests_test_model_SOURCES = tests/test_model.c
tests_test_model_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_graph_text
tests_test_graph_text_SOURCES = tests/test_graph_text.c
tests_test_graph_text_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_onnx
tests_test_onnx_SOURCES = tests/test_onnx.c
tests_test_onnx_LDADD = libgraph.a libkernels.a libformat.a libconf.a libdevice.a libbase.a $(CUDA_LIBS) \
	-lcmocka
dist_check_SCRIPTS += tests/test_onnx_logits.sh
EXTRA_DIST += tests/onnx_every.ini tests/onnx_logits.py
dist_check_SCRIPTS += tests/test_python_peers.sh tests/test_torch_traces.sh tests/test_pretrained.sh
EXTRA_DIST += tests/python_peers.py tests/torch_traces.py tests/pretrained_peers.py

check_PROGRAMS += tests/test_names
tests_test_names_SOURCES = tests/test_names.c
tests_test_names_LDADD = libgraph.a libbase.a -lcmocka

check_PROGRAMS += tests/test_models
tests_test_models_SOURCES = tests/test_models.c
tests_test_models_LDADD = $(GRAPH_LIBS) -lcmocka
EXTRA_DIST += $(wildcard $(srcdir)/tests/models/*)

check_PROGRAMS += tests/test_plan
tests_test_plan_SOURCES = tests/test_plan.c
tests_test_plan_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_program
tests_test_program_SOURCES = tests/test_program.c $(NET)
tests_test_program_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_recompute
tests_test_recompute_SOURCES = tests/test_recompute.c $(NET)
tests_test_recompute_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_store
tests_test_store_SOURCES = tests/test_store.c $(NET)
tests_test_store_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_exec
tests_test_exec_SOURCES = tests/test_exec.c $(NET)
tests_test_exec_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_streams
tests_test_streams_SOURCES = tests/test_streams.c $(NET)
tests_test_streams_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_micro_batches
tests_test_micro_batches_SOURCES = tests/test_micro_batches.c $(NET)
tests_test_micro_batches_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_ranks
tests_test_ranks_SOURCES = tests/test_ranks.c $(NET)
tests_test_ranks_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_inject
tests_test_inject_SOURCES = tests/test_inject.c tests/rounds.h $(NET)
tests_test_inject_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_redundant_execution
tests_test_redundant_execution_SOURCES = tests/test_redundant_execution.c tests/caught.h $(NET)
tests_test_redundant_execution_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_compile
tests_test_compile_SOURCES = tests/test_compile.c
tests_test_compile_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_plans
tests_test_plans_SOURCES = tests/test_plans.c
tests_test_plans_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_fuse_gradient_sums
tests_test_fuse_gradient_sums_SOURCES = tests/test_fuse_gradient_sums.c $(NET)
tests_test_fuse_gradient_sums_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_dump
tests_test_dump_SOURCES = tests/test_dump.c
tests_test_dump_LDADD = $(GRAPH_LIBS) -lcmocka
EXTRA_DIST += tests/mutate.sh $(wildcard $(srcdir)/tests/dumps/*)
CLEANFILES += tests/*.dump

check_PROGRAMS += tests/test_simulate
tests_test_simulate_SOURCES = tests/test_simulate.c
tests_test_simulate_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_partition
tests_test_partition_SOURCES = tests/test_partition.c
tests_test_partition_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_verify_ranks
tests_test_verify_ranks_SOURCES = tests/test_verify_ranks.c $(NET)
tests_test_verify_ranks_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_fold
tests_test_fold_SOURCES = tests/test_fold.c $(NET)
tests_test_fold_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_relu_mask
tests_test_relu_mask_SOURCES = tests/test_relu_mask.c $(NET)
tests_test_relu_mask_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_ahead
tests_test_ahead_SOURCES = tests/test_ahead.c src/session/step_queue.c $(NET)
tests_test_ahead_LDADD = $(GRAPH_LIBS) -lcmocka

check_PROGRAMS += tests/test_device_allocators
tests_test_device_allocators_SOURCES = tests/test_device_allocators.c tests/caught.h tests/devices.h $(NET)
tests_test_device_allocators_LDADD = $(GRAPH_LIBS) -lcmocka
