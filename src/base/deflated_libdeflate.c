/* deflated_libdeflate.c: twice as fast as zlib on a complete stream. It also accepts a few streams that zlib
 * rejects and no compressor writes (for example, incomplete codes that are not used). */
#include <libdeflate.h>

#include "base/deflated.h"

bool deflated_read(const uint8_t *bytes, size_t count, uint8_t *to, size_t size)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    size_t taken = 0;
    bool good = decompressor && libdeflate_zlib_decompress_ex(decompressor, bytes, count, to, size, &taken,
                                                              NULL) == LIBDEFLATE_SUCCESS;
    libdeflate_free_decompressor(decompressor);
    return good && taken == count;
}

uint32_t deflated_crc(uint32_t crc, const uint8_t *bytes, size_t count)
{
    return libdeflate_crc32(crc, bytes, count);
}
