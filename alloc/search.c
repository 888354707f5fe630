#include "search.h"

#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
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
    int rank;                 /* blocks of lower rank are preferred: its number, until ranked anew */
    int64_t key[3];           /* that it was ranked by */
};

struct search {
    struct block *blocks;     /* in the order in which they are preferred to begin with */
    int count, sections;
    int *members;             /* blocks of every section, one list after the other */
    int *member_first;        /* [sections + 1] */
    int64_t *load;            /* per section: sizes not yet placed */
    int64_t *lowest;          /* by block: lowest_of(), when it was looked at last */
    int *witness;             /* per section: a block that could go low enough when it was looked at last */
    bool by_load_left;        /* the first key is the load, what is placed not counted */
    int64_t capacity;
    int64_t steps, step_limit;
    int64_t *work_left;       /* of all searches together */
    double end;               /* clock_seconds() at which it gives up */
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
    if (block->rest > floor || (block->rest == floor && block->rank > after)) return block->rest;
    int64_t lowest = INT64_MAX;
    for (int i = 0; i < block->beside_count; i++) {
        const struct block *other = &search->blocks[block->beside[i]];
        if (other->at >= 0) continue;
        int64_t top = (other->rest > floor ? other->rest : floor) + other->size;
        if (top < lowest) lowest = top;
    }
    return lowest;
}

/* Whether an unplaced block of the section can go so low that all of them fit, stacked without gaps on it.
 * Most often it is the same one as before. */
static bool section_fits(struct search *search, int section)
{
    int64_t most = search->capacity - search->load[section];
    int witness = search->witness[section];
    if (search->blocks[witness].at < 0 && search->lowest[witness] <= most) return true;
    for (int i = search->member_first[section]; i < search->member_first[section + 1]; i++) {
        int which = search->members[i];
        if (search->blocks[which].at >= 0 || search->lowest[which] > most) continue;
        search->witness[section] = which;
        return true;
    }
    return false;
}

/* Whether the unplaced blocks of `list` may still end below the capacity: each by itself, and in
 * every section all together, stacked without gaps on the lowest place that one of them can get. */
static bool can_fit(struct search *search, const int *list, int count, int64_t floor, int after)
{
    int begin = search->blocks[list[0]].first, end = begin;
    for (int i = 0; i < count; i++) {
        const struct block *block = &search->blocks[list[i]];
        if (block->last > end) end = block->last;
        search->lowest[list[i]] = lowest_of(search, list[i], floor, after);
        if (search->lowest[list[i]] > search->capacity - block->size) return false;
    }
    for (int s = begin; s < end; s++)
        if (search->load[s] > 0 && !section_fits(search, s)) return false;
    return true;
}

static enum outcome solve(struct search *search, const int *list, int count, int64_t floor, int after);

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

static int ranked_compare(const void *left, const void *right)
{
    const struct ranked *a = left, *b = right;
    for (int i = 0; i < 3; i++)
        if (a->key[i] != b->key[i]) return a->key[i] > b->key[i] ? -1 : 1;
    return a->block - b->block;
}

/* What is still to be placed where the load is highest. */
static int64_t load_left(const struct search *search, const struct block *block)
{
    int64_t load = 0;
    for (int s = block->first; s < block->last; s++)
        if (search->load[s] > load) load = search->load[s];
    return load;
}

/* Solves a part that has come apart from the rest, with its blocks ranked by the load that is left. Among
 * blocks of one offset the order begins again. */
