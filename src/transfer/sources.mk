libtransfer_a_SOURCES = \
	src/transfer/features.c \
	src/transfer/features.h \
	src/transfer/holdout.c \
	src/transfer/holdout.h \
	src/transfer/teacher.c \
	src/transfer/teacher.h \
	src/transfer/whiten.c \
	src/transfer/whiten.h
