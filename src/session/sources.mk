libsession_a_SOURCES = \
	src/session/bad_images.c \
	src/session/bad_images.h \
	src/session/checkpoint.c \
	src/session/checkpoint.h \
	src/session/checkpoint_match.c \
	src/session/checkpoint_newest.c \
	src/session/decoding.c \
	src/session/decoding.h \
	src/session/gpu_preprocessing.c \
	src/session/gpu_preprocessing.h \
	src/session/largest.c \
	src/session/largest.h \
	src/session/position.c \
	src/session/position.h \
	src/session/schedule.c \
	src/session/schedule.h \
	src/session/setup.c \
	src/session/setup.h \
	src/session/setup_cache.c \
	src/session/setup_images.c \
	src/session/setup_network.c \
	src/session/setup_numbers.c \
	src/session/step.c \
	src/session/step.h \
	src/session/weights.c \
	src/session/weights.h
