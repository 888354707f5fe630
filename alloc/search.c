#include "search.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

/* The cost of a block here, in blocks that are looked at in a row. */
#define VISIT 3

/* The keys that orders compare. Lives and areas are measured in the spans' own time, or in ranks. */
enum measure { BY_LOAD, BY_AREA, BY_LIFE, BY_BIRTH, BY_RANK_AREA, BY_RANK_LIFE, BY_LOAD_LEFT, MEASURES };

/* A block as the search sees it. Times are called sections: the stretch from one time to the next. */
struct node {
    int64_t size;
    int first, last;          /* sections [first, last) */
    int *neighbours;          /* blocks alive at some common time */
    int neighbour_count;
    int64_t at;               /* offset, or -1 while unplaced */
    int64_t rest;             /* the lowest offset free of the placed blocks beside it */
    int rank;                 /* blocks of lower rank are preferred */
    int64_t measure[MEASURES];
};

struct search {
    struct node *nodes;
    int count, sections;
    int *members;             /* blocks of every section, one list after the other */
    int *member_first;        /* [sections + 1] */
    int *by_birth;            /* all blocks */
    int64_t *load;            /* per section: sizes not yet placed */
    int64_t *lowest;          /* by block: lowest_of(), when it was looked at last */
    int *witness;             /* per section: a block that could go low enough when it was looked at last */
    const enum measure *order;   /* three measures: the first that differs decides */
    int64_t capacity, excluded;
    int64_t steps, step_limit;
    int64_t visits, visit_limit;
    double deadline;
    struct change *trail;     /* what placements changed, for undoing */
    int trail_count;
    int *scratch;             /* a stack of block lists, one a level of the recursion */
    size_t scratch_used;
};

struct change {
    int block;
    int64_t rest;
};

enum outcome { SOLVED, DEAD_END, OUT_OF_STEPS };

/* Rests the block where it can. False when that leaves another no room below the capacity. */
static bool section_place(struct search *search, int which)
{
    bool room = true;
    struct node *block = &search->nodes[which];
    block->at = block->rest;
    int64_t top = block->at + block->size;
    for (int s = block->first; s < block->last; s++) search->load[s] -= block->size;
    for (int i = 0; i < block->neighbour_count; i++) {
        struct node *other = &search->nodes[block->neighbours[i]];
        if (other->at >= 0 || other->rest >= top) continue;
        *array_push(search->trail, search->trail_count) = (struct change){block->neighbours[i], other->rest};
        other->rest = top;
        room = room && top + other->size <= search->capacity;
    }
    return room;
}

/* Undoes what placements changed since the trail had that length. */
static void trail_cut(struct search *search, int trail)
{
    while (search->trail_count > trail) {
        const struct change *change = &search->trail[--search->trail_count];
        search->nodes[change->block].rest = change->rest;
    }
}

/* Parts that were solved and taken back have left their entries on the trail, too. */
static void section_unplace(struct search *search, int which, int trail)
{
    struct node *block = &search->nodes[which];
    trail_cut(search, trail);
    for (int s = block->first; s < block->last; s++) search->load[s] += block->size;
    block->at = -1;
}

/* The lowest offset that an unplaced block can still get. One whose resting place lies below the
 * floor has missed its turn there: another unplaced block beside it must be put under it. */
static int64_t lowest_of(const struct search *search, int which, int64_t floor, int after)
{
    const struct node *block = &search->nodes[which];
    if (block->rest > floor || (block->rest == floor && block->rank > after)) return block->rest;
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < block->neighbour_count; i++) {
        const struct node *other = &search->nodes[block->neighbours[i]];
        if (other->at >= 0) continue;
        int64_t top = (other->rest > floor ? other->rest : floor) + other->size;
        if (top < lowest) lowest = top;
    }
    return lowest;
}

/* True if an unplaced block of the section can go so low that all of them fit, stacked without gaps on it.
 * Most often it is the same one as before. */
static bool section_fits(struct search *search, int section)
{
    int64_t most = search->capacity - search->load[section];
    int witness = search->witness[section];
    if (search->nodes[witness].at < 0 && search->lowest[witness] <= most) return true;
    for (int i = search->member_first[section]; i < search->member_first[section + 1]; i++) {
        int which = search->members[i];
        if (search->nodes[which].at >= 0 || search->lowest[which] > most) continue;
        search->witness[section] = which;
        return true;
    }
    return false;
}

/* True if the unplaced blocks of `list` may still end below the capacity: each by itself, and in
 * every section all together, stacked without gaps on the lowest place that one of them can get. */
