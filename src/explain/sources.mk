libexplain_a_SOURCES = \
	src/explain/classifier.c \
	src/explain/classifier.h \
	src/explain/folded_store.c \
	src/explain/folded_store.h \
	src/explain/gradcam.c \
	src/explain/gradcam.h \
	src/explain/inference.c \
	src/explain/inference.h \
	src/explain/layer_output.c \
	src/explain/layer_output.h \
	src/explain/ranges.c \
	src/explain/ranges.h \
	src/explain/rollout.c \
	src/explain/rollout.h \
	src/explain/tail.c \
	src/explain/tail.h \
	src/explain/tiling.c \
	src/explain/tiling.h \
	src/explain/trained_network.c \
	src/explain/trained_network.h \
	src/explain/views.c \
	src/explain/views.h
