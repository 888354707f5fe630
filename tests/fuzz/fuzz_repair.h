/* fuzz_repair.h: the checksums of a packed file put right, so that what is behind them is tried. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Where the header's numbers lead to places in the file; its length is put right, too. */
void fuzz_repair_packed(uint8_t *bytes, size_t size);
