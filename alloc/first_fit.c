#include "first_fit.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A block as it is ordered. */
struct ordered {
    int size_class;
    int32_t distance;
    int64_t size;
    int32_t length, index;
};

static int compare_ordered(const void *a, const void *b)
{
    const struct ordered *left = a, *right = b;
    if (left->size_class != right->size_class) return right->size_class - left->size_class;
    if (left->distance != right->distance) return left->distance < right->distance ? -1 : 1;
    if (left->size != right->size) return left->size > right->size ? -1 : 1;
    if (left->length != right->length) return left->length > right->length ? -1 : 1;
    return left->index < right->index ? -1 : 1;
}

/* How far from the peak in time a life is; 0 if it is alive then. */
static int32_t from_peak(const struct block *block, int32_t peak)
{
    if (block->upper <= peak) return peak - block->upper + 1;
    return block->lower > peak ? block->lower - peak : 0;
}

/* The last time at which the load is the largest. */
static int32_t peak_of(const struct table *table)
{
    int32_t peak = 0;
    for (int32_t t = 0; t < table->times; t++)
        if (table->load[t] >= table->load[peak]) peak = t;
    return peak;
}

static struct ordered *order_make(const struct table *table, enum first_fit_order order)
{
    struct ordered *list = memory_new((size_t)table->count, sizeof *list);
    int32_t peak = peak_of(table);
    for (int32_t i = 0; i < table->count; i++) {
        const struct block *block = &table->blocks[i];
        list[i] = (struct ordered){
            .size_class = 64 - __builtin_clzll((unsigned long long)block->size),
            .distance = order == FIRST_FIT_BY_BIRTH ? block->lower : from_peak(block, peak),
            .size = block->size, .length = block->upper - block->lower, .index = i};
    }
    qsort(list, (size_t)table->count, sizeof *list, compare_ordered);
    return list;
}

/* A block that has its place. */
struct placed {
    int64_t start, end;
    int32_t lower, upper;
};

/* Puts the block in the lowest gap between those of list[count], sorted by offset, that live at some time
 * with it. Returns its offset. */
static int64_t first_fit_place(struct placed *list, int count, const struct block *block)
{
    int64_t offset = 0;
    int at = count;
    for (int i = 0; i < count; i++) {
        const struct placed *other = &list[i];
        if (other->lower >= block->upper || other->upper <= block->lower) continue;
        if (other->start - offset >= block->size) break;
        if (other->end > offset) offset = other->end;
    }
    while (at > 0 && list[at - 1].start > offset) at--;
    memmove(&list[at + 1], &list[at], (size_t)(count - at) * sizeof *list);
    list[at] = (struct placed){offset, offset + block->size, block->lower, block->upper};
    return offset;
}

int64_t first_fit(const struct table *table, enum first_fit_order order, int64_t ceiling, int64_t *visits,
                  int64_t visits_limit, int64_t *offsets)
{
    struct ordered *list = order_make(table, order);
    struct placed *placed = memory_new((size_t)table->count, sizeof *placed);
    int64_t peak = 0;
    for (int i = 0; i < table->count && peak <= ceiling; i++) {
        const struct block *block = &table->blocks[list[i].index];
        int64_t offset = first_fit_place(placed, i, block);
        *visits += i;
        offsets[list[i].index] = offset;
        if (offset + block->size > peak) peak = offset + block->size;
        if (*visits > visits_limit) peak = INT64_MAX;
    }
    free(placed);
    free(list);
    return peak <= ceiling ? peak : INT64_MAX;
}
