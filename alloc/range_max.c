#include "range_max.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct range_max range_max_open(const int64_t *values, int32_t count)
{
    int levels = 1;
    while (1 << levels <= count) levels++;
    struct range_max maxima = {memory_new((size_t)levels * (size_t)count, sizeof *maxima.row), count};
    memcpy(maxima.row, values, (size_t)count * sizeof *maxima.row);
    for (int level = 1; level < levels; level++) {
        int64_t *row = maxima.row + (size_t)level * (size_t)count;
        const int64_t *below = row - count;
        for (int i = 0, half = 1 << (level - 1); i + 2 * half <= count; i++)
            row[i] = below[i] > below[i + half] ? below[i] : below[i + half];
    }
    return maxima;
}

void range_max_close(struct range_max *maxima)
{
    free(maxima->row);
    *maxima = (struct range_max){0};
}

int64_t range_max_of(const struct range_max *maxima, int32_t lower, int32_t upper)
{
    int level = 31 - __builtin_clz((unsigned)(upper - lower));
    const int64_t *row = maxima->row + (size_t)level * (size_t)maxima->count;
    int64_t left = row[lower], right = row[upper - (1 << level)];
    return left > right ? left : right;
}
