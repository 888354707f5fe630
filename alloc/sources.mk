liballoc_a_SOURCES = \
	alloc/cache.c \
	alloc/cache.h \
	alloc/check.c \
	alloc/check.h \
	alloc/pack.c \
	alloc/pack.h \
	alloc/pack_csv.c \
	alloc/pinned.c \
	alloc/pinned.h \
	alloc/range_max.c \
	alloc/range_max.h \
	alloc/search.c \
	alloc/search.h \
	alloc/skyline.c \
	alloc/skyline.h \
	alloc/skyline_search.c \
	alloc/skyline_search.h \
	alloc/slabs.c \
	alloc/slabs.h \
	alloc/span.h \
	alloc/table.c \
	alloc/table.h