static enum outcome solve_anew(struct search *search, const int *list, int count, int64_t floor)
{
    struct ranked *order = memory_new((size_t)count, sizeof *order);
    int *before = memory_new((size_t)count, sizeof *before);
    for (int i = 0; i < count; i++) {
        const struct block *block = &search->blocks[list[i]];
        order[i] = (struct ranked){{load_left(search, block), block->key[1], block->key[2]}, list[i]};
        before[i] = block->rank;
    }
    qsort(order, (size_t)count, sizeof *order, ranked_compare);
    for (int i = 0; i < count; i++) search->blocks[order[i].block].rank = i;
    enum outcome outcome = solve(search, list, count, floor, -1);
    for (int i = 0; i < count; i++) search->blocks[list[i]].rank = before[i];
    free(before);
    free(order);
    return outcome;
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
        bool apart = end - begin > 1 && end - begin < left;
        outcome = search->by_load_left && apart ? solve_anew(search, open + begin, end - begin, floor)
                                           : solve(search, open + begin, end - begin, floor, after);
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

/* Brings the block that rests lowest, of several the preferred one, to the front of the list. Most often the
 * first is all that is asked for. */
static int lowest_first(const struct search *search, int *list, int count)
{
    int best = 0;
    for (int i = 1; i < count; i++) {
        const struct block *block = &search->blocks[list[i]], *least = &search->blocks[list[best]];
        if (block->rest < least->rest || (block->rest == least->rest && block->rank < least->rank)) best = i;
    }
    int lowest = list[best];
    list[best] = list[0];
    list[0] = lowest;
    return lowest;
}

/* Looking ahead at so many blocks takes most of the time: it is done now and then. */
#define LARGE 1200
#define LARGE_STEPS 16

/* Tries every block that can be the next lowest one. `after` is the rank of the block placed at `floor`
 * last: among blocks of one offset the order is that of their ranks. */
static enum outcome solve(struct search *search, const int *list, int count, int64_t floor, int after)
{
    *search->work_left -= count + (int64_t)search->count * search->count / 512;
    if (++search->steps > search->step_limit || *search->work_left < 0) return OUT_OF_STEPS;
    if ((search->steps & 63) == 0 && clock_seconds() >= search->end) return OUT_OF_STEPS;
    bool look = count < LARGE || search->steps % LARGE_STEPS == 0;
    if (look && !can_fit(search, list, count, floor, after)) return DEAD_END;

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
        bool next = block->rest > floor || (block->rest == floor && block->rank > after);
        if (next && block->rest < ceiling) tried[tried_count++] = list[i];
    }
    search->scratch_used = mark + (size_t)tried_count;

    enum outcome outcome = DEAD_END;
    for (int i = 0; i < tried_count && outcome == DEAD_END; i++) {
        int which = lowest_first(search, tried + i, tried_count - i), trail = search->trail_count;
        const struct block *block = &search->blocks[which];
        bool room = place(search, which);
        bool alone = search->trail_count == trail;
        for (int j = 0; alone && j < block->beside_count; j++)
            alone = search->blocks[block->beside[j]].at >= 0;
        if (room) outcome = solve_parts(search, list, count, block->at, block->rank);
        if (outcome != SOLVED) {
            trail_cut(search, trail);
            unplace(search, which, trail);
            if (alone) break;      /* it stood in nobody's way: without it the rest is no easier */
        }
    }
    search->scratch_used = mark;
    return outcome;
}

/* Preferences: what an order looks at first, second, third. What BY_LOAD_LEFT comes first of is ranked
 * anew when parts come apart. */
enum measure { BY_LOAD, BY_AREA, BY_LIFE, BY_BIRTH, BY_RANK_AREA, BY_RANK_LIFE, BY_LOAD_LEFT, MEASURES };
static const enum measure orders[][3] = {
    {BY_LIFE, BY_AREA, BY_LOAD},
    {BY_AREA, BY_LOAD, BY_LIFE},
    {BY_LOAD, BY_BIRTH, BY_AREA},
    {BY_LOAD_LEFT, BY_RANK_AREA, BY_LIFE},
    {BY_LOAD_LEFT, BY_LIFE, BY_AREA},
    {BY_LOAD, BY_LIFE, BY_AREA},
    {BY_LOAD, BY_AREA, BY_LIFE},
    {BY_RANK_AREA, BY_LOAD, BY_LIFE},
    {BY_LOAD, BY_RANK_LIFE, BY_AREA},
    {BY_RANK_LIFE, BY_AREA, BY_LOAD},
    {BY_LOAD, BY_RANK_AREA, BY_LIFE},
};
#define ORDERS (int)(sizeof orders / sizeof *orders)

