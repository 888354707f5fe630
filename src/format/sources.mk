libformat_a_SOURCES = \
	src/format/checksum.c \
	src/format/checksum.h \
	src/format/events.c \
	src/format/events.h \
	src/format/onnx.c \
	src/format/onnx.h \
	src/format/protobuf.c \
	src/format/protobuf.h \
	src/format/safetensors.c \
	src/format/safetensors.h \
	src/format/safetensors_write.c
