EXTRA_DIST += kernels/ops.def

libkernels_a_SOURCES = \
	kernels/op.h \
	kernels/ops.c \
	kernels/optimizer.h
