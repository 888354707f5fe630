#include "skyline.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* Blocks as points (lower, upper), halved along one and the other (Bentley 1975: k-d trees): which of the
 * blocks within a stretch of time is preferred is found by looking at few nodes. */
struct node {
    int32_t lower_min, lower_max, upper_min, upper_max;   /* of its blocks */
    int32_t best;                                               /* the lowest rank of those left; INT32_MAX */
    int32_t best_block;
};

#define LEAF 8

/* A stretch of time at one height. */
struct stretch {
    int32_t begin, end;
    int64_t height;
    int before, after;           /* neighbours; -1 at the ends */
    int heap_at;                 /* where the heap has it; -1: it is gone */
};

struct skyline {
    const struct block *blocks;
    int count;
    int32_t times;
    int32_t *order;              /* blocks as the nodes have them: those of one node lie together */
    int32_t *leaf_of;            /* by block */
    struct node *nodes;          /* the root is 1, those below 2 k and 2 k + 1 */
    int leaves;                  /* a power of two */
    const int32_t *rank;
    bool *placed;
    struct stretch *stretches;
    int stretch_count;
    int *heap;                   /* stretches, the lowest at the root; of equal ones the earliest */
    int heap_count;
    int64_t visits;
};

/* Where in `order` the blocks of a leaf begin. */
static int leaf_begin(const struct skyline *s, int64_t index)
{
    return (int)(index * s->count / s->leaves);
}

static int64_t split_key(const struct skyline *s, int32_t block, bool by_upper)
{
    return by_upper ? s->blocks[block].upper : s->blocks[block].lower;
}

/* Puts the `middle`th of order[begin .. end) in its place, none before it larger and none after it smaller
 * (Hoare 1961: FIND). */
static void node_divide(struct skyline *s, int begin, int end, int middle, bool by_upper)
{
    while (end - begin > 1) {
        int32_t pivot = s->order[begin + (end - begin) / 2];
        int64_t key = split_key(s, pivot, by_upper);
        int i = begin, j = end - 1;
        while (i <= j) {
            while (split_key(s, s->order[i], by_upper) < key) i++;
            while (split_key(s, s->order[j], by_upper) > key) j--;
            if (i > j) break;
            int32_t other = s->order[i];
            s->order[i++] = s->order[j];
            s->order[j--] = other;
        }
        if (middle <= j) end = j + 1;
        else if (middle >= i) begin = i;
        else return;
    }
}

static void node_make(struct skyline *s, int number, int64_t first, int64_t width, bool by_upper)
{
    struct node *node = &s->nodes[number];
    int begin = leaf_begin(s, first), end = leaf_begin(s, first + width);
    *node = (struct node){INT32_MAX, INT32_MIN, INT32_MAX, INT32_MIN, INT32_MAX, -1};
    for (int i = begin; i < end; i++) {
        const struct block *block = &s->blocks[s->order[i]];
        if (block->lower < node->lower_min) node->lower_min = block->lower;
        if (block->lower > node->lower_max) node->lower_max = block->lower;
        if (block->upper < node->upper_min) node->upper_min = block->upper;
        if (block->upper > node->upper_max) node->upper_max = block->upper;
    }
    if (width == 1) {
        for (int i = begin; i < end; i++) s->leaf_of[s->order[i]] = (int32_t)first;
        return;
    }
    node_divide(s, begin, end, leaf_begin(s, first + width / 2), by_upper);
    node_make(s, 2 * number, first, width / 2, !by_upper);
    node_make(s, 2 * number + 1, first + width / 2, width / 2, !by_upper);
}

struct skyline *skyline_open(const struct table *table)
{
    struct skyline *s = memory_new(1, sizeof *s);
    size_t n = (size_t)table->count;
    *s = (struct skyline){.blocks = table->blocks, .count = table->count, .times = table->times, .leaves = 1};
    while (s->leaves * LEAF < s->count) s->leaves *= 2;
    s->order = memory_new(n, sizeof *s->order);
    s->leaf_of = memory_new(n, sizeof *s->leaf_of);
    s->nodes = memory_new(2 * (size_t)s->leaves, sizeof *s->nodes);
    s->placed = memory_new(n, sizeof *s->placed);
    s->stretches = memory_new(2 * n + 1, sizeof *s->stretches);     /* a block adds two at most */
    s->heap = memory_new(2 * n + 1, sizeof *s->heap);
    for (int i = 0; i < s->count; i++) s->order[i] = i;
    node_make(s, 1, 0, s->leaves, false);
    return s;
}

