check_PROGRAMS += tests/base/test_base tests/base/test_field tests/base/test_file_kind tests/base/test_numbers tests/base/test_watch \
	tests/base/test_files tests/base/test_library tests/base/test_machine tests/base/test_host

tests_base_test_base_SOURCES = tests/base/test_base.c
tests_base_test_base_LDADD = libbase.a -lcmocka

tests_base_test_field_SOURCES = tests/base/test_field.c
tests_base_test_field_LDADD = libbase.a -lcmocka

tests_base_test_file_kind_SOURCES = tests/base/test_file_kind.c
tests_base_test_file_kind_LDADD = libbase.a -lcmocka

tests_base_test_numbers_SOURCES = tests/base/test_numbers.c
tests_base_test_numbers_LDADD = libbase.a -lcmocka

tests_base_test_watch_SOURCES = tests/base/test_watch.c
tests_base_test_watch_LDADD = libbase.a -lcmocka

tests_base_test_files_SOURCES = tests/base/test_files.c tests/support/caught.h
tests_base_test_files_LDADD = libbase.a -lcmocka

tests_base_test_library_SOURCES = tests/base/test_library.c
tests_base_test_library_LDADD = libbase.a -lcmocka -lm

tests_base_test_machine_SOURCES = tests/base/test_machine.c
tests_base_test_machine_LDADD = libbase.a -lcmocka

tests_base_test_host_SOURCES = tests/base/test_host.c tests/support/files.c tests/support/files.h
tests_base_test_host_LDADD = libbase.a -lcmocka
