/* crc32c.h: the CRC-32C checksum (Castagnoli; RFC 3720, appendix B.4) with which stored tensors are
 * verified. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Continues the checksum `crc` (0: of nothing) with `bytes` more bytes, by the CPU's instruction if it has
 * one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* Computes by a table, for machines without the instruction, and for tests. */
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);
