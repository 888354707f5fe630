/* gzip_file.h: reads a data file, gzip-compressed or not, into memory after checking its size. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct gzip_file {
    char *path;            /* as opened */
    void *gz;              /* zlib's gzFile, which reads plain files as they are */
    uint64_t most;         /* upper limit of the decompressed size */
};

/* Opens DIR/NAME, or DIR/NAME.gz where that is not there (DIR NULL: NAME is the whole path). False, with a
 * reason that contains the path, if neither exists. */
bool gzip_file_open(const char *dir, const char *name, struct gzip_file *file, struct reason *reason);

/* The next `count` bytes, all of them or an error. */
bool gzip_file_read(struct gzip_file *file, void *bytes, size_t count, struct reason *reason);

/* `count` bytes in new memory (free() it) that must end the file; refused before memory is allocated if the
 * file cannot contain them. `offset` bytes were read already. */
bool gzip_file_rest(struct gzip_file *file, size_t offset, uint64_t count, uint8_t **bytes,
                    struct reason *reason);

/* Everything from here to the end, ended by a '\0' that `count` does not count. */
bool gzip_file_text(struct gzip_file *file, char **text, size_t *count, struct reason *reason);

void gzip_file_close(struct gzip_file *file);      /* accepts a zeroed struct */

/* Class names: the non-empty lines of DIR/NAME if it exists and has at least `count`, otherwise "0", "1", ...
 * The caller frees each and the array. */
char **gzip_file_class_names(const char *dir, const char *name, int count);
