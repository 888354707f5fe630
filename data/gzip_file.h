/* whole.h: a data file, gzipped or not, read into memory after its size was found believable. */
#ifndef DATA_GZIP_FILE_H
#define DATA_GZIP_FILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

struct whole {
    char *path;            /* as opened */
    void *gz;              /* zlib's gzFile, which reads plain files as they are */
    uint64_t most;         /* bytes that the file can hold at the very most, inflated */
};

/* Opens DIR/NAME, or DIR/NAME.gz where that is not there (DIR NULL: NAME is the whole path).
 * False and why, with the path in it, when there is neither. */
bool whole_open(const char *dir, const char *name, struct whole *whole, struct reason *reason);

/* The next `count` bytes, all of them or an error. */
bool whole_read(struct whole *whole, void *bytes, size_t count, struct reason *reason);

/* `count` bytes in new memory (free() it) that must end the file; refused before memory is asked
 * for when the file cannot hold them. `offset` bytes were read already. */
bool whole_rest(struct whole *whole, size_t offset, uint64_t count, uint8_t **bytes, struct reason *reason);

/* Everything from here to the end, ended by a '\0' that `count` does not count. */
bool whole_text(struct whole *whole, char **text, size_t *count, struct reason *reason);

void whole_close(struct whole *whole);             /* accepts a zeroed struct */

/* Class names: the non-empty lines of DIR/NAME if that is there and has at least `count`,
 * otherwise "0", "1", ... The caller frees each and the array. */
char **whole_class_names(const char *dir, const char *name, int count);

#endif