void skyline_close(struct skyline *s)
{
    if (!s) return;
    free(s->order);
    free(s->leaf_of);
    free(s->nodes);
    free(s->placed);
    free(s->stretches);
    free(s->heap);
    free(s);
}

static void leaf_refresh(struct skyline *s, int leaf)
{
    struct node *node = &s->nodes[s->leaves + leaf];
    node->best = INT32_MAX;
    node->best_block = -1;
    for (int i = leaf_begin(s, leaf); i < leaf_begin(s, leaf + 1); i++) {
        int32_t block = s->order[i];
        if (s->placed[block] || s->rank[block] >= node->best) continue;
        node->best = s->rank[block];
        node->best_block = block;
    }
}

static void node_refresh(struct skyline *s, int number)
{
    const struct node *left = &s->nodes[2 * number], *right = &s->nodes[2 * number + 1];
    const struct node *better = left->best <= right->best ? left : right;
    s->nodes[number].best = better->best;
    s->nodes[number].best_block = better->best_block;
}

static void block_gone(struct skyline *s, int32_t block)
{
    int leaf = s->leaf_of[block];
    s->placed[block] = true;
    leaf_refresh(s, leaf);
    for (int number = (s->leaves + leaf) / 2; number >= 1; number /= 2) node_refresh(s, number);
}

/* The query of a valley: the preferred block that lives within [begin, end). */
struct query {
    int32_t begin, end;
    int32_t best, block;         /* so far: its rank and the block; INT32_MAX and -1: none */
};

static void find_within(struct skyline *s, int number, struct query *query)
{
    const struct node *node = &s->nodes[number];
    s->visits++;
    if (node->best >= query->best) return;
    if (node->lower_max < query->begin || node->upper_min > query->end) return;
    if (node->lower_min >= query->begin && node->upper_max <= query->end) {
        query->best = node->best;
        query->block = node->best_block;
        return;
    }
    if (number < s->leaves) {
        int near = s->nodes[2 * number].best <= s->nodes[2 * number + 1].best ? 2 * number : 2 * number + 1;
        find_within(s, near, query);
        find_within(s, near ^ 1, query);
        return;
    }
    int leaf = number - s->leaves;
    for (int i = leaf_begin(s, leaf); i < leaf_begin(s, leaf + 1); i++) {
        int32_t block = s->order[i];
        s->visits++;
        if (s->placed[block] || s->rank[block] >= query->best) continue;
        if (s->blocks[block].lower < query->begin || s->blocks[block].upper > query->end) continue;
        query->best = s->rank[block];
        query->block = block;
    }
}

/* The heap of stretches. */

static bool lower_than(const struct skyline *s, int a, int b)
{
    const struct stretch *left = &s->stretches[a], *right = &s->stretches[b];
    return left->height != right->height ? left->height < right->height : left->begin < right->begin;
}

static void heap_put(struct skyline *s, int at, int stretch)
{
    s->heap[at] = stretch;
    s->stretches[stretch].heap_at = at;
}

