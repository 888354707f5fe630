check_PROGRAMS += tests/test_device
tests_test_device_SOURCES = tests/test_device.c tests/devices.h
tests_test_device_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

if HAVE_CUDA
check_PROGRAMS += tests/test_families
tests_test_families_SOURCES = tests/test_families.c
tests_test_families_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka
else
EXTRA_DIST += tests/test_families.c
endif

# With a library in the place of NVML.
check_PROGRAMS += tests/test_energy
tests_test_energy_SOURCES = tests/test_energy.c tests/files.c tests/files.h
tests_test_energy_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=dlopen -Wl,--wrap=dlsym
tests_test_energy_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

check_PROGRAMS += tests/test_jpeg
tests_test_jpeg_SOURCES = tests/test_jpeg.c $(DATA_CASE) tests/rounds.h
tests_test_jpeg_LDADD = libdata.a libdevice.a libbase.a $(CUDA_LIBS) -lcmocka

# It needs no GPU, and so no build for one.
check_PROGRAMS += tests/test_tuning
tests_test_tuning_SOURCES = tests/test_tuning.c src/device/cuda_tuning.c
tests_test_tuning_LDADD = libbase.a -lcmocka

check_PROGRAMS += tests/test_comm
tests_test_comm_SOURCES = tests/test_comm.c tests/caught.h $(REFUSE)
tests_test_comm_LDFLAGS = $(REFUSE_LINKED)
tests_test_comm_LDADD = libcomm.a libbase.a -lcmocka

check_PROGRAMS += tests/test_mail
tests_test_mail_SOURCES = tests/test_mail.c
tests_test_mail_LDADD = libcomm.a libbase.a -lcmocka