static bool can_fit(struct search *search, const int *list, int count, int64_t floor, int after)
{
    int begin = search->nodes[list[0]].first, end = begin;
    for (int i = 0; i < count; i++) {
        const struct node *block = &search->nodes[list[i]];
        if (block->last > end) end = block->last;
        search->lowest[list[i]] = lowest_of(search, list[i], floor, after);
        if (search->lowest[list[i]] > search->capacity - block->size) return false;
    }
    for (int s = begin; s < end; s++)
        if (search->load[s] > 0 && !section_fits(search, s)) return false;
    return true;
}

static enum outcome section_solve(struct search *search, const int *list, int count, int64_t floor,
                                  int after);

static int *scratch_take(struct search *search, int count)
{
    int *list = search->scratch + search->scratch_used;
    search->scratch_used += (size_t)count;
    return list;
}

struct ranked {
    int64_t key[3];
    int block;
};

static int compare_ranked(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] > b->key[i] ? -1 : 1;
    return a->block - b->block;
}

/* The blocks that are still to be placed where the load is highest. */
static int64_t load_left(const struct search *search, const struct node *block)
{
    int64_t load = 0;
    for (int s = block->first; s < block->last; s++)
        if (search->load[s] > load) load = search->load[s];
    return load;
}

/* Ranks the blocks of the list by the search's order, as things are now. */
static void rank_list(struct search *search, const int *list, int count)
{
    struct ranked *ranked = memory_new((size_t)count, sizeof *ranked);
    for (int i = 0; i < count; i++) {
        const struct node *block = &search->nodes[list[i]];
        ranked[i].block = list[i];
        for (int k = 0; k < 3; k++) ranked[i].key[k] = block->measure[search->order[k]];
        if (search->order[0] == BY_LOAD_LEFT) ranked[i].key[0] = load_left(search, block);
    }
    qsort(ranked, (size_t)count, sizeof *ranked, compare_ranked);
    for (int i = 0; i < count; i++) search->nodes[ranked[i].block].rank = i;
    free(ranked);
}

/* Solves a part that has come apart from the rest, with its blocks ranked by the load that is left. Among
 * blocks of one offset the order begins again. */
static enum outcome section_solve_anew(struct search *search, const int *list, int count, int64_t floor)
{
    int *before = memory_new((size_t)count, sizeof *before);
    for (int i = 0; i < count; i++) before[i] = search->nodes[list[i]].rank;
    rank_list(search, list, count);
    enum outcome outcome = section_solve(search, list, count, floor, -1);
    for (int i = 0; i < count; i++) search->nodes[list[i]].rank = before[i];
    free(before);
    return outcome;
}

/* Splits the unplaced blocks of `list`, sorted by birth, where none is alive across, and solves
 * the parts one by one: they cannot disturb each other. */
static enum outcome section_solve_parts(struct search *search, const int *list, int count, int64_t floor,
                                        int after)
{
    size_t mark = search->scratch_used;
    int *open = scratch_take(search, count);
    int left = 0;
    for (int i = 0; i < count; i++)
        if (search->nodes[list[i]].at < 0) open[left++] = list[i];
    search->scratch_used = mark + (size_t)left;

    enum outcome outcome = SOLVED;
    int begin = 0;
    while (begin < left && outcome == SOLVED) {
        int end = begin + 1, reach = search->nodes[open[begin]].last;
        for (; end < left && search->nodes[open[end]].first < reach; end++)
            if (search->nodes[open[end]].last > reach) reach = search->nodes[open[end]].last;
        bool apart = end - begin > 1 && end - begin < left;
        outcome = search->order[0] == BY_LOAD_LEFT && apart
                      ? section_solve_anew(search, open + begin, end - begin, floor)
                      : section_solve(search, open + begin, end - begin, floor, after);
        begin = end;
    }
    if (outcome != SOLVED)
        for (int i = 0; i < left; i++) {
            struct node *block = &search->nodes[open[i]];
            if (block->at < 0) continue;
            /* A part solved before the dead end: taken back. Its neighbours outside the list are
             * all placed, those inside get their resting places anew below. */
            for (int s = block->first; s < block->last; s++) search->load[s] += block->size;
            block->at = -1;
        }
    search->scratch_used = mark;
    return outcome;
}

/* Brings the block that rests lowest, of several the preferred one, to the front of the list. Most often the
 * first is all that is asked for. */