/* Some tables fall at once to an order that is a little off, and not for long to any of these (Gomes, Selman
 * 1997: heavy tails). So short turns at shaken orders come between the long ones. */
#define SHAKE 0.1
#define AREA_MOST ((int64_t)1 << 62)   /* there is room for shaking it above */
#define SHAKEN_STEPS 10000
#define SHAKEN_COUNT 1500      /* blocks at most: making a search costs their square */

struct candidate {
    int64_t measure[MEASURES];
    int64_t key[3];
    int span;
};

static int64_t area_of(int64_t life, int64_t size)
{
    int64_t area;
    return __builtin_mul_overflow(life, size, &area) || area > AREA_MOST ? AREA_MOST : area;
}

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
        candidate->measure[BY_LOAD] = candidate->measure[BY_LOAD_LEFT] = load;
        candidate->measure[BY_AREA] = area_of(life, problem->size[i]);
        candidate->measure[BY_LIFE] = life;
        candidate->measure[BY_BIRTH] = -(int64_t)problem->first[i];
        candidate->measure[BY_RANK_LIFE] = problem->last[i] - problem->first[i];
        candidate->measure[BY_RANK_AREA] = area_of(candidate->measure[BY_RANK_LIFE], problem->size[i]);
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

/* Marsaglia: Xorshift RNGs, 2003. A factor around 1. */
static double shaken(uint32_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return 1 + SHAKE * ((double)*state * 0x1p-31 - 1);
}

