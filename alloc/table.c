#include "table.h"

#include <stdlib.h>

#include "base/memory.h"

static int compare_int64(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts and removes duplicates; returns the number left. */
static int32_t table_unique(int64_t *values, int count)
{
    int32_t kept = 0;
    qsort(values, (size_t)count, sizeof *values, compare_int64);
    for (int i = 0; i < count; i++)
        if (kept == 0 || values[kept - 1] != values[i]) values[kept++] = values[i];
    return kept;
}

static int32_t rank_of(int64_t value, const int64_t *sorted, int32_t count)
{
    const int64_t *found = bsearch(&value, sorted, (size_t)count, sizeof value, compare_int64);
    return (int32_t)(found - sorted);
}

static void find_load(struct table *table)
{
    table->load = memory_new((size_t)table->times + 1, sizeof *table->load);
    for (int i = 0; i < table->count; i++) {
        table->load[table->blocks[i].lower] += table->blocks[i].size;
        table->load[table->blocks[i].upper] -= table->blocks[i].size;
    }
    for (int32_t t = 1; t < table->times; t++) table->load[t] += table->load[t - 1];
    for (int32_t t = 0; t < table->times; t++)
        if (table->load[t] > table->bound) table->bound = table->load[t];
}

/* Times may be further apart than a number can say. */
static int64_t life_of(const struct span *span)
{
    int64_t life;
    return __builtin_sub_overflow(span->upper, span->lower, &life) ? INT64_MAX : life;
}

struct table table_open(const struct span *spans, int count, int64_t alignment)
{
    struct table table = {.blocks = memory_new((size_t)count, sizeof *table.blocks),
                          .source = memory_new((size_t)count, sizeof *table.source)};
    int64_t *times = memory_new(2 * (size_t)count, sizeof *times);
    for (int i = 0; i < count; i++) {
        if (spans[i].lower >= spans[i].upper || spans[i].size <= 0) continue;
        times[2 * table.count] = spans[i].lower;
        times[2 * table.count + 1] = spans[i].upper;
        table.source[table.count++] = i;
    }
    table.times = table_unique(times, 2 * table.count);
    for (int i = 0; i < table.count; i++) {
        const struct span *span = &spans[table.source[i]];
        table.blocks[i] = (struct block){rank_of(span->lower, times, table.times),
                                         rank_of(span->upper, times, table.times),
                                         (span->size - 1) / alignment + 1, life_of(span)};
    }
    free(times);
    find_load(&table);
    return table;
}

void table_close(struct table *table)
{
    free(table->blocks);
    free(table->source);
    free(table->load);
    *table = (struct table){0};
}

int64_t table_peak(const struct table *table, const int64_t *offsets)
{
    int64_t peak = 0;
    for (int i = 0; i < table->count; i++)
        if (offsets[i] + table->blocks[i].size > peak) peak = offsets[i] + table->blocks[i].size;
    return peak;
}
