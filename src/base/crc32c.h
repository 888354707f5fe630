/* crc32c.h: the CRC-32C checksum (Castagnoli; RFC 3720, appendix B.4) with which stored tensors are
 * verified. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* The checksum of what gave `crc` (0: nothing yet) followed by `bytes` more bytes. The CPU's own
 * instruction computes it where there is one. */
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes);

/* The same from a table, whatever the CPU can do: for machines without the instruction, and to
 * test it. */
uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes);
