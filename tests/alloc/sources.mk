check_PROGRAMS += tests/alloc/test_pack tests/alloc/test_cache tests/alloc/test_pinned

tests_alloc_test_pack_SOURCES = tests/alloc/test_pack.c tests/support/caught.h
tests_alloc_test_pack_LDADD = liballoc.a libbase.a -lcmocka

tests_alloc_test_cache_SOURCES = tests/alloc/test_cache.c
tests_alloc_test_cache_LDADD = liballoc.a libbase.a -lcmocka

tests_alloc_test_pinned_SOURCES = tests/alloc/test_pinned.c tests/support/caught.h
tests_alloc_test_pinned_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=mallctl -Wl,--wrap=mmap
tests_alloc_test_pinned_LDADD = liballoc.a libbase.a -lcmocka
