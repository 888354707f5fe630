check_PROGRAMS += tests/graph/test_model tests/graph/test_graph_text tests/graph/test_onnx \
	tests/graph/test_names tests/graph/test_models
dist_check_SCRIPTS += tests/graph/test_onnx_logits.sh tests/graph/test_python_peers.sh \
	tests/graph/test_torch_traces.sh tests/graph/test_pretrained.sh tests/graph/test_dense_peers.sh \
	tests/graph/test_pixel_metrics.sh
EXTRA_DIST += tests/graph/onnx_every.ini tests/graph/onnx_logits.py tests/graph/python_peers.py \
	tests/graph/torch_traces.py tests/graph/pretrained_peers.py tests/graph/dense_peers.py \
	tests/graph/pixel_metrics.py

tests_graph_test_model_SOURCES = tests/graph/test_model.c
tests_graph_test_model_LDADD = $(GRAPH_LIBS) -lcmocka

tests_graph_test_graph_text_SOURCES = tests/graph/test_graph_text.c
tests_graph_test_graph_text_LDADD = $(GRAPH_LIBS) -lcmocka

tests_graph_test_onnx_SOURCES = tests/graph/test_onnx.c
tests_graph_test_onnx_LDADD = libgraph.a libkernels.a libformat.a libconf.a libdevice.a libbase.a \
	$(CUDA_LIBS) -lcmocka

tests_graph_test_names_SOURCES = tests/graph/test_names.c
tests_graph_test_names_LDADD = libgraph.a libbase.a -lcmocka

tests_graph_test_models_SOURCES = tests/graph/test_models.c
tests_graph_test_models_LDADD = $(GRAPH_LIBS) -lcmocka

EXTRA_DIST += $(wildcard $(srcdir)/tests/models/*)

noinst_PROGRAMS += tests/graph/dense_logits
tests_graph_dense_logits_SOURCES = tests/graph/dense_logits.c $(PLACE)
tests_graph_dense_logits_LDADD = libcheckpoint.a libformat.a libdata.a $(GRAPH_LIBS)
