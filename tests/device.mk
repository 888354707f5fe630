check_PROGRAMS += tests/test_device
tests_test_device_SOURCES = tests/test_device.c
tests_test_device_LDADD = libdevice.a libbase.a $(CUDA_LIBS) -lcmocka
