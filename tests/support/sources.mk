noinst_PROGRAMS += tests/support/faulty tests/support/held tests/support/make_pictures \
	tests/support/make_masks tests/support/make_set tests/support/other_values
# Every test includes unit.h, so that it is in no list of sources.
EXTRA_DIST += tests/support/unit.h tests/support/tiny.sh tests/support/two.sh

# Tests in which calls of the system fail, each in turn.
REFUSE = tests/support/refuse.c tests/support/refuse.h
REFUSE_LINKED = $(AM_LDFLAGS) -Wl,--wrap=pread -Wl,--wrap=pwrite -Wl,--wrap=fsync -Wl,--wrap=ftruncate \
	-Wl,--wrap=fstat -Wl,--wrap=close -Wl,--wrap=memfd_create -Wl,--wrap=mmap -Wl,--wrap=memory_try \
	-Wl,--wrap=linkat -Wl,--wrap=renameat -Wl,--wrap=getentropy

DATA_CASE = tests/support/data_case.c tests/support/data_case.h tests/support/files.c tests/support/files.h
KERNEL_LIBS = libkernels.a libamp.a libdevice.a libbase.a $(CUDA_LIBS)
OP_CASE = tests/support/op_case.c tests/support/op_case.h tests/support/op_device.c tests/support/op_device.h
PLACE = tests/support/place.c tests/support/place.h
NET = tests/support/net.c tests/support/net.h $(PLACE)
GRAPH_LIBS = libexec.a libcompile.a libgraph.a libkernels.a libconf.a liballoc.a libamp.a libcomm.a \
	libdevice.a libbase.a $(CUDA_LIBS)

# The program with calls that can be made to fail: of the C library, the kernel and the device.
tests_support_faulty_SOURCES = $(amptrain_SOURCES) tests/support/faults.c
tests_support_faulty_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=main -Wl,--wrap=pthread_create \
	-Wl,--wrap=device_open -Wl,--wrap=store_open -Wl,--wrap=exec_collect

# The program, telling what it holds at the end of every epoch.
tests_support_held_SOURCES = $(amptrain_SOURCES) tests/support/held.c
tests_support_held_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=report_epoch

tests_support_make_pictures_SOURCES = tests/support/make_pictures.c
tests_support_make_pictures_LDADD =
tests_support_make_masks_SOURCES = tests/support/make_masks.c
tests_support_make_masks_LDADD =
tests_support_make_set_SOURCES = tests/support/make_set.c
tests_support_make_set_LDADD = -lm

tests_support_other_values_SOURCES = tests/support/other_values.c
tests_support_other_values_LDADD = libconf.a libbase.a

if HAVE_LIBTIFF
noinst_PROGRAMS += tests/support/make_bands tests/support/show_samples
tests_support_show_samples_SOURCES = tests/support/show_samples.c
tests_support_show_samples_LDADD = libdata.a libbase.a
tests_support_make_bands_SOURCES = tests/support/make_bands.c
tests_support_make_bands_LDADD =
endif
EXTRA_DIST += tests/support/make_bands.c tests/support/show_samples.c
