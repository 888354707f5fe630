# check_PROGRAMS += tests/test_NAME; tests_test_NAME_SOURCES = tests/test_NAME.c; tests_test_NAME_LDADD = $(LDADD) -lcmocka