static void heap_up(struct skyline *s, int at)
{
    int stretch = s->heap[at];
    for (; at > 0 && lower_than(s, stretch, s->heap[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(s, at, s->heap[(at - 1) / 2]);
    heap_put(s, at, stretch);
}

static void heap_down(struct skyline *s, int at)
{
    int stretch = s->heap[at];
    for (int below = 2 * at + 1; below < s->heap_count; below = 2 * at + 1) {
        if (below + 1 < s->heap_count && lower_than(s, s->heap[below + 1], s->heap[below])) below++;
        if (!lower_than(s, s->heap[below], stretch)) break;
        heap_put(s, at, s->heap[below]);
        at = below;
    }
    heap_put(s, at, stretch);
}

static void heap_add(struct skyline *s, int stretch)
{
    heap_put(s, s->heap_count++, stretch);
    heap_up(s, s->heap_count - 1);
}

static void heap_remove(struct skyline *s, int stretch)
{
    int at = s->stretches[stretch].heap_at, last = s->heap[--s->heap_count];
    s->stretches[stretch].heap_at = -1;
    if (last == stretch) return;
    heap_put(s, at, last);
    heap_up(s, at);
    heap_down(s, s->stretches[last].heap_at);
}

/* Stretches. */

static int stretch_new(struct skyline *s, int32_t begin, int32_t end, int64_t height)
{
    int index = s->stretch_count++;
    s->stretches[index] = (struct stretch){begin, end, height, -1, -1, -1};
    return index;
}

static void link_up(struct skyline *s, int before, int after)
{
    if (before >= 0) s->stretches[before].after = after;
    if (after >= 0) s->stretches[after].before = before;
}

/* Takes the stretch's neighbour after it into it. */
static void absorb_next(struct skyline *s, int stretch)
{
    int next = s->stretches[stretch].after;
    s->stretches[stretch].end = s->stretches[next].end;
    heap_remove(s, next);
    link_up(s, stretch, s->stretches[next].after);
    if (s->stretches[next].after < 0) s->stretches[stretch].after = -1;
}

/* A stretch has another height now, and is one with neighbours of the same. */
static void stretch_merge(struct skyline *s, int stretch)
{
    int after = s->stretches[stretch].after, before = s->stretches[stretch].before;
    int64_t height = s->stretches[stretch].height;
    if (after >= 0 && s->stretches[after].height == height) absorb_next(s, stretch);
    if (before >= 0 && s->stretches[before].height == height) {
        absorb_next(s, before);
        return;
    }
    heap_up(s, s->stretches[stretch].heap_at);
    heap_down(s, s->stretches[stretch].heap_at);
}

/* Raises [lower, upper), which lies within the stretch, to `height`. */
static void stretch_raise(struct skyline *s, int stretch, int32_t lower, int32_t upper, int64_t height)
{
    struct stretch *at = &s->stretches[stretch];
    if (at->begin < lower) {
        int left = stretch_new(s, at->begin, lower, at->height);
        link_up(s, at->before, left);
        link_up(s, left, stretch);
        at->begin = lower;
        heap_add(s, left);
    }
    if (upper < at->end) {
        int right = stretch_new(s, upper, at->end, at->height);
        link_up(s, right, at->after);
        link_up(s, stretch, right);
        at->end = upper;
        heap_add(s, right);
    }
    at->height = height;
    stretch_merge(s, stretch);
}

/* Nothing fits any more: up to the lower side. False: it has none, and all is placed. */
static bool stretch_fill(struct skyline *s, int stretch)
{
    const struct stretch *at = &s->stretches[stretch];
    int64_t before = at->before >= 0 ? s->stretches[at->before].height : INT64_MAX;
    int64_t after = at->after >= 0 ? s->stretches[at->after].height : INT64_MAX;
    int64_t height = before < after ? before : after;
    if (height == INT64_MAX) return false;
    s->stretches[stretch].height = height;
    stretch_merge(s, stretch);
    return true;
}

static void skyline_start(struct skyline *s, const int32_t *rank)
{
    s->rank = rank;
    s->visits += s->count;
    memset(s->placed, 0, (size_t)s->count * sizeof *s->placed);
    for (int leaf = 0; leaf < s->leaves; leaf++) leaf_refresh(s, leaf);
    for (int number = s->leaves - 1; number >= 1; number--) node_refresh(s, number);
    s->stretch_count = s->heap_count = 0;
    heap_add(s, stretch_new(s, 0, s->times, 0));
}

int64_t skyline_place(struct skyline *s, const int32_t *rank, int64_t ceiling, int64_t *offsets)
{
    int64_t peak = 0;
    skyline_start(s, rank);
    for (bool more = s->count > 0; more && peak <= ceiling;) {
        int stretch = s->heap[0];
        const struct stretch *valley = &s->stretches[stretch];
        struct query query = {valley->begin, valley->end, INT32_MAX, -1};
        find_within(s, 1, &query);
        int32_t block = query.block;
        if (block < 0) {
            more = stretch_fill(s, stretch);
            continue;
        }
        offsets[block] = valley->height;
        int64_t top = valley->height + s->blocks[block].size;
        if (top > peak) peak = top;
        block_gone(s, block);
        stretch_raise(s, stretch, s->blocks[block].lower, s->blocks[block].upper, top);
    }
    return peak <= ceiling ? peak : INT64_MAX;
}

int64_t skyline_visits(const struct skyline *s)
{
    return s->visits;
}
