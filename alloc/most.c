#include "most.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct most most_open(const int64_t *values, int32_t count)
{
    int levels = 1;
    while (1 << levels <= count) levels++;
    struct most most = {memory_new((size_t)levels * (size_t)count, sizeof *most.row), count};
    memcpy(most.row, values, (size_t)count * sizeof *most.row);
    for (int level = 1; level < levels; level++) {
        int64_t *row = most.row + (size_t)level * (size_t)count;
        const int64_t *below = row - count;
        for (int i = 0, half = 1 << (level - 1); i + 2 * half <= count; i++)
            row[i] = below[i] > below[i + half] ? below[i] : below[i + half];
    }
    return most;
}

void most_close(struct most *most)
{
    free(most->row);
    *most = (struct most){0};
}

int64_t most_of(const struct most *most, int32_t lower, int32_t upper)
{
    int level = 31 - __builtin_clz((unsigned)(upper - lower));
    const int64_t *row = most->row + (size_t)level * (size_t)most->count;
    int64_t left = row[lower], right = row[upper - (1 << level)];
    return left > right ? left : right;
}
