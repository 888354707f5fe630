EXTRA_DIST += kernels/ops.def

CUDA_SOURCES += \
	kernels/relu.cu

EXTRA_DIST += kernels/cuda.cuh kernels/elementwise.cuh

libkernels_a_SOURCES = \
	kernels/adaptive_avgpool.c \
	kernels/adaptive_maxpool.c \
	kernels/add.c \
	kernels/add_cpu.c \
	kernels/avgpool.c \
	kernels/batchnorm.c \
	kernels/batchnorm.h \
	kernels/batchnorm_cpu.c \
	kernels/batchnorm_exact.c \
	kernels/border.c \
	kernels/border.h \
	kernels/cast.c \
	kernels/channel_pad.c \
	kernels/codes_cuda.h \
	kernels/concat.c \
	kernels/conv.c \
	kernels/conv.h \
	kernels/conv_cpu.c \
	kernels/cpu.h \
	kernels/dropout.c \
	kernels/elementwise.c \
	kernels/elementwise.h \
	kernels/flatten.c \
	kernels/gelu.c \
	kernels/gelu.h \
	kernels/gelu_cpu.c \
	kernels/globalavgpool.c \
	kernels/leaky_relu.c \
	kernels/leaky_relu.h \
	kernels/leaky_relu_cpu.c \
	kernels/linear.c \
	kernels/linear.h \
	kernels/linear_cpu.c \
	kernels/lrn.c \
	kernels/lrn.h \
	kernels/lrn_cpu.c \
	kernels/maxpool.c \
	kernels/exact.c \
	kernels/exact.h \
	kernels/onednn.c \
	kernels/onednn.h \
	kernels/op.h \
	kernels/ops.c \
	kernels/optimizer.c \
	kernels/optimizer.h \
	kernels/optimizer_adagrad.c \
	kernels/optimizer_adagrad.h \
	kernels/optimizer_adam.c \
	kernels/optimizer_adam.h \
	kernels/optimizer_adamw.c \
	kernels/optimizer_adamw.h \
	kernels/optimizer_lamb.c \
	kernels/optimizer_lamb.h \
	kernels/optimizer_lars.c \
	kernels/optimizer_lars.h \
	kernels/optimizer_rmsprop.c \
	kernels/optimizer_rmsprop.h \
	kernels/optimizer_rule.h \
	kernels/optimizer_sgd.c \
	kernels/optimizer_sgd.h \
	kernels/optimizer_walk.c \
	kernels/optimizer_walk.h \
	kernels/pad.c \
	kernels/pool.c \
	kernels/pool.h \
	kernels/pool_cpu.c \
	kernels/product.c \
	kernels/product.h \
	kernels/relu.c \
	kernels/relu6.c \
	kernels/relu6_cpu.c \
	kernels/relu_cpu.c \
	kernels/silu.c \
	kernels/silu_cpu.c \
	kernels/softmax_cross_entropy.c \
	kernels/softmax_cross_entropy.h \
	kernels/softmax_cross_entropy_cpu.c \
	kernels/topk.c \
	kernels/update.c \
	kernels/update.h \
	kernels/weight.c \
	kernels/weight.h
