#include "settle.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/most.h"
#include "base/memory.h"

/* A block, sorted by preference: the smaller first. */
struct preferred {
    double key, second;
    int32_t block;
};

/* A block that ends above the goal. */
struct culprit {
    int64_t top;
    int32_t block;
};

struct settle {
    const struct skyline_block *blocks;
    int count;
    int32_t times;
    int64_t goal;
    struct skyline *skyline;
    struct most load;            /* bytes alive */
    int64_t *weight;             /* by time: the same, and more where blocks ended above the goal */
    int turn;
    struct preferred *preferred;
    struct culprit *culprits;
    int32_t *next;               /* by time: the first from there on that is not dealt with */
    int32_t *rank;
    int64_t *offsets;
    int64_t visits;
};

struct settle *settle_open(const struct skyline_block *blocks, int count, const int64_t *load, int32_t times,
                           int64_t goal)
{
    size_t n = (size_t)count;
    struct settle *s = memory_new(1, sizeof *s);
    *s = (struct settle){.blocks = blocks, .count = count, .times = times, .goal = goal};
    s->skyline = skyline_open(blocks, count, times);
    s->weight = memory_new((size_t)times, sizeof *s->weight);
    memcpy(s->weight, load, (size_t)times * sizeof *s->weight);
    s->load = most_open(load, times);
    s->preferred = memory_new(n, sizeof *s->preferred);
    s->culprits = memory_new(n, sizeof *s->culprits);
    s->next = memory_new((size_t)times + 1, sizeof *s->next);
    s->rank = memory_new(n, sizeof *s->rank);
    s->offsets = memory_new(n, sizeof *s->offsets);
    return s;
}

void settle_close(struct settle *s)
{
    skyline_close(s->skyline);
    most_close(&s->load);
    free(s->weight);
    free(s->preferred);
    free(s->culprits);
    free(s->next);
    free(s->rank);
    free(s->offsets);
    free(s);
}

static int compare_preferred(const void *a, const void *b)
{
    const struct preferred *left = a, *right = b;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    if (left->second != right->second) return left->second < right->second ? -1 : 1;
    return left->block - right->block;
}

static int64_t place(struct settle *s, int64_t ceiling)
{
    qsort(s->preferred, (size_t)s->count, sizeof *s->preferred, compare_preferred);
    for (int i = 0; i < s->count; i++) s->rank[s->preferred[i].block] = i;
    s->visits += s->count;
    return skyline_place(s->skyline, s->rank, ceiling, s->offsets);
}

enum preference { BY_LENGTH, BY_AREA, BY_LOAD_BIRTH, BY_LOAD_LENGTH, BY_LOAD, BY_SIZE, BY_BIRTH };

static struct preferred preferred_by(const struct skyline_block *block, double load,
                                     enum preference preference)
{
    double length = block->upper - block->lower, size = (double)block->size;
    switch (preference) {
    case BY_LENGTH: return (struct preferred){.key = -length};
    case BY_AREA: return (struct preferred){.key = -length * size};
    case BY_LOAD_BIRTH: return (struct preferred){.key = -load, .second = block->lower};
    case BY_LOAD_LENGTH: return (struct preferred){.key = -load, .second = -length};
    case BY_LOAD: return (struct preferred){.key = -load};
    case BY_SIZE: return (struct preferred){.key = -size};
    case BY_BIRTH: return (struct preferred){.key = block->lower};
    }
    return (struct preferred){0};
}

/* From -1 to 1 (Marsaglia: Xorshift RNGs, 2003). */
static double draw(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (double)*state * 0x1p-31 - 1;
}

/* How much keys are shaken: strengths take turns, since none is the best for all tables. */
static const double shakes[] = {0.05, 0.15, 0.4};
#define SHAKES (int)(sizeof shakes / sizeof *shakes)

/* `number`: plain below SETTLE_PLAIN, shaken from there on. */
static int64_t turn_shaken(struct settle *s, int number, int64_t ceiling)
{
    uint32_t state = 2463534242u + (uint32_t)number * 2654435769u;
    double shake = number < SETTLE_PLAIN ? 0 : shakes[number % SHAKES];
    for (int i = 0; i < s->count; i++) {
        const struct skyline_block *block = &s->blocks[i];
        double load = (double)most_of(&s->load, block->lower, block->upper);
        s->preferred[i] = preferred_by(block, load, (enum preference)(number % SETTLE_PLAIN));
        s->preferred[i].key *= 1 + shake * draw(&state);
        s->preferred[i].block = i;
    }
    return place(s, ceiling);
}

static int compare_culprits(const void *a, const void *b)
{
    const struct culprit *left = a, *right = b;
    if (left->top != right->top) return left->top > right->top ? -1 : 1;
    return left->block - right->block;
}

static int32_t first_left(struct settle *s, int32_t time)
{
    int32_t first = time;
    while (s->next[first] != first) first = s->next[first];
    while (s->next[time] != first) {
        int32_t after = s->next[time];
        s->next[time] = first;
        time = after;
    }
    return first;
}

/* Adds to the weight of each time a share of what stuck out there. */
#define HEED 0.3
static void heed(struct settle *s)
{
    int count = 0;
    for (int i = 0; i < s->count; i++) {
        int64_t top = s->offsets[i] + s->blocks[i].size;
        if (top > s->goal) s->culprits[count++] = (struct culprit){top, i};
    }
    qsort(s->culprits, (size_t)count, sizeof *s->culprits, compare_culprits);
    for (int32_t t = 0; t <= s->times; t++) s->next[t] = t;
    for (int i = 0; i < count; i++) {
        const struct skyline_block *block = &s->blocks[s->culprits[i].block];
        int64_t more = (int64_t)(HEED * (double)(s->culprits[i].top - s->goal));
        for (int32_t t = first_left(s, block->lower); t < block->upper; t = first_left(s, t)) {
            s->weight[t] += more;
            s->next[t] = t + 1;
        }
    }
}

/* Squeaky wheel optimisation (Joslin, Clements 1999): where blocks stuck out, they are preferred the next
 * time. No ceiling: all that sticks out is to be known. */
static int64_t turn_heeding(struct settle *s, int number)
{
    struct most weight = most_open(s->weight, s->times);
    for (int i = 0; i < s->count; i++) {
        const struct skyline_block *block = &s->blocks[i];
        double length = block->upper - block->lower;
        const double seconds[] = {-length, block->lower, -length * (double)block->size, -block->upper};
        s->preferred[i] = (struct preferred){
            .key = -(double)most_of(&weight, block->lower, block->upper), .second = seconds[number % 4],
            .block = i};
    }
    most_close(&weight);
    int64_t peak = place(s, INT64_MAX - 1);
    heed(s);
    return peak;
}

int64_t settle_turn(struct settle *s, int64_t below, int64_t *offsets)
{
    int number = s->turn++, later = number - SETTLE_PLAIN;
    bool heeds = later >= 0 && later % 2 == 0;
    int64_t peak = heeds        ? turn_heeding(s, later / 2)
                   : later >= 0 ? turn_shaken(s, SETTLE_PLAIN + later / 2, below - 1)
                                : turn_shaken(s, number, below - 1);
    if (peak >= below) return INT64_MAX;
    memcpy(offsets, s->offsets, (size_t)s->count * sizeof *offsets);
    return peak;
}

int64_t settle_visits(const struct settle *s)
{
    return s->visits + skyline_visits(s->skyline);
}
