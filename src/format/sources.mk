libformat_a_SOURCES = \
	src/format/checksum.c \
	src/format/checksum.h \
	src/format/events.c \
	src/format/events.h \
	src/format/safetensors.c \
	src/format/safetensors.h \
	src/format/safetensors_write.c
