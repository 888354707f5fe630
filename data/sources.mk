libdata_a_SOURCES = \
	data/augment.c \
	data/augment.h \
	data/colour.c \
	data/colour.h \
	data/dataset.c \
	data/dataset.h \
	data/format_cifar.c \
	data/format_digits.c \
	data/format_folder.c \
	data/format_mnist.c \
	data/format_synthetic.c \
	data/formats.c \
	data/image.c \
	data/image.h \
	data/image_jpeg.c \
	data/image_png.c \
	data/loader.c \
	data/loader.h \
	data/policy.c \
	data/policy.h \
	data/resize.c \
	data/resize.h \
	data/warp.c \
	data/warp.h \
	data/whole.c \
	data/whole.h
