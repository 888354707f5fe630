/* file.h: complete reads and writes at a file offset, repeated after short ones. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Returns the number of bytes read from offset `at`, less than `count` only at the end of the file; -1 with
 * errno. Interrupted and partial calls are continued. */
ssize_t file_read(int file, void *to, size_t count, int64_t at);
bool file_write(int file, const void *from, size_t count, int64_t at);

/* After EMFILE: raises the limit on open files, which the shards of a data set may exceed; false: it cannot
 * be raised. */
bool file_raise_limit(void);

/* True if both names refer to the same existing file. */
bool file_same(const char *one, const char *other);
