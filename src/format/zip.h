/* zip.h: reads archives whose members are stored uncompressed, as PyTorch writes them; PKWARE's APPNOTE 6.3,
 * with its zip64 extension. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

#define ZIP_MEMBERS_MAX 1000000

struct zip_member {
    char *name;
    int64_t at, bytes;          /* its content in the file */
    uint32_t crc;
    int method;                 /* 0: stored; others cannot be read */
    bool verified;              /* the content has been read and has its checksum */
};

struct zip {
    int file;                   /* descriptor, of the caller */
    struct zip_member *members; /* in the order of their names, which differ */
    int count;
};

/* Reads the list of members of a file of `size` bytes. False, with a reason, if it is damaged or encrypted,
 * or a member would lie outside of the file. */
bool zip_open(int file, int64_t size, struct zip *zip, struct reason *reason);
void zip_close(struct zip *zip);                          /* not the descriptor; accepts a zeroed struct */

int zip_find(const struct zip *zip, const char *name);    /* -1: not there */

/* Reads `bytes` of a member's content from byte `from`, which must lie in it. The first call for a member
 * verifies the checksum of its whole content. */
bool zip_read(const struct zip *zip, int member, int64_t from, void *to, int64_t bytes,
              struct reason *reason);
