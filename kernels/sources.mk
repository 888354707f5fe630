EXTRA_DIST += kernels/ops.def

libkernels_a_SOURCES = \
	kernels/conv.c \
	kernels/conv.h \
	kernels/linear.c \
	kernels/linear.h \
	kernels/op.h \
	kernels/ops.c \
	kernels/optimizer.h \
	kernels/weight.c \
	kernels/weight.h
