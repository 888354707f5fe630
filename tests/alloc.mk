check_PROGRAMS += tests/test_pack
tests_test_pack_SOURCES = tests/test_pack.c tests/caught.h
tests_test_pack_LDADD = liballoc.a libbase.a -lcmocka
