libgraph_a_SOURCES = \
	src/graph/batchnorm_fold.c \
	src/graph/batchnorm_fold.h \
	src/graph/expression.c \
	src/graph/expression.h \
	src/graph/graph.c \
	src/graph/graph.h \
	src/graph/graph_onnx.c \
	src/graph/graph_onnx.h \
	src/graph/graph_text.c \
	src/graph/graph_text.h \
	src/graph/model.c \
	src/graph/model.h \
	src/graph/model_drop_path.c \
	src/graph/model_find.c \
	src/graph/model_layers.c \
	src/graph/model_parts.h \
	src/graph/names.c \
	src/graph/names.h \
	src/graph/norm_eps.c \
	src/graph/norm_eps.h \
	src/graph/onnx_geometry.c \
	src/graph/onnx_geometry.h
