libcheckpoint_a_SOURCES = \
	src/checkpoint/checkpoint.c \
	src/checkpoint/checkpoint.h \
	src/checkpoint/checkpoint_match.c \
	src/checkpoint/checkpoint_newest.c \
	src/checkpoint/checkpoint_parts.h \
	src/checkpoint/checkpoint_run.c \
	src/checkpoint/checkpoint_write.c \
	src/checkpoint/model_card.c \
	src/checkpoint/model_card.h \
	src/checkpoint/network_identity.c \
	src/checkpoint/network_identity.h \
	src/checkpoint/position.c \
	src/checkpoint/position.h \
	src/checkpoint/position_embedding.c \
	src/checkpoint/position_embedding.h \
	src/checkpoint/weights.c \
	src/checkpoint/weights.h \
	src/checkpoint/weights_identify.c \
	src/checkpoint/weights_identify.h \
	src/checkpoint/weights_names.c \
	src/checkpoint/weights_names.h
