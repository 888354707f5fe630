libbase_a_SOURCES = \
	src/base/anywhere.h \
	src/base/crc32c.c \
	src/base/crc32c.h \
	src/base/dtype.c \
	src/base/dtype.h \
	src/base/field.c \
	src/base/field.h \
	src/base/field_help.c \
	src/base/file.c \
	src/base/file.h \
	src/base/host.c \
	src/base/host.h \
	src/base/log.c \
	src/base/log.h \
	src/base/machine.h \
	src/base/memory.c \
	src/base/memory.h \
	src/base/philox.h \
	src/base/physical.h \
	src/base/random.c \
	src/base/random.h \
	src/base/shape.c \
	src/base/shape.h \
	src/base/status.h \
	src/base/tensor.h \
	src/base/text.c \
	src/base/text.h
