#include <zlib.h>

#include "base/deflated.h"

bool deflated_read(const uint8_t *bytes, size_t count, uint8_t *to, size_t size)
{
    z_stream stream = {.next_in = (Bytef *)bytes, .avail_in = (uInt)count,
                       .next_out = to, .avail_out = (uInt)size};
    if (inflateInit(&stream) != Z_OK) return false;
    /* zlib keeps, with Z_FINISH, no copy of the last 32 KiB. */
    bool good = inflate(&stream, Z_FINISH) == Z_STREAM_END && stream.avail_out == 0 && stream.avail_in == 0;
    inflateEnd(&stream);
    return good;
}

uint32_t deflated_crc(uint32_t crc, const uint8_t *bytes, size_t count)
{
    return (uint32_t)crc32(crc, bytes, (uInt)count);
}