static int lowest_first(const struct search *search, int *list, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        const struct node *block = &search->nodes[list[i]], *least = &search->nodes[list[best]];
        if (block->rest < least->rest || (block->rest == least->rest && block->rank < least->rank)) best = i;
    }
    int lowest = list[best];
    list[best] = list[0];
    list[0] = lowest;
    return lowest;
}

/* Looking ahead takes most of the time, so it is done occasionally. */
#define LARGE 1200
#define LARGE_STEPS 16

/* Tries every block that can be the next lowest one. `after` is the rank of the block placed at `floor`
 * last: among blocks of one offset the order is that of their ranks. */
static enum outcome section_solve(struct search *search, const int *list, int count, int64_t floor, int after)
{
    search->visits += VISIT * (count + (int64_t)search->count * search->count / 512);
    if (++search->steps > search->step_limit || search->visits > search->visit_limit) return OUT_OF_STEPS;
    if ((search->steps & 63) == 0 && clock_seconds() >= search->deadline) return OUT_OF_STEPS;
    bool look = count < LARGE || search->steps % LARGE_STEPS == 0;
    if (look && !can_fit(search, list, count, floor, after)) return DEAD_END;

    /* No block may be left out below which it would fit whole: it could be pushed down later. */
    int64_t ceiling = INT64_MAX;
    for (int i = 0; i < count; i++) {
        const struct node *block = &search->nodes[list[i]];
        if (block->rest + block->size < ceiling) ceiling = block->rest + block->size;
    }

    size_t mark = search->scratch_used;
    int *tried = scratch_take(search, count);
    int tried_count = 0;
    for (int i = 0; i < count; i++) {
        const struct node *block = &search->nodes[list[i]];
        bool next = block->rest > floor || (block->rest == floor && block->rank > after);
        if (next && block->rest < ceiling) tried[tried_count++] = list[i];
    }
    search->scratch_used = mark + (size_t)tried_count;

    enum outcome outcome = DEAD_END;
    for (int i = 0; i < tried_count && outcome == DEAD_END; i++) {
        int which = lowest_first(search, tried + i, tried_count - i), trail = search->trail_count;
        const struct node *block = &search->nodes[which];
        bool room = section_place(search, which);
        bool alone = search->trail_count == trail;
        for (int j = 0; alone && j < block->neighbour_count; j++)
            alone = search->nodes[block->neighbours[j]].at >= 0;
        if (room) outcome = section_solve_parts(search, list, count, block->at, block->rank);
        if (outcome != SOLVED) {
            section_unplace(search, which, trail);
            if (alone) break;      /* it stood in nobody's way: without it the rest is no easier */
        }
    }
    search->scratch_used = mark;
    return outcome;
}

/* Each solves tables that the others do not: the second and the last those of models, the others
 * MiniMalloc's. With BY_LOAD_LEFT, parts that come apart are ranked anew. */
static const enum measure orders[][3] = {
    {BY_LOAD_LEFT, BY_LIFE, BY_AREA},
    {BY_LIFE, BY_AREA, BY_LOAD},
    {BY_RANK_AREA, BY_LOAD, BY_LIFE},
    {BY_LOAD, BY_RANK_LIFE, BY_AREA},
    {BY_LOAD, BY_BIRTH, BY_AREA},
};
#define ORDERS (int)(sizeof orders / sizeof *orders)

static int64_t area_of(int64_t life, int64_t size)
{
    int64_t area;
    return __builtin_mul_overflow(life, size, &area) ? INT64_MAX : area;
}

static void nodes_make(struct search *search, const struct table *table)
{
    for (int i = 0; i < search->count; i++) {
        const struct block *block = &table->blocks[i];
        struct node *node = &search->nodes[i];
        *node = (struct node){.size = block->size, .first = block->lower, .last = block->upper, .at = -1};
        node->measure[BY_LOAD] = load_left(search, node);
        node->measure[BY_AREA] = area_of(block->life, node->size);
        node->measure[BY_LIFE] = block->life;
        node->measure[BY_BIRTH] = -node->first;
        node->measure[BY_RANK_LIFE] = node->last - node->first;
        node->measure[BY_RANK_AREA] = area_of(node->measure[BY_RANK_LIFE], node->size);
    }
    for (int i = 0; i < search->count; i++)
        for (int j = 0; j < search->count; j++) {
            struct node *a = &search->nodes[i];
            const struct node *b = &search->nodes[j];
            if (i != j && a->first < b->last && b->first < a->last)
                *array_push(a->neighbours, a->neighbour_count) = j;
        }
}

