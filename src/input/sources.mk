libinput_a_SOURCES = \
	src/input/bad_images.c \
	src/input/bad_images.h \
	src/input/caching.c \
	src/input/caching.h \
	src/input/data.c \
	src/input/data.h \
	src/input/data_augment.c \
	src/input/data_class_weights.c \
	src/input/data_parts.h \
	src/input/data_sizes.c \
	src/input/data_split.c \
	src/input/data_summary.c \
	src/input/usable_classes.c \
	src/input/usable_classes.h \
	src/input/data_task.c \
	src/input/data_summary.h \
	src/input/decoding.c \
	src/input/decoding.h \
	src/input/duplicates.c \
	src/input/duplicates.h \
	src/input/gpu_preprocessing.c \
	src/input/gpu_preprocessing.h \
	src/input/sampled_sizes.c \
	src/input/sampled_sizes.h \
	src/input/train_sizes.c \
	src/input/train_sizes.h
