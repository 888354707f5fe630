/* tar.h: the members of a tar archive: ustar, with long names and sizes as GNU tar and pax write them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* POSIX.1-2017, pax, "ustar Interchange Format" and "pax Header Block". */
#define TAR_NAME 4096             /* bytes of a name and its end; members with a longer one are refused */
#define TAR_BLOCK 512             /* headers and contents come in blocks of as many bytes */

struct tar {
    int file;                  /* a seekable file descriptor */
    size_t count;              /* bytes in it */
    size_t at;                 /* of the next header */
};

struct tar_member {
    char name[TAR_NAME];
    size_t at, bytes;          /* of its content */
};

/* The next regular file; *more is false at the end. False and why when the archive is broken. */
bool tar_next(struct tar *tar, struct tar_member *member, bool *more, struct reason *reason);
