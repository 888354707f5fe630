check_PROGRAMS += tests/device/test_device tests/device/test_energy tests/device/test_jpeg \
	tests/device/test_tuning tests/device/test_comm tests/device/test_mail

tests_device_test_device_SOURCES = tests/device/test_device.c tests/support/devices.h
tests_device_test_device_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

# With a library in the place of NVML.
tests_device_test_energy_SOURCES = tests/device/test_energy.c tests/support/files.c tests/support/files.h
tests_device_test_energy_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=dlopen -Wl,--wrap=dlsym
tests_device_test_energy_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

tests_device_test_jpeg_SOURCES = tests/device/test_jpeg.c $(DATA_CASE) tests/support/rounds.h
tests_device_test_jpeg_LDADD = libdata.a libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

# It needs no GPU, and so no build for one.
tests_device_test_tuning_SOURCES = tests/device/test_tuning.c src/device/cuda_tuning.c
tests_device_test_tuning_LDADD = libbase.a -lcmocka

tests_device_test_comm_SOURCES = tests/device/test_comm.c tests/support/caught.h $(REFUSE)
tests_device_test_comm_LDFLAGS = $(REFUSE_LINKED)
tests_device_test_comm_LDADD = libcomm.a libbase.a -lcmocka

tests_device_test_mail_SOURCES = tests/device/test_mail.c
tests_device_test_mail_LDADD = libcomm.a libbase.a -lcmocka

if HAVE_CUDA
check_PROGRAMS += tests/device/test_families
tests_device_test_families_SOURCES = tests/device/test_families.c
tests_device_test_families_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka
else
EXTRA_DIST += tests/device/test_families.c
endif