/* `state`: of a generator that shakes the order; NULL: as it is. */
static void search_make(struct search *search, struct problem *problem, const enum measure order[3],
                        int64_t capacity, uint32_t *state)
{
    int count = problem->count;
    for (int i = 0; i < count; i++) {
        struct candidate *candidate = &problem->candidates[i];
        for (int k = 0; k < 3; k++) candidate->key[k] = candidate->measure[order[k]];
        if (state) candidate->key[0] = (int64_t)((double)candidate->key[0] * shaken(state));
    }
    qsort(problem->candidates, (size_t)count, sizeof *problem->candidates, candidate_compare);

    *search = (struct search){.count = count, .sections = problem->sections, .capacity = capacity,
                              .by_load_left = order[0] == BY_LOAD_LEFT};
    search->blocks = memory_new((size_t)count, sizeof *search->blocks);
    search->load = memory_new((size_t)problem->sections + 1, sizeof(int64_t));
    memcpy(search->load, problem->load, ((size_t)problem->sections + 1) * sizeof(int64_t));
    search->lowest = memory_new((size_t)count, sizeof *search->lowest);
    search->witness = memory_new((size_t)problem->sections + 1, sizeof *search->witness);
    for (int i = 0; i < count; i++) {
        int span = problem->candidates[i].span;
        search->blocks[i] = (struct block){.size = problem->size[span], .first = problem->first[span],
                                           .last = problem->last[span], .at = -1, .rank = i};
        memcpy(search->blocks[i].key, problem->candidates[i].key, sizeof search->blocks[i].key);
    }
    for (int i = 0; i < count; i++)
        for (int j = 0; j < count; j++) {
            struct block *a = &search->blocks[i];
            const struct block *b = &search->blocks[j];
            if (i != j && a->first < b->last && b->first < a->last)
                *array_push(a->beside, a->beside_count) = j;
        }
    members_make(search);
    for (int s = 0; s < search->sections; s++)
        if (search->member_first[s] < search->member_first[s + 1])
            search->witness[s] = search->members[search->member_first[s]];
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
    free(search->witness);
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

/* Turns at the problem: a search for each order, kept from round to round only for what it allocated. */
struct turns {
    struct problem problem;
    struct search search[ORDERS];
    int *span_of[ORDERS];
    struct span *spans;
    int64_t alignment, capacity;
    double end;
    int64_t work_left;
    uint32_t state;
};

static enum search_result turn_run(struct turns *turns, struct search *search, const int *span_of,
                                   int64_t limit)
{
    search->end = turns->end;
    search->work_left = &turns->work_left;
    switch (search_once(search, limit)) {
    case DEAD_END: return SEARCH_IMPOSSIBLE;
    case OUT_OF_STEPS: return SEARCH_GAVE_UP;
    case SOLVED: break;
    }
    for (int i = 0; i < turns->problem.count; i++)
        turns->spans[span_of[i]].offset = search->blocks[i].at * turns->alignment;
    return SEARCH_FOUND;
}

/* Which span each block of the search is that was just made. */
static int *spans_of(const struct problem *problem)
{
    int *span_of = memory_new((size_t)problem->count, sizeof *span_of);
    for (int i = 0; i < problem->count; i++) span_of[i] = problem->candidates[i].span;
    return span_of;
}

/* Large tables are solved straight on, a block a step, or hardly ever. */
#define LARGE_COUNT 500

static int64_t straight_on(int count)
{
    return count + count / 16;
}

static int64_t first_limit(int count)
{
    return count > LARGE_COUNT ? straight_on(count) : 2000;
}

static int64_t shaken_limit(int count)
{
    return count > LARGE_COUNT ? straight_on(count) : SHAKEN_STEPS;
}

static enum search_result turn_at(struct turns *turns, int order, int64_t limit)
{
    if (!turns->search[order].blocks) {
        search_make(&turns->search[order], &turns->problem, orders[order], turns->capacity, NULL);
        turns->span_of[order] = spans_of(&turns->problem);
    }
    return turn_run(turns, &turns->search[order], turns->span_of[order], limit);
}

static enum search_result turn_shaken(struct turns *turns, int order)
{
    struct search search;
    search_make(&search, &turns->problem, orders[order], turns->capacity, &turns->state);
    int *span_of = spans_of(&turns->problem);
    enum search_result result = turn_run(turns, &search, span_of, shaken_limit(turns->problem.count));
    free(span_of);
    search_free(&search);
    return result;
}

static enum search_result take_turns(struct turns *turns)
{
    if (hopeless(&turns->problem, turns->capacity)) return SEARCH_IMPOSSIBLE;
    enum search_result result = SEARCH_GAVE_UP;
    for (int64_t limit = first_limit(turns->problem.count); result == SEARCH_GAVE_UP; limit *= 4) {
        for (int order = 0; order < ORDERS && result == SEARCH_GAVE_UP; order++) {
            result = turn_at(turns, order, limit);
            if (turns->work_left < 0 || clock_seconds() >= turns->end) return result;
            if (result == SEARCH_GAVE_UP && turns->problem.count <= SHAKEN_COUNT)
                result = turn_shaken(turns, order);
        }
    }
    return result;
}

enum search_result search_pack(struct span *spans, int count, int64_t alignment, int64_t capacity,
                               int64_t *work, double seconds)
{
    if (count == 0) return SEARCH_FOUND;
    struct turns *turns = memory_new(1, sizeof *turns);
    *turns = (struct turns){.spans = spans, .alignment = alignment, .capacity = capacity / alignment,
                            .end = clock_seconds() + seconds, .state = 2463534242u,
                            .work_left = *work};
    problem_make(&turns->problem, spans, count, alignment);
    enum search_result result = take_turns(turns);
    *work = turns->work_left;
    for (int order = 0; order < ORDERS; order++) {
        if (turns->search[order].blocks) search_free(&turns->search[order]);
        free(turns->span_of[order]);
    }
    problem_free(&turns->problem);
    free(turns);
    return result;
}
