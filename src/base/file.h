/* file.h: complete reads and writes at a file offset, repeated after short ones. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* How many bytes from `at` on were read: fewer than `count` only where the file ends. -1, and errno.
 * Interrupted calls, and those that do a part, are carried on. */
ssize_t file_read(int file, void *to, size_t count, int64_t at);
bool file_write(int file, const void *from, size_t count, int64_t at);

/* Whether both names lead to one file that is there. */
bool file_same(const char *one, const char *other);
