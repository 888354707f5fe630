libdevice_a_SOURCES = \
	src/device/cpu.c \
	src/device/device.c \
	src/device/device.h
if HAVE_CUDA
libdevice_a_SOURCES += src/device/cuda.c
else
EXTRA_DIST += src/device/cuda.c
endif
