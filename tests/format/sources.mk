check_PROGRAMS += tests/format/test_safetensors tests/format/test_torch_file tests/format/test_pickle

tests_format_test_safetensors_SOURCES = tests/format/test_safetensors.c tests/support/caught.h $(REFUSE)
tests_format_test_safetensors_LDFLAGS = $(REFUSE_LINKED)
tests_format_test_safetensors_LDADD = libformat.a libbase.a -lcmocka

tests_format_test_torch_file_SOURCES = tests/format/test_torch_file.c tests/support/torch_case.c \
	tests/support/torch_case.h $(REFUSE)
tests_format_test_torch_file_LDFLAGS = $(REFUSE_LINKED)
tests_format_test_torch_file_LDADD = libformat.a libbase.a -lcmocka

tests_format_test_pickle_SOURCES = tests/format/test_pickle.c src/format/pickle.c
tests_format_test_pickle_CPPFLAGS = $(AM_CPPFLAGS) -DPICKLE_VALUES_MAX=64
tests_format_test_pickle_LDADD = libbase.a -lcmocka
