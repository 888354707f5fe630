#include "shelves.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define SHELF_LENGTH 256

struct place {
    int64_t start, end;
};

/* Lives lie apart from places: a search looks at all lives and at few places. */
struct shelf {
    int count;
    int32_t lower, upper;      /* no block on it is alive outside of these */
    int32_t lowers[SHELF_LENGTH], uppers[SHELF_LENGTH];
    struct place place[SHELF_LENGTH];
    int32_t index[SHELF_LENGTH];
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

static void shelf_stretch(struct shelf *shelf, int32_t lower, int32_t upper)
{
    if (lower < shelf->lower) shelf->lower = lower;
    if (upper > shelf->upper) shelf->upper = upper;
}

static void shelf_stretch_all(struct shelf *shelf)
{
    shelf->lower = INT32_MAX;
    shelf->upper = INT32_MIN;
    for (int i = 0; i < shelf->count; i++) shelf_stretch(shelf, shelf->lowers[i], shelf->uppers[i]);
}

/* Copies `count` blocks, which may lie on the same shelf. */
static void shelf_move(struct shelf *to, int to_index, const struct shelf *from, int index, int count)
{
    size_t n = (size_t)count;
    memmove(to->lowers + to_index, from->lowers + index, n * sizeof *to->lowers);
    memmove(to->uppers + to_index, from->uppers + index, n * sizeof *to->uppers);
    memmove(to->place + to_index, from->place + index, n * sizeof *to->place);
    memmove(to->index + to_index, from->index + index, n * sizeof *to->index);
}

/* The last shelf whose first block does not lie above `start`, or the first shelf. */
static int shelves_search(const struct shelves *shelves, int64_t start)
{
    int low = 0, high = shelves->count;
    while (high - low > 1) {
        int middle = (low + high) / 2;
        if (shelves->shelf[middle]->place[0].start <= start) low = middle;
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
        if (shelf->place[middle].start <= start) low = middle + 1;
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
    shelf_move(above, 0, full, half, above->count);
    shelf_stretch_all(full);
    shelf_stretch_all(above);
}

static void shelf_put(struct shelf *shelf, int at, struct placed block)
{
    shelf_move(shelf, at + 1, shelf, at, shelf->count - at);
    shelf->lowers[at] = block.lower;
    shelf->uppers[at] = block.upper;
    shelf->place[at] = (struct place){block.start, block.end};
    shelf->index[at] = block.index;
    shelf->count++;
    shelf_stretch(shelf, block.lower, block.upper);
}

void shelves_insert(struct shelves *shelves, struct placed block)
{
    if (shelves->count == 0) shelves_open(shelves, 0);
    struct shelf *last = shelves->shelf[shelves->count - 1];
    if (last->count == 0 || last->place[last->count - 1].start <= block.start) {
        /* Often they come from the lowest up. */
        if (last->count == SHELF_LENGTH) last = shelves_open(shelves, shelves->count);
        shelf_put(last, last->count, block);
        return;
    }
    int index = shelves_search(shelves, block.start);
    if (shelves->shelf[index]->count == SHELF_LENGTH) {
        shelves_split(shelves, index);
        index = shelves_search(shelves, block.start);
    }
    struct shelf *shelf = shelves->shelf[index];
    shelf_put(shelf, shelf_search(shelf, block.start), block);
}

void shelves_remove(struct shelves *shelves, struct placed block)
{
    /* Blocks that are never alive together may start at the same offset, on several shelves. */
    for (int index = shelves_search(shelves, block.start); index >= 0; index--) {
        struct shelf *shelf = shelves->shelf[index];
        for (int i = shelf_search(shelf, block.start) - 1; i >= 0; i--) {
            if (shelf->index[i] != block.index) continue;
            shelf->count--;
            shelf_move(shelf, i, shelf, i + 1, shelf->count - i);
            if (shelf->count == 0) shelves_close(shelves, index);
            return;
        }
    }
    assert(!"a block that was never inserted");
}

/* Which blocks of a shelf are alive in [lower, upper); no branch, since none would be guessed. */
static int shelf_meet(struct shelves *shelves, const struct shelf *shelf, int32_t lower, int32_t upper,
                      int *meets)
{
    int count = 0;
    shelves->visits++;
    if (shelf->upper <= lower || shelf->lower >= upper) return 0;
    shelves->visits += shelf->count;
    for (int i = 0; i < shelf->count; i++) {
        meets[count] = i;
        count += (shelf->uppers[i] > lower) & (shelf->lowers[i] < upper);
    }
    return count;
}

int64_t shelves_find(struct shelves *shelves, int32_t lower, int32_t upper, int64_t size, enum fit fit)
{
    int64_t top = 0, best = -1, best_gap = INT64_MAX;
    int meets[SHELF_LENGTH];
    for (int s = 0; s < shelves->count; s++) {
        const struct shelf *shelf = shelves->shelf[s];
        int count = shelf_meet(shelves, shelf, lower, upper, meets);
        for (int i = 0; i < count; i++) {
            const struct place *place = &shelf->place[meets[i]];
            int64_t gap = place->start - top;
            if (gap >= size && gap < best_gap) {
                if (fit == FIT_LOWEST || gap == size) return top;
                best = top;
                best_gap = gap;
            }
            if (place->end > top) top = place->end;
        }
    }
    return best >= 0 ? best : top;
}
