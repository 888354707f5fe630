#include "search.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"

/* A block as the search sees it: in units of the alignment, its life in sections. A section is a
 * stretch of time in which nothing is born or dies. */
struct block {
    int64_t size;
    int first, last;          /* sections [first, last) */
    int *beside;              /* blocks alive at some common time */
    int beside_count;
    int64_t at;               /* offset, or -1 while unplaced */
    int64_t rest;             /* the lowest offset free of the placed blocks beside it */
};

struct search {
    struct block *blocks;     /* in the order in which they are preferred */
    int count, sections;
    int *members;             /* blocks of every section, one list after the other */
    int *member_first;        /* [sections + 1] */
    int64_t *load;            /* per section: sizes not yet placed */
    int64_t *lowest;          /* per section: can_fit's own */
    int64_t capacity;
    int64_t steps, step_limit;
    struct timespec end;
    struct change *trail;     /* what placements changed, for undoing */
    int trail_count;
    int *scratch;             /* a stack of block lists, one a level of the recursion */
    size_t scratch_used, scratch_size;
};

struct change {
    int block;
    int64_t rest;
};

enum outcome { SOLVED, DEAD_END, OUT_OF_STEPS };

static bool time_is_up(const struct search *search)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > search->end.tv_sec ||
           (now.tv_sec == search->end.tv_sec && now.tv_nsec >= search->end.tv_nsec);
}

/* Rests the block where it can. False when that leaves another no room below the capacity. */
static bool place(struct search *search, int which)
{
    bool room = true;
    struct block *block = &search->blocks[which];
    block->at = block->rest;
    int64_t top = block->at + block->size;
    for (int s = block->first; s < block->last; s++) search->load[s] -= block->size;
    for (int i = 0; i < block->beside_count; i++) {
        struct block *other = &search->blocks[block->beside[i]];
        if (other->at >= 0 || other->rest >= top) continue;
        *array_push(search->trail, search->trail_count) = (struct change){block->beside[i], other->rest};
        other->rest = top;
        room = room && top + other->size <= search->capacity;
    }
    return room;
}

static void unplace(struct search *search, int which, int trail)
{
    struct block *block = &search->blocks[which];
    while (search->trail_count > trail) {
        struct change *change = &search->trail[--search->trail_count];
        search->blocks[change->block].rest = change->rest;
    }
    for (int s = block->first; s < block->last; s++) search->load[s] += block->size;
    block->at = -1;
}

/* The lowest offset that an unplaced block can still get. One whose resting place lies below the
 * floor has missed its turn there: another unplaced block beside it must be put under it. */
static int64_t lowest_of(const struct search *search, int which, int64_t floor, int after)
{
    const struct block *block = &search->blocks[which];
    if (block->rest > floor || (block->rest == floor && which > after)) return block->rest;
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < block->beside_count; i++) {
        const struct block *other = &search->blocks[block->beside[i]];
        if (other->at >= 0) continue;
        int64_t top = (other->rest > floor ? other->rest : floor) + other->size;
        if (top < lowest) lowest = top;
    }
    return lowest;
}

/* Whether the unplaced blocks of `list` may still end below the capacity: each by itself, and in
 * every section all together, stacked without gaps on the lowest place that one of them can get. */
static bool can_fit(struct search *search, const int *list, int count, int64_t floor, int after)
{
    int begin = search->blocks[list[0]].first, end = begin;
    for (int i = 0; i < count; i++)
        if (search->blocks[list[i]].last > end) end = search->blocks[list[i]].last;
    for (int s = begin; s < end; s++) search->lowest[s] = INT64_MAX;
    for (int i = 0; i < count; i++) {
        const struct block *block = &search->blocks[list[i]];
        int64_t lowest = lowest_of(search, list[i], floor, after);
        if (lowest > search->capacity - block->size) return false;
        for (int s = block->first; s < block->last; s++)
            if (lowest < search->lowest[s]) search->lowest[s] = lowest;
    }
    for (int s = begin; s < end; s++)
        if (search->load[s] > 0 && search->lowest[s] + search->load[s] > search->capacity) return false;
    return true;
}

static enum outcome solve(struct search *search, const int *list, int count, int64_t floor, int after);

