cuda_device_sources = \
	src/device/cuda.c \
	src/device/cuda.h \
	src/device/cuda_dnn.c \
	src/device/cuda_dnn.h \
	src/device/cuda_driver.c \
	src/device/cuda_driver.h \
	src/device/cuda_families.c \
	src/device/cuda_families.h \
	src/device/cuda_graph.h \
	src/device/cuda_libraries.c \
	src/device/cuda_libraries.h \
	src/device/cuda_memory.c \
	src/device/cuda_memory.h \
	src/device/cuda_timeline.c \
	src/device/cuda_timeline.h \
	src/device/cuda_tuning.c \
	src/device/cuda_tuning.h
libdevice_a_SOURCES = \
	src/device/built_for.c \
	src/device/built_for.h \
	src/device/cpu.c \
	src/device/device.c \
	src/device/device.h \
	src/device/jpeg.h \
	src/device/nvml.c \
	src/device/nvml.h \
	src/device/rapl.c \
	src/device/rapl.h
DEVICE_CUDA_SOURCES = src/device/cuda_graph.cu
if HAVE_CUDA
libdevice_a_SOURCES += $(cuda_device_sources)
libdevice_a_LIBADD = $(DEVICE_CUDA_SOURCES:.cu=_cuda.o)
else
EXTRA_DIST += $(cuda_device_sources)
endif
cuda_jpeg_sources = \
	src/device/cuda_jpeg.c \
	src/device/cuda_parts.h
if HAVE_NVJPEG
libdevice_a_SOURCES += $(cuda_jpeg_sources)
else
EXTRA_DIST += $(cuda_jpeg_sources)
endif
