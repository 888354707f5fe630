EXTRA_DIST += kernels/ops.def

libkernels_a_SOURCES = \
	kernels/conv.c \
	kernels/conv.h \
	kernels/conv_cpu.c \
	kernels/linear.c \
	kernels/linear.h \
	kernels/linear_cpu.c \
	kernels/onednn.c \
	kernels/onednn.h \
	kernels/op.h \
	kernels/ops.c \
	kernels/optimizer.h \
	kernels/product.c \
	kernels/product.h \
	kernels/weight.c \
	kernels/weight.h
