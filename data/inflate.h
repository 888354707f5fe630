/* inflate.h: deflated data that lie in memory as a whole, inflated at once, faster than zlib does it.
 * RFC 1950, ZLIB compressed data format; RFC 1951, DEFLATE. */
#ifndef DATA_INFLATE_H
#define DATA_INFLATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Makes exactly `room` bytes of a zlib stream, whose checksum is right. False: it is broken, of another
 * length, or asks for a preset dictionary; what was written is then worth nothing. Bytes after the stream's
 * end are left. */
bool inflate_whole(const uint8_t *stream, size_t bytes, uint8_t *out, size_t room);

#endif
