EXTRA_DIST += amp/README

libamp_a_SOURCES = \
	amp/precision.c \
	amp/precision.h \
	amp/scaler.c \
	amp/scaler.h
