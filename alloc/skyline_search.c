#include "skyline_search.h"

#include <stdlib.h>
#include <string.h>

#include "alloc/range_max.h"
#include "alloc/skyline.h"
#include "base/memory.h"

/* Nodes of the tree take so much longer to look at than blocks in a row. */
#define VISIT 5

/* A block as turns order them: by the smaller key, then the smaller second one. */
struct preferred {
    double key, second;
    int32_t block;
};

/* A block that ends above the goal. */
struct culprit {
    int64_t top;
    int32_t block;
};

struct skyline_search {
    const struct table *table;
    int64_t goal;
    struct skyline *skyline;
    int64_t *weight;             /* by time: the load, and more where blocks ended above the goal */
    int turn;
    struct preferred *preferred;
    struct culprit *culprits;
    int32_t *next;               /* by time: the first from there on whose weight has not been raised */
    int32_t *rank;
    int64_t *offsets;
    int64_t visits;
};

struct skyline_search *skyline_search_open(const struct table *table, int64_t goal)
{
    size_t n = (size_t)table->count, times = (size_t)table->times;
    struct skyline_search *s = memory_new(1, sizeof *s);
    *s = (struct skyline_search){.table = table, .goal = goal, .skyline = skyline_open(table)};
    s->weight = memory_new(times, sizeof *s->weight);
    memcpy(s->weight, table->load, times * sizeof *s->weight);
    s->preferred = memory_new(n, sizeof *s->preferred);
    s->culprits = memory_new(n, sizeof *s->culprits);
    s->next = memory_new(times + 1, sizeof *s->next);
    s->rank = memory_new(n, sizeof *s->rank);
    s->offsets = memory_new(n, sizeof *s->offsets);
    return s;
}

void skyline_search_close(struct skyline_search *s)
{
    skyline_close(s->skyline);
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

static int64_t turn_place(struct skyline_search *s, int64_t ceiling)
{
    qsort(s->preferred, (size_t)s->table->count, sizeof *s->preferred, compare_preferred);
    for (int i = 0; i < s->table->count; i++) s->rank[s->preferred[i].block] = i;
    s->visits += s->table->count;
    return skyline_place(s->skyline, s->rank, ceiling, s->offsets);
}

/* The keys of a plain turn, in their order. */
enum preference { BY_LENGTH, BY_AREA, BY_LOAD, BY_SIZE };

static struct preferred preferred_by(const struct block *block, double load, enum preference preference)
{
    double length = block->upper - block->lower, size = (double)block->size;
    switch (preference) {
    case BY_LENGTH: return (struct preferred){.key = -length};
    case BY_AREA: return (struct preferred){.key = -length * size};
    case BY_LOAD: return (struct preferred){.key = -load, .second = -length};
    case BY_SIZE: return (struct preferred){.key = -size};
    }
    return (struct preferred){0};
}

static int64_t turn_plain(struct skyline_search *s, enum preference preference, int64_t ceiling)
{
    struct range_max load = range_max_open(s->table->load, s->table->times);
    for (int i = 0; i < s->table->count; i++) {
        const struct block *block = &s->table->blocks[i];
        double most = (double)range_max_of(&load, block->lower, block->upper);
        s->preferred[i] = preferred_by(block, most, preference);
        s->preferred[i].block = i;
    }
    range_max_close(&load);
    return turn_place(s, ceiling);
}

static int compare_culprits(const void *a, const void *b)
{
    const struct culprit *left = a, *right = b;
    if (left->top != right->top) return left->top > right->top ? -1 : 1;
    return left->block - right->block;
}

/* The first time from `time` on whose weight has not been raised in this turn (union-find with path
 * compression). */
static int32_t first_left(struct skyline_search *s, int32_t time)
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
#define RAISE 0.3
#define WEIGHT_MAX (INT64_MAX / 2)
static void raise_weights(struct skyline_search *s)
{
    int count = 0;
    for (int i = 0; i < s->table->count; i++) {
        int64_t top = s->offsets[i] + s->table->blocks[i].size;
        if (top > s->goal) s->culprits[count++] = (struct culprit){top, i};
    }
    qsort(s->culprits, (size_t)count, sizeof *s->culprits, compare_culprits);
    for (int32_t t = 0; t <= s->table->times; t++) s->next[t] = t;
    for (int i = 0; i < count; i++) {
        const struct block *block = &s->table->blocks[s->culprits[i].block];
        int64_t more = (int64_t)(RAISE * (double)(s->culprits[i].top - s->goal));
        for (int32_t t = first_left(s, block->lower); t < block->upper; t = first_left(s, t)) {
            if (s->weight[t] < WEIGHT_MAX) s->weight[t] += more;
            s->next[t] = t + 1;
        }
    }
}

/* No ceiling: all that sticks out is to be known. */
static int64_t turn_weighted(struct skyline_search *s, int number)
{
    struct range_max weight = range_max_open(s->weight, s->table->times);
    for (int i = 0; i < s->table->count; i++) {
        const struct block *block = &s->table->blocks[i];
        double length = block->upper - block->lower;
        const double seconds[] = {-length, block->lower, -length * (double)block->size, -block->upper};
        s->preferred[i] = (struct preferred){
            .key = -(double)range_max_of(&weight, block->lower, block->upper), .second = seconds[number % 4],
            .block = i};
    }
    range_max_close(&weight);
    int64_t peak = turn_place(s, INT64_MAX - 1);
    raise_weights(s);
    return peak;
}

int64_t skyline_search_turn(struct skyline_search *s, int64_t below, int64_t *offsets)
{
    int number = s->turn++;
    int64_t peak = number < SKYLINE_PLAIN ? turn_plain(s, (enum preference)number, below - 1)
                                          : turn_weighted(s, number - SKYLINE_PLAIN);
    if (peak >= below) return INT64_MAX;
    memcpy(offsets, s->offsets, (size_t)s->table->count * sizeof *offsets);
    return peak;
}

int64_t skyline_search_visits(const struct skyline_search *s)
{
    return VISIT * (s->visits + skyline_visits(s->skyline));
}
