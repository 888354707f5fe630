#include "repair.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/beside.h"
#include "alloc/shelves.h"
#include "base/clock.h"
#include "base/memory.h"

#define SORTING 4            /* blocks looked at in the time that sorting one of them takes */
#define TAKEN_MOST 96        /* blocks taken out at a time */

struct repair {
    struct repair_block *blocks;
    int count;
    const struct repair_limits *limits;
    struct beside all;
    struct shelves nearby;     /* those that can matter to the ones taken out */
    int64_t level;             /* where everything should end */
    int32_t *above;            /* blocks that end above it, and some that no longer do */
    bool *noted;               /* by block: it is there */
    int above_count;
    int32_t *beside;           /* of the blocks in work */
    struct sortable *sorted, *spare;    /* the same, being sorted */
    bool *out;                 /* by block: taken out */
    uint32_t state;            /* of the generator */
    int64_t visits;
};

struct sortable {
    int64_t offset;
    int32_t index;
};

/* A block out of its place. */
struct taken {
    int32_t index;
    double key;                /* those with small ones come first */
    int64_t before;            /* where it was */
};

/* Marsaglia: Xorshift RNGs, 2003. A number below `limit`. */
static uint32_t draw(struct repair *r, uint32_t limit)
{
    r->state ^= r->state << 13;
    r->state ^= r->state >> 17;
    r->state ^= r->state << 5;
    return (uint32_t)((uint64_t)r->state * limit >> 32);
}

static struct placed placed_at(const struct repair *r, int32_t index)
{
    const struct repair_block *block = &r->blocks[index];
    return (struct placed){block->offset, block->offset + block->size, block->lower, block->upper, index};
}

static int64_t excess_of(const struct repair *r, int32_t index)
{
    int64_t end = r->blocks[index].offset + r->blocks[index].size;
    return end > r->level ? end - r->level : 0;
}

static int64_t peak_of(const struct repair *r)
{
    int64_t peak = 0;
    for (int i = 0; i < r->count; i++) {
        int64_t end = r->blocks[i].offset + r->blocks[i].size;
        if (end > peak) peak = end;
    }
    return peak;
}

static void note_above(struct repair *r, int32_t index)
{
    if (r->noted[index] || excess_of(r, index) == 0) return;
    r->noted[index] = true;
    r->above[r->above_count++] = index;
}

static void find_above(struct repair *r)
{
    for (int i = 0; i < r->above_count; i++) r->noted[r->above[i]] = false;
    r->above_count = 0;
    for (int i = 0; i < r->count; i++) note_above(r, i);
}

/* One of those above the level; -1: there is none left. */
static int32_t draw_above(struct repair *r)
{
    while (r->above_count > 0) {
        uint32_t which = draw(r, (uint32_t)r->above_count);
        int32_t index = r->above[which];
        if (excess_of(r, index) > 0) return index;
        r->noted[index] = false;
        r->above[which] = r->above[--r->above_count];
    }
    return -1;
}

static int compare_taken(const void *a, const void *b)
{
    const struct taken *left = a, *right = b;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    return left->index - right->index;
}

/* By digits of the offset, from the lowest on (Knuth 5.2.5): offsets have few digits, and blocks are many. */
#define DIGIT_BITS 11
#define DIGITS (1 << DIGIT_BITS)
static void sort_by_digits(struct repair *r, int count, int64_t most)
{
    for (int shift = 0; most >> shift > 0; shift += DIGIT_BITS) {
        int first[DIGITS + 1] = {0};
        for (int i = 0; i < count; i++) first[(r->sorted[i].offset >> shift & (DIGITS - 1)) + 1]++;
        for (int digit = 0; digit < DIGITS; digit++) first[digit + 1] += first[digit];
        for (int i = 0; i < count; i++)
            r->spare[first[r->sorted[i].offset >> shift & (DIGITS - 1)]++] = r->sorted[i];
        struct sortable *sorted = r->spare;
        r->spare = r->sorted;
        r->sorted = sorted;
    }
}

#define FEW 64
static void sort_few(struct repair *r, int count)
{
    for (int i = 1; i < count; i++) {
        struct sortable one = r->sorted[i];
        int at = i;
        for (; at > 0 && r->sorted[at - 1].offset > one.offset; at--) r->sorted[at] = r->sorted[at - 1];
        r->sorted[at] = one;
    }
}

/* Fills `beside` with what is alive in [lower, upper), from the lowest up; returns how many. */
static int collect(struct repair *r, int32_t lower, int32_t upper)
{
    int count = beside_collect(&r->all, lower, upper, r->beside);
    int64_t most = 0;
    for (int i = 0; i < count; i++) {
        r->sorted[i] = (struct sortable){r->blocks[r->beside[i]].offset, r->beside[i]};
        if (r->sorted[i].offset > most) most = r->sorted[i].offset;
    }
    if (count > FEW) sort_by_digits(r, count, most);
    else sort_few(r, count);
    for (int i = 0; i < count; i++) r->beside[i] = r->sorted[i].index;
    r->visits += (int64_t)count * SORTING;
    return count;
}

/* Chooses `index` and a run of those beside it, in the order in which they are to be placed; returns
 * how many. */
