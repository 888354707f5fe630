/* deflated.h: decompression of zlib streams (RFC 1950), and CRC-32: by libdeflate if the build has it,
 * otherwise by zlib, with the same results. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False unless `bytes` are one whole stream, sound by its checksum, of exactly `size` bytes; or there is no
 * memory. `to` then holds anything. At most 2^32 - 1 on either side. */
bool deflated_read(const uint8_t *bytes, size_t count, uint8_t *to, size_t size);

/* CRC-32 as PNG has it, of all the bytes. */
uint32_t deflated_crc(const uint8_t *bytes, size_t count);
