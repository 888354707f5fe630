libgraph_a_SOURCES = \
	src/graph/expression.c \
	src/graph/expression.h \
	src/graph/fuse.c \
	src/graph/graph.c \
	src/graph/graph.h \
	src/graph/model.c \
	src/graph/model.h \
	src/graph/names.c \
	src/graph/names.h
