libdevice_a_SOURCES = \
	src/device/cpu.c \
	src/device/device.c \
	src/device/device.h
if HAVE_CUDA
libdevice_a_SOURCES += \
	src/device/cuda.c \
	src/device/cuda.h \
	src/device/cuda_dnn.c \
	src/device/cuda_dnn.h \
	src/device/cuda_memory.c \
	src/device/cuda_memory.h \
	src/device/cuda_tuning.c \
	src/device/cuda_tuning.h
else
EXTRA_DIST += \
	src/device/cuda.c \
	src/device/cuda.h \
	src/device/cuda_dnn.c \
	src/device/cuda_dnn.h \
	src/device/cuda_memory.c \
	src/device/cuda_memory.h \
	src/device/cuda_tuning.c \
	src/device/cuda_tuning.h
endif
