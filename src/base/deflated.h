/* deflated.h: decompression of zlib streams (RFC 1950), and CRC-32: by libdeflate if the build has it,
 * otherwise by zlib, with the same results. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* False if `bytes` are not one complete stream of exactly `size` bytes with a correct checksum, or if there
 * is no memory; the contents of `to` are then undefined. Both sizes are at most 2^32 - 1. */
bool deflated_read(const uint8_t *bytes, size_t count, uint8_t *to, size_t size);

/* CRC-32 as PNG and zip have it, of all the bytes; `crc` is that of those before, at first 0. */
uint32_t deflated_crc(uint32_t crc, const uint8_t *bytes, size_t count);
