liballoc_a_SOURCES = \
	alloc/beside.c \
	alloc/beside.h \
	alloc/cache.c \
	alloc/cache.h \
	alloc/check.c \
	alloc/check.h \
	alloc/most.c \
	alloc/most.h \
	alloc/pack.c \
	alloc/pack.h \
	alloc/pack_csv.c \
	alloc/pinned.c \
	alloc/pinned.h \
	alloc/repair.c \
	alloc/repair.h \
	alloc/search.c \
	alloc/search.h \
	alloc/settle.c \
	alloc/settle.h \
	alloc/shelves.c \
	alloc/shelves.h \
	alloc/skyline.c \
	alloc/skyline.h \
	alloc/slabs.c \
	alloc/slabs.h
