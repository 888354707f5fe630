libformat_a_SOURCES = \
	src/format/chart.c \
	src/format/chart.h \
	src/format/checksum.c \
	src/format/checksum.h \
	src/format/events.c \
	src/format/events.h \
	src/format/html_page.c \
	src/format/html_page.h \
	src/format/npy.c \
	src/format/npy.h \
	src/format/onnx.c \
	src/format/onnx.h \
	src/format/protobuf.c \
	src/format/protobuf.h \
	src/format/pickle.c \
	src/format/pickle.h \
	src/format/safetensors.c \
	src/format/safetensors.h \
	src/format/safetensors_write.c \
	src/format/svg.c \
	src/format/svg.h \
	src/format/torch_file.c \
	src/format/torch_file.h \
	src/format/weights_file.c \
	src/format/weights_file.h \
	src/format/zip.c \
	src/format/zip.h