static int *scratch_take(struct search *search, int count)
{
    int *list = search->scratch + search->scratch_used;
    search->scratch_used += (size_t)count;
    return list;
}

/* Splits the unplaced blocks of `list`, sorted by birth, where none is alive across, and solves
 * the parts one by one: they cannot disturb each other. */
static enum outcome solve_parts(struct search *search, const int *list, int count, int64_t floor, int after)
{
    size_t mark = search->scratch_used;
    int *open = scratch_take(search, count);
    int left = 0;
    for (int i = 0; i < count; i++)
        if (search->blocks[list[i]].at < 0) open[left++] = list[i];
    search->scratch_used = mark + (size_t)left;

    enum outcome outcome = SOLVED;
    int begin = 0;
    while (begin < left && outcome == SOLVED) {
        int end = begin + 1, reach = search->blocks[open[begin]].last;
        for (; end < left && search->blocks[open[end]].first < reach; end++)
            if (search->blocks[open[end]].last > reach) reach = search->blocks[open[end]].last;
        outcome = solve(search, open + begin, end - begin, floor, after);
        begin = end;
    }
    if (outcome != SOLVED)
        for (int i = 0; i < left; i++) {
            struct block *block = &search->blocks[open[i]];
            if (block->at < 0) continue;
            /* A part solved before the dead end: taken back. Its neighbours outside the list are
             * all placed, those inside get their resting places anew below. */
            for (int s = block->first; s < block->last; s++) search->load[s] += block->size;
            block->at = -1;
        }
    search->scratch_used = mark;
    return outcome;
}

/* Undoing a placement restores resting places from the trail; parts that were solved and taken
 * back leave their entries there too, so the trail is cut to where the level began. */
static void trail_cut(struct search *search, int trail)
{
    while (search->trail_count > trail) {
        struct change *change = &search->trail[--search->trail_count];
        search->blocks[change->block].rest = change->rest;
    }
}

/* Tries every block that can be the next lowest one. `after` is the block placed at `floor` last:
 * among blocks of one offset the order is that of their numbers. */
static enum outcome solve(struct search *search, const int *list, int count, int64_t floor, int after)
{
    if (++search->steps > search->step_limit) return OUT_OF_STEPS;
    if ((search->steps & 1023) == 0 && time_is_up(search)) return OUT_OF_STEPS;
    if (!can_fit(search, list, count, floor, after)) return DEAD_END;

    /* No block may be left out below which it would fit whole: it could be pushed down later. */
    int64_t ceiling = INT64_MAX;
    for (int i = 0; i < count; i++) {
        const struct block *block = &search->blocks[list[i]];
        if (block->rest + block->size < ceiling) ceiling = block->rest + block->size;
    }

    size_t mark = search->scratch_used;
    int *tried = scratch_take(search, count);
    int tried_count = 0;
    for (int i = 0; i < count; i++) {
        const struct block *block = &search->blocks[list[i]];
        bool next = block->rest > floor || (block->rest == floor && list[i] > after);
        if (next && block->rest < ceiling) {
            int j = tried_count++;
            for (; j > 0; j--) {
                const struct block *before = &search->blocks[tried[j - 1]];
                if (before->rest < block->rest || (before->rest == block->rest && tried[j - 1] < list[i])) break;
                tried[j] = tried[j - 1];
            }
            tried[j] = list[i];
        }
    }
    search->scratch_used = mark + (size_t)tried_count;

    enum outcome outcome = DEAD_END;
    for (int i = 0; i < tried_count && outcome == DEAD_END; i++) {
        int which = tried[i], trail = search->trail_count;
        const struct block *block = &search->blocks[which];
        bool room = place(search, which);
        bool alone = search->trail_count == trail;
        for (int j = 0; alone && j < block->beside_count; j++)
            alone = search->blocks[block->beside[j]].at >= 0;
        if (room) outcome = solve_parts(search, list, count, block->at, which);
        if (outcome != SOLVED) {
            trail_cut(search, trail);
            unplace(search, which, trail);
            if (alone) break;      /* it stood in nobody's way: without it the rest is no easier */
        }
    }
    search->scratch_used = mark;
    return outcome;
}

