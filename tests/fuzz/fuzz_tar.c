/* Tar archives of images. The headers' sums are put right, too, so that what is behind them is tried. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "fuzz_images.h"

#define BLOCK 512
#define SUM_AT 148
#define SIZE_AT 124

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* Headers as they follow each other by their own sizes. */
static void repair(uint8_t *bytes, size_t size)
{
    for (size_t at = 0; at <= size && size - at >= BLOCK;) {
        unsigned sum = 0;
        uint8_t *header = bytes + at;
        memset(header + SUM_AT, ' ', 8);
        for (int i = 0; i < BLOCK; i++) sum += header[i];
        char digits[8];
        snprintf(digits, sizeof digits, "%06o", sum);
        memcpy(header + SUM_AT, digits, 7);
        size_t content = 0;
        for (int i = 0; i < 11; i++)
            if (header[SIZE_AT + i] >= '0' && header[SIZE_AT + i] <= '7')
                content = content * 8 + header[SIZE_AT + i] - '0';
        at += BLOCK + (content + BLOCK - 1) / BLOCK * BLOCK;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t *bytes = memory_new(size, 1);
    const struct dataset_options options = {.path = fuzz_write("fuzz.tar", data, size), .c = size & 1,
                                            .target = (enum target_kind)((size >> 1) % (TARGET_MASK + 1))};
    fuzz_dataset("packed", &options, "fuzz.tar");
    memcpy(bytes, data, size);
    repair(bytes, size);
    fuzz_write("fuzz.tar", bytes, size);
    fuzz_dataset("packed", &options, "fuzz.tar");
    free(bytes);
    return 0;
}