static void members_make(struct search *search)
{
    search->member_first = memory_new((size_t)search->sections + 2, sizeof(int));
    for (int i = 0; i < search->count; i++)
        for (int s = search->nodes[i].first; s < search->nodes[i].last; s++) search->member_first[s + 1]++;
    for (int s = 0; s < search->sections; s++) search->member_first[s + 1] += search->member_first[s];
    search->members = memory_new((size_t)search->member_first[search->sections], sizeof(int));
    int *fill = memory_new((size_t)search->sections + 1, sizeof(int)), born = 0;
    for (int i = 0; i < search->count; i++)
        for (int s = search->nodes[i].first; s < search->nodes[i].last; s++)
            search->members[search->member_first[s] + fill[s]++] = i;
    for (int s = 0; s < search->sections; s++)
        for (int i = search->member_first[s]; i < search->member_first[s + 1]; i++) {
            search->witness[s] = search->members[i];
            if (search->nodes[search->members[i]].first == s) search->by_birth[born++] = search->members[i];
        }
    free(fill);
}

struct search *search_open(const struct table *table)
{
    struct search *search = memory_new(1, sizeof *search);
    size_t n = (size_t)table->count, sections = (size_t)table->times + 1;
    *search = (struct search){.count = table->count, .sections = table->times, .excluded = -1};
    search->nodes = memory_new(n, sizeof *search->nodes);
    search->by_birth = memory_new(n, sizeof *search->by_birth);
    search->lowest = memory_new(n, sizeof *search->lowest);
    search->witness = memory_new(sections, sizeof *search->witness);
    search->load = memory_new(sections, sizeof *search->load);
    memcpy(search->load, table->load, (size_t)table->times * sizeof *search->load);
    /* Each level of the recursion keeps two lists of at most `count` blocks. */
    search->scratch = memory_new(2 * n * (n + 2), sizeof *search->scratch);
    nodes_make(search, table);
    members_make(search);
    return search;
}

void search_close(struct search *search)
{
    if (!search) return;
    for (int i = 0; i < search->count; i++) free(search->nodes[i].neighbours);
    free(search->nodes);
    free(search->by_birth);
    free(search->members);
    free(search->member_first);
    free(search->load);
    free(search->lowest);
    free(search->witness);
    free(search->trail);
    free(search->scratch);
    free(search);
}

static enum outcome search_once(struct search *search, const enum measure *order, int64_t step_limit)
{
    search->steps = 0;
    search->step_limit = step_limit;
    search->scratch_used = 0;
    search->order = order;
    rank_list(search, search->by_birth, search->count);
    enum outcome outcome = section_solve_parts(search, search->by_birth, search->count, 0, -1);
    if (outcome != SOLVED) trail_cut(search, 0);
    return outcome;
}

/* Sets the offsets, and takes all blocks out again. */
static void take_offsets(struct search *search, int64_t *offsets)
{
    for (int i = 0; i < search->count; i++) {
        struct node *block = &search->nodes[i];
        offsets[i] = block->at;
        for (int s = block->first; s < block->last; s++) search->load[s] += block->size;
        block->at = -1;
        block->rest = 0;
    }
    search->trail_count = 0;
}

/* Large tables are either solved without backtracking or hardly ever. */
#define LARGE_COUNT 500
#define FIRST_STEPS 2000

static bool search_exhausted(const struct search *search)
{
    return search->visits > search->visit_limit || clock_seconds() >= search->deadline;
}

bool search_place(struct search *search, const struct search_limits *limits, int64_t *offsets)
{
    enum outcome outcome = OUT_OF_STEPS;
    int64_t steps = search->count > LARGE_COUNT ? search->count + search->count / 16 : FIRST_STEPS;
    if (limits->capacity <= search->excluded) return false;
    for (int s = 0; s < search->sections; s++)
        if (search->load[s] > limits->capacity) return false;
    search->capacity = limits->capacity;
    search->visit_limit = search->visits + limits->visits;
    search->deadline = limits->deadline;
    for (int turn = 0; outcome == OUT_OF_STEPS && !search_exhausted(search); turn++) {
        outcome = search_once(search, orders[turn % ORDERS], steps);
        if (turn % ORDERS == ORDERS - 1) steps *= 4;
    }
    if (outcome == SOLVED) take_offsets(search, offsets);
    if (outcome == DEAD_END) search->excluded = limits->capacity;
    return outcome == SOLVED;
}

int64_t search_excluded(const struct search *search)
{
    return search->excluded;
}

int64_t search_visits(const struct search *search)
{
    return search->visits;
}
