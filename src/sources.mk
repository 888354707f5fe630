amptrain_SOURCES = src/main.c
