check_PROGRAMS += \
	tests/test_image

tests_test_image_SOURCES = tests/test_image.c tests/data_case.c tests/data_case.h
tests_test_image_LDADD = libdata.a libbase.a -lcmocka
