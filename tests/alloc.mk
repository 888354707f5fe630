check_PROGRAMS += tests/test_pack
tests_test_pack_SOURCES = tests/test_pack.c tests/caught.h
tests_test_pack_LDADD = liballoc.a libbase.a -lcmocka

check_PROGRAMS += tests/test_cache
tests_test_cache_SOURCES = tests/test_cache.c
tests_test_cache_LDADD = liballoc.a libbase.a -lcmocka

check_PROGRAMS += tests/test_pinned
tests_test_pinned_SOURCES = tests/test_pinned.c tests/caught.h
tests_test_pinned_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=mallctl -Wl,--wrap=mmap
tests_test_pinned_LDADD = liballoc.a libbase.a -lcmocka
