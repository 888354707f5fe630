libbase_a_SOURCES = src/base/log.c src/base/memory.c