static int choose(struct repair *r, int32_t index, struct taken *taken)
{
    const struct repair_block *block = &r->blocks[index];
    int beside = collect(r, block->lower, block->upper);
    int most = 2 << draw(r, 6), count = 0;
    int first = (int)draw(r, (uint32_t)beside);
    if (draw(r, 4) == 0) first = beside - 1 - (int)draw(r, (uint32_t)(beside < most ? beside : most));
    double noise = draw(r, 3) == 0 ? 0 : 1e-4 * draw(r, 10);
    bool by_area = draw(r, 3) == 0, ahead = draw(r, 2) == 0;
    for (int i = -1; i < most; i++) {
        if (i >= 0 && (first + i >= beside || r->beside[first + i] == index)) continue;
        int32_t which = i < 0 ? index : r->beside[first + i];
        const struct repair_block *one = &r->blocks[which];
        double key = (double)one->size * (by_area ? one->upper - one->lower : 1);
        key *= 1 + noise * draw(r, 1000);
        taken[count++] = (struct taken){which, i < 0 && ahead ? -1e300 : -key, one->offset};
    }
    qsort(taken, (size_t)count, sizeof *taken, compare_taken);
    return count;
}

/* Fills `nearby` with all that lives beside those taken, but not with them; returns their excess. */
static int64_t take_out(struct repair *r, const struct taken *taken, int count)
{
    int32_t lower = INT32_MAX, upper = INT32_MIN;
    int64_t excess = 0;
    for (int i = 0; i < count; i++) {
        const struct repair_block *block = &r->blocks[taken[i].index];
        if (block->lower < lower) lower = block->lower;
        if (block->upper > upper) upper = block->upper;
        excess += excess_of(r, taken[i].index);
        r->out[taken[i].index] = true;
    }
    int around = collect(r, lower, upper);
    r->visits += r->nearby.visits;
    shelves_clear(&r->nearby);
    for (int i = 0; i < around; i++)
        if (!r->out[r->beside[i]]) shelves_insert(&r->nearby, placed_at(r, r->beside[i]));
    for (int i = 0; i < count; i++) r->out[taken[i].index] = false;
    return excess;
}

/* Places them anew among those nearby; false as soon as that is worse than `excess`. */
static bool put_back(struct repair *r, const struct taken *taken, int count, int64_t excess)
{
    enum fit fit = draw(r, 3) == 0 ? FIT_TIGHTEST : FIT_LOWEST;
    for (int i = 0; i < count; i++) {
        struct repair_block *block = &r->blocks[taken[i].index];
        block->offset = shelves_find(&r->nearby, block->lower, block->upper, block->size, fit);
        excess -= excess_of(r, taken[i].index);
        if (excess < 0) return false;
        shelves_insert(&r->nearby, placed_at(r, taken[i].index));
    }
    return true;
}

/* One attempt at a block, kept unless it is worse. */
static void attempt(struct repair *r, int32_t index)
{
    struct taken taken[TAKEN_MOST];
    int count = choose(r, index, taken);
    int64_t excess = take_out(r, taken, count);
    bool good = put_back(r, taken, count, excess);
    for (int i = 0; i < count && !good; i++) r->blocks[taken[i].index].offset = taken[i].before;
    for (int i = 0; i < count && good; i++) note_above(r, taken[i].index);
}

static int64_t work_of(const struct repair *r)
{
    return r->visits + r->all.visits + r->nearby.visits;
}

static bool exhausted(const struct repair *r)
{
    return work_of(r) > r->limits->visits || clock_seconds() > r->limits->deadline;
}

/* Works until nothing is above the level; false when the share of work that it may take is used up. */
static bool reach_level(struct repair *r, int64_t share)
{
    int64_t stop = work_of(r) + share;
    find_above(r);
    for (int32_t index = draw_above(r); index >= 0; index = draw_above(r)) {
        if (exhausted(r) || work_of(r) > stop) return false;
        attempt(r, index);
    }
    return true;
}

static struct beside lives_of(const struct repair_block *blocks, int count)
{
    struct beside_life *lives = memory_new((size_t)count, sizeof *lives);
    for (int i = 0; i < count; i++) lives[i] = (struct beside_life){blocks[i].lower, blocks[i].upper, i};
    struct beside beside = beside_open(lives, count);
    free(lives);
    return beside;
}

static void offsets_copy(const struct repair *r, int64_t *offsets)
{
    for (int i = 0; i < r->count; i++) offsets[i] = r->blocks[i].offset;
}

int64_t repair_peak(struct repair_block *blocks, int count, const struct repair_limits *limits,
                    int64_t *visits)
{
    struct repair r = {.blocks = blocks, .count = count, .limits = limits, .state = 2463534242u};
    int64_t *best = memory_new((size_t)count, sizeof *best);
    r.above = memory_new((size_t)count, sizeof *r.above);
    r.all = lives_of(blocks, count);
    r.noted = memory_new((size_t)count, sizeof *r.noted);
    r.beside = memory_new((size_t)count, sizeof *r.beside);
    r.sorted = memory_new((size_t)count, sizeof *r.sorted);
    r.spare = memory_new((size_t)count, sizeof *r.spare);
    r.out = memory_new((size_t)count, sizeof *r.out);
    int64_t peak = peak_of(&r), share = limits->visits / 5 + 1;
    offsets_copy(&r, best);
    r.level = limits->goal + (peak - limits->goal) / 2;
    while (peak > limits->goal && !exhausted(&r)) {
        if (reach_level(&r, share)) {
            peak = peak_of(&r);
            offsets_copy(&r, best);
            r.level = limits->goal + (peak - limits->goal) / 2;
        } else {
            /* The halves in between, from where it stands: what it has won below the peak is not given up. */
            r.level += (peak - r.level) / 2;
            if (r.level >= peak - 1) r.level = limits->goal + (peak - limits->goal) * 3 / 4;
        }
    }
    for (int i = 0; i < count; i++) blocks[i].offset = best[i];
    *visits += work_of(&r);
    beside_close(&r.all);
    free(r.sorted);
    free(r.spare);
    free(r.noted);
    shelves_free(&r.nearby);
    free(r.out);
    free(r.above);
    free(r.beside);
    free(best);
    return peak;
}
