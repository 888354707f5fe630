#include "shelves.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SHELF_LENGTH 256

struct shelf {
    int count;
    int32_t lower, upper;      /* no block on it is alive outside of these */
    struct placed block[SHELF_LENGTH];
};

void shelves_clear(struct shelves *shelves)
{
    shelves->count = 0;
    shelves->visits = 0;
}

void shelves_free(struct shelves *shelves)
{
    for (int i = 0; i < shelves->capacity; i++) free(shelves->shelf[i]);
    free(shelves->shelf);
    *shelves = (struct shelves){0};
}

/* An empty shelf at `index`; those from there on move up. */
static struct shelf *shelves_open(struct shelves *shelves, int index)
{
    if (shelves->count == shelves->capacity) {
        int capacity = shelves->capacity ? 2 * shelves->capacity : 4;
        shelves->shelf = memory_resize(shelves->shelf, (size_t)capacity, sizeof *shelves->shelf);
        for (int i = shelves->capacity; i < capacity; i++)
            shelves->shelf[i] = memory_new(1, sizeof **shelves->shelf);
        shelves->capacity = capacity;
    }
    struct shelf *spare = shelves->shelf[shelves->count];
    struct shelf **place = &shelves->shelf[index];
    memmove(place + 1, place, (size_t)(shelves->count - index) * sizeof *place);
    *place = spare;
    spare->count = 0;
    spare->lower = INT32_MAX;
    spare->upper = INT32_MIN;
    shelves->count++;
    return spare;
}

static void shelves_close(struct shelves *shelves, int index)
{
    struct shelf *empty = shelves->shelf[index];
    struct shelf **place = &shelves->shelf[index];
    shelves->count--;
    memmove(place, place + 1, (size_t)(shelves->count - index) * sizeof *place);
    shelves->shelf[shelves->count] = empty;
}

static void shelf_stretch(struct shelf *shelf, const struct placed *block)
{
    if (block->lower < shelf->lower) shelf->lower = block->lower;
    if (block->upper > shelf->upper) shelf->upper = block->upper;
}

/* The last shelf whose first block does not lie above `start`, or the first shelf. */
static int shelves_search(const struct shelves *shelves, int64_t start)
{
    int low = 0, high = shelves->count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (shelves->shelf[middle]->block[0].start <= start) low = middle;
        else high = middle;
    }
    return low;
}

/* The number of blocks on a shelf that do not lie above `start`. */
static int shelf_search(const struct shelf *shelf, int64_t start)
{
    int low = 0, high = shelf->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (shelf->block[middle].start <= start) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Moves the upper half of a full shelf to a new one above it. */
static void shelves_split(struct shelves *shelves, int index)
{
    struct shelf *above = shelves_open(shelves, index + 1), *full = shelves->shelf[index];
    int half = full->count / 2;
    above->count = full->count - half;
    full->count = half;
    memcpy(above->block, full->block + half, (size_t)above->count * sizeof *above->block);
    full->lower = INT32_MAX;
    full->upper = INT32_MIN;
    for (int i = 0; i < full->count; i++) shelf_stretch(full, &full->block[i]);
    for (int i = 0; i < above->count; i++) shelf_stretch(above, &above->block[i]);
}

void shelves_insert(struct shelves *shelves, struct placed block)
{
    if (shelves->count == 0) shelves_open(shelves, 0);
    int index = shelves_search(shelves, block.start);
    if (shelves->shelf[index]->count == SHELF_LENGTH) {
        shelves_split(shelves, index);
        index = shelves_search(shelves, block.start);
    }
    struct shelf *shelf = shelves->shelf[index];
    struct placed *place = &shelf->block[shelf_search(shelf, block.start)];
    memmove(place + 1, place, (size_t)(&shelf->block[shelf->count] - place) * sizeof *place);
    *place = block;
    shelf->count++;
    shelf_stretch(shelf, &block);
}

static bool same_block(const struct placed *a, const struct placed *b)
{
    return a->start == b->start && a->end == b->end && a->lower == b->lower && a->upper == b->upper;
}

void shelves_remove(struct shelves *shelves, struct placed block)
{
    /* Blocks that are never alive together may start at the same offset, on several shelves. */
    for (int index = shelves_search(shelves, block.start); index >= 0; index--) {
        struct shelf *shelf = shelves->shelf[index];
        for (int i = shelf_search(shelf, block.start) - 1; i >= 0; i--) {
            struct placed *place = &shelf->block[i];
            if (!same_block(place, &block)) continue;
            shelf->count--;
            memmove(place, place + 1, (size_t)(&shelf->block[shelf->count] - place) * sizeof *place);
            if (shelf->count == 0) shelves_close(shelves, index);
            return;
        }
    }
    assert(!"a block that was never inserted");
}

int64_t shelves_find(struct shelves *shelves, int32_t lower, int32_t upper, int64_t size, enum fit fit)
{
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    for (int index = 0; index < shelves->count; index++) {
        const struct shelf *shelf = shelves->shelf[index];
        shelves->visits++;
        if (shelf->upper <= lower || shelf->lower >= upper) continue;
        shelves->visits += shelf->count;
        for (int i = 0; i < shelf->count; i++) {
            const struct placed *block = &shelf->block[i];
            if (block->upper <= lower || block->lower >= upper) continue;
            int64_t gap = block->start - top;
            if (gap >= size && gap < best_gap) {
                if (fit == FIT_LOWEST || gap == size) return top;
                best = top;
                best_gap = gap;
            }
            if (block->end > top) top = block->end;
        }
    }
    return best >= 0 ? best : top;
}