/* Preferences: what an order looks at first, second, third. */
enum measure { BY_LOAD, BY_AREA, BY_LIFE, MEASURES };
static const enum measure orders[][3] = {
    {BY_LIFE, BY_AREA, BY_LOAD},
    {BY_LOAD, BY_AREA, BY_LIFE},
    {BY_LOAD, BY_LIFE, BY_AREA},
    {BY_AREA, BY_LOAD, BY_LIFE},
};
#define ORDERS (int)(sizeof orders / sizeof *orders)

struct candidate {
    int64_t measure[MEASURES];
    int64_t key[3];
    int span;
};

static int candidate_compare(const void *left, const void *right)
{
    const struct candidate *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] > b->key[i] ? -1 : 1;
    return a->span - b->span;
}

static int time_compare(const void *left, const void *right)
{
    int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;
    return (a > b) - (a < b);
}

static int section_of(const int64_t *times, int count, int64_t time)
{
    int low = 0, high = count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (times[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* What does not change from order to order. */
struct problem {
    const struct span *spans;
    int count, sections;
    int *first, *last;
    int64_t *size;
    int64_t *load;
    struct candidate *candidates;
};

static void problem_make(struct problem *problem, const struct span *spans, int count, int64_t alignment)
{
    int64_t *times = memory_new((size_t)count * 2, sizeof *times);
    *problem = (struct problem){.spans = spans, .count = count};
    for (int i = 0; i < count; i++) {
        times[2 * i] = spans[i].lower;
        times[2 * i + 1] = spans[i].upper;
    }
    qsort(times, (size_t)count * 2, sizeof *times, time_compare);
    int distinct = 0;
    for (int i = 0; i < 2 * count; i++)
        if (i == 0 || times[i] != times[distinct - 1]) times[distinct++] = times[i];

    problem->sections = distinct;
    problem->first = memory_new((size_t)count, sizeof(int));
    problem->last = memory_new((size_t)count, sizeof(int));
    problem->size = memory_new((size_t)count, sizeof(int64_t));
    problem->load = memory_new((size_t)distinct + 1, sizeof(int64_t));
    problem->candidates = memory_new((size_t)count, sizeof *problem->candidates);
    for (int i = 0; i < count; i++) {
        problem->first[i] = section_of(times, distinct, spans[i].lower);
        problem->last[i] = section_of(times, distinct, spans[i].upper);
        problem->size[i] = (spans[i].size + alignment - 1) / alignment;
        for (int s = problem->first[i]; s < problem->last[i]; s++) problem->load[s] += problem->size[i];
    }
    for (int i = 0; i < count; i++) {
        struct candidate *candidate = &problem->candidates[i];
        int64_t life = spans[i].upper - spans[i].lower, load = 0;
        for (int s = problem->first[i]; s < problem->last[i]; s++)
            if (problem->load[s] > load) load = problem->load[s];
        candidate->span = i;
        candidate->measure[BY_LOAD] = load;
        candidate->measure[BY_AREA] = life * problem->size[i];
        candidate->measure[BY_LIFE] = life;
    }
    free(times);
}

static void problem_free(struct problem *problem)
{
    free(problem->first);
    free(problem->last);
    free(problem->size);
    free(problem->load);
    free(problem->candidates);
}

static void members_make(struct search *search)
{
    search->member_first = memory_new((size_t)search->sections + 2, sizeof(int));
    for (int i = 0; i < search->count; i++)
        for (int s = search->blocks[i].first; s < search->blocks[i].last; s++) search->member_first[s + 1]++;
    for (int s = 0; s < search->sections; s++) search->member_first[s + 1] += search->member_first[s];
    search->members = memory_new((size_t)search->member_first[search->sections], sizeof(int));
    int *fill = memory_new((size_t)search->sections + 1, sizeof(int));
    for (int i = 0; i < search->count; i++)
        for (int s = search->blocks[i].first; s < search->blocks[i].last; s++)
            search->members[search->member_first[s] + fill[s]++] = i;
    free(fill);
}

static void search_make(struct search *search, struct problem *problem, const enum measure order[3],
                        int64_t capacity)
{
    int count = problem->count;
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 3; k++)
            problem->candidates[i].key[k] = problem->candidates[i].measure[order[k]];
    qsort(problem->candidates, (size_t)count, sizeof *problem->candidates, candidate_compare);

    *search = (struct search){.count = count, .sections = problem->sections, .capacity = capacity};
    search->blocks = memory_new((size_t)count, sizeof *search->blocks);
    search->load = memory_new((size_t)problem->sections + 1, sizeof(int64_t));
    memcpy(search->load, problem->load, ((size_t)problem->sections + 1) * sizeof(int64_t));
    search->lowest = memory_new((size_t)problem->sections + 1, sizeof(int64_t));
    for (int i = 0; i < count; i++) {
        int span = problem->candidates[i].span;
        search->blocks[i] = (struct block){.size = problem->size[span], .first = problem->first[span],
                                           .last = problem->last[span], .at = -1};
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            struct block *a = &search->blocks[i];
            const struct block *b = &search->blocks[j];
            if (i != j && a->first < b->last && b->first < a->last)
                *array_push(a->beside, a->beside_count) = j;
        }
    members_make(search);
    /* Each level of the recursion keeps two lists of at most `count` blocks. */
    search->scratch_size = (size_t)count * ((size_t)count + 2) * 2;
    search->scratch = memory_new(search->scratch_size, sizeof(int));
}

static void search_free(struct search *search)
{
    for (int i = 0; i < search->count; i++) free(search->blocks[i].beside);
    free(search->blocks);
    free(search->members);
    free(search->member_first);
    free(search->load);
    free(search->lowest);
    free(search->trail);
    free(search->scratch);
}

/* Numbers of all blocks by birth, as solve_parts wants them. */
static int *by_birth(const struct search *search)
{
    int *list = memory_new((size_t)search->count, sizeof *list);
    int filled = 0;
    for (int s = 0; s < search->sections; s++)
        for (int i = search->member_first[s]; i < search->member_first[s + 1]; i++)
            if (search->blocks[search->members[i]].first == s) list[filled++] = search->members[i];
    return list;
}

static enum outcome search_once(struct search *search, int64_t step_limit)
{
    search->steps = 0;
    search->step_limit = step_limit;
    search->scratch_used = 0;
    int *list = by_birth(search);
    enum outcome outcome = solve_parts(search, list, search->count, 0, -1);
    if (outcome != SOLVED) trail_cut(search, 0);
    free(list);
    return outcome;
}

static bool hopeless(const struct problem *problem, int64_t capacity)
{
    for (int s = 0; s < problem->sections; s++)
        if (problem->load[s] > capacity) return true;
    return false;
}

enum search_result search_pack(struct span *spans, int count, int64_t alignment, int64_t capacity,
                               double seconds)
{
    if (count == 0) return SEARCH_FOUND;
    struct problem problem;
    problem_make(&problem, spans, count, alignment);
    capacity /= alignment;
    enum search_result result = hopeless(&problem, capacity) ? SEARCH_IMPOSSIBLE : SEARCH_GAVE_UP;

    struct search search[ORDERS] = {0};
    int *span_of[ORDERS] = {0};
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    int64_t nanoseconds = end.tv_nsec + (int64_t)(seconds * 1e9);
    end.tv_sec += (time_t)(nanoseconds / 1000000000);
    end.tv_nsec = (long)(nanoseconds % 1000000000);

    for (int64_t limit = 2000; result == SEARCH_GAVE_UP; limit *= 2) {
        for (int order = 0; order < ORDERS && result == SEARCH_GAVE_UP; order++) {
            struct search *turn = &search[order];
            if (!turn->blocks) {
                search_make(turn, &problem, orders[order], capacity);
                span_of[order] = memory_new((size_t)count, sizeof(int));
                for (int i = 0; i < count; i++) span_of[order][i] = problem.candidates[i].span;
            }
            turn->end = end;
            enum outcome outcome = search_once(turn, limit);
            if (outcome == DEAD_END) result = SEARCH_IMPOSSIBLE;
            if (outcome != SOLVED) continue;
            result = SEARCH_FOUND;
            for (int i = 0; i < count; i++) spans[span_of[order][i]].offset = turn->blocks[i].at * alignment;
        }
        if (time_is_up(&(struct search){.end = end})) break;
    }
    for (int order = 0; order < ORDERS; order++) {
        if (search[order].blocks) search_free(&search[order]);
        free(span_of[order]);
    }
    problem_free(&problem);
    return result;
}
