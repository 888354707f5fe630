libbase_a_SOURCES = \
	src/base/align.h \
	src/base/anywhere.h \
	src/base/atomic_file.c \
	src/base/atomic_file.h \
	src/base/better.h \
	src/base/clock.c \
	src/base/clock.h \
	src/base/crc32c.c \
	src/base/crc32c.h \
	src/base/csv.c \
	src/base/csv.h \
	src/base/csv_reader.c \
	src/base/csv_reader.h \
	src/base/decoder.h \
	src/base/deflated.h \
	src/base/directory.c \
	src/base/directory.h \
	src/base/dtype.c \
	src/base/dtype.h \
	src/base/field.c \
	src/base/field.h \
	src/base/field_help.c \
	src/base/file.c \
	src/base/file.h \
	src/base/file_kind.c \
	src/base/file_kind.h \
	src/base/guest.c \
	src/base/guest.h \
	src/base/hash.c \
	src/base/hash.h \
	src/base/host.c \
	src/base/host.h \
	src/base/library.c \
	src/base/library.h \
	src/base/log.c \
	src/base/log.h \
	src/base/machine.c \
	src/base/machine.h \
	src/base/members.c \
	src/base/members.h \
	src/base/memory.c \
	src/base/memory.h \
	src/base/omp_spin.c \
	src/base/omp_spin.h \
	src/base/openmp.h \
	src/base/philox.h \
	src/base/physical.h \
	src/base/program_file.c \
	src/base/program_file.h \
	src/base/random.c \
	src/base/random.h \
	src/base/search_paths.c \
	src/base/search_paths.h \
	src/base/shape.c \
	src/base/shape.h \
	src/base/signals.c \
	src/base/signals.h \
	src/base/signature.c \
	src/base/signature.h \
	src/base/status.h \
	src/base/sum_tree.h \
	src/base/tensor.h \
	src/base/text.c \
	src/base/text_form.c \
	src/base/text_form.h \
	src/base/text.h \
	src/base/time_spans.c \
	src/base/time_spans.h \
	src/base/watch.c \
	src/base/watch.h

if HAVE_LIBDEFLATE
libbase_a_SOURCES += src/base/deflated_libdeflate.c
else
libbase_a_SOURCES += src/base/deflated_zlib.c
endif
