#include "pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/most.h"
#include "alloc/repair.h"
#include "alloc/search.h"
#include "alloc/settle.h"
#include "alloc/shelves.h"
#include "base/memory.h"

/* Work is counted in blocks looked at, so that the answer does not depend on the machine; any
 * machine of today looks at more than this many in a second. */
#define VISITS_PER_SECOND 250e6

/* The exact search works on tables of up to this many blocks. Without a capacity it is first asked for
 * the bound and a little more, which is much easier to find than the bound itself. Whether it falls
 * upon a placement at once or never depends on the capacity as it does on the order, so several shares
 * of the bound take turns, with growing work. */
#define SEARCH_COUNT 3000
static const double easy_shares[] = {0.0035, 0.0048, 0.0030};
#define EASY_SHARES (int)(sizeof easy_shares / sizeof *easy_shares)
#define EASY_SHARE 0.0048      /* the largest of them: good enough to end with */
#define TURN_WORK 20e6
#define BOUND_WORK 12e6        /* that the bound itself is worth then */

/* A span as the packer sees it: times are ranks among all the times, sizes are aligned. */
struct item {
    int32_t lower, upper;
    int64_t size;
    int64_t born, dies;        /* the times themselves */
    int64_t load;              /* the most bytes alive at once during its life, its own included */
};

struct pack {
    struct item *items;
    int count;
    int32_t times;
    int64_t *load;             /* [times]: bytes alive from each time to the next */
    int64_t alignment;
    int64_t bound, target;     /* the search ends when the peak is at most `target` */
    bool eased;                /* there is no capacity to meet: a little above the bound will do */
    int64_t easy;              /* the most that is good enough */
    int32_t peak_time;         /* when the most bytes are alive */
    int32_t *order;            /* being tried */
    int64_t *offsets;          /* what it led to */
    int64_t *best_offsets;
    int64_t best_peak;
    struct shelves shelves;
    int64_t visits, visit_limit;
    double seconds, deadline;  /* that packing may take, and when they end by now() */
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int64_t aligned(int64_t size, int64_t alignment)
{
    return (size + alignment - 1) & -alignment;
}

static int compare_int64(const void *a, const void *b)
{
    int64_t left = *(const int64_t *)a, right = *(const int64_t *)b;
    return (left > right) - (left < right);
}

/* Sorts and removes doubles; returns how many are left. */
static int unique(int64_t *values, int count)
{
    int kept = 0;
    qsort(values, (size_t)count, sizeof *values, compare_int64);
    for (int i = 0; i < count; i++)
        if (kept == 0 || values[kept - 1] != values[i]) values[kept++] = values[i];
    return kept;
}

static int32_t rank_of(int64_t value, const int64_t *sorted, int count)
{
    return (int32_t)((int64_t *)bsearch(&value, sorted, (size_t)count, sizeof value, compare_int64) -
                     sorted);
}

static bool never_alive(const struct span *span)
{
    return span->lower >= span->upper || span->size <= 0;
}

/* Fills `items` (room for count) from the spans that are ever alive, `source` with their indices;
 * returns their number, and the number of different times in *times. */
static int items_make(const struct span *spans, int count, int64_t alignment, struct item *items,
                      int32_t *source, int *times)
{
    int64_t *time = memory_new(2 * (size_t)count, sizeof *time);
    int alive = 0;
    for (int i = 0; i < count; i++) {
        if (never_alive(&spans[i])) continue;
        time[2 * alive] = spans[i].lower;
        time[2 * alive + 1] = spans[i].upper;
        source[alive++] = i;
    }
    *times = unique(time, 2 * alive);
    for (int i = 0; i < alive; i++) {
        const struct span *span = &spans[source[i]];
        items[i] = (struct item){.lower = rank_of(span->lower, time, *times),
                                 .upper = rank_of(span->upper, time, *times),
                                 .size = aligned(span->size, alignment),
                                 .born = span->lower, .dies = span->upper};
    }
    free(time);
    return alive;
}

/* The bytes alive from each time to the next; the caller frees them. */
static int64_t *items_load(const struct item *items, int count, int times)
{
    int64_t *load = memory_new((size_t)times + 1, sizeof *load);
    for (int i = 0; i < count; i++) {
        load[items[i].lower] += items[i].size;
        load[items[i].upper] -= items[i].size;
    }
    for (int i = 1; i < times; i++) load[i] += load[i - 1];
    return load;
}

static int64_t load_bound(const int64_t *load, int times)
{
    int64_t bound = 0;
    for (int i = 0; i < times; i++)
        if (load[i] > bound) bound = load[i];
    return bound;
}

int64_t pack_bound(const struct span *spans, int count, int64_t alignment)
{
    int times;
    struct item *items = memory_new((size_t)count, sizeof *items);
    int32_t *source = memory_new((size_t)count, sizeof *source);
    int alive = items_make(spans, count, alignment, items, source, &times);
    int64_t *load = items_load(items, alive, times);
    int64_t bound = load_bound(load, times);
    free(load);
    free(source);
    free(items);
    return bound;
}

static void items_set_load(struct item *items, int count, const int64_t *load, int times)
{
    struct most most = most_open(load, times);
    for (int i = 0; i < count; i++) items[i].load = most_of(&most, items[i].lower, items[i].upper);
    most_close(&most);
}

/* The order of two items under each rule. Classes are powers of two, or of four: blocks of about
 * one size leave room for one another. Within them come births in their order, or what is alive at the
 * peak, where no room may be wasted, and then the rest by distance. Ties are broken by size, time and
 * index, so that sorting gives one answer on every system. */
enum rule { BY_CLASS, BY_CLASS_FROM_PEAK, BY_WIDE_CLASS_FROM_PEAK, BY_SIZE, BY_LOAD, BY_AREA, BY_LENGTH,
            BY_UPPER, BY_LOWER, RULE_COUNT };

/* How far from the peak in time a life is; 0 if it is alive then. */
static int32_t from_peak(const struct item *item, int32_t peak)
{
    if (item->upper <= peak) return peak - item->upper + 1;
    return item->lower > peak ? item->lower - peak : 0;
}

static int size_bits(const struct item *item)
{
    return 64 - __builtin_clzll((unsigned long long)item->size);
}

static double rule_key(const struct item *item, enum rule rule, int32_t peak)
{
    switch (rule) {
    case BY_CLASS: return item->lower - 1e10 * size_bits(item);
    case BY_CLASS_FROM_PEAK: return from_peak(item, peak) - 1e10 * size_bits(item);
    case BY_WIDE_CLASS_FROM_PEAK: return from_peak(item, peak) - 1e10 * (size_bits(item) / 2);
    case BY_SIZE: return -(double)item->size;
    case BY_LOAD: return -(double)item->load;
    case BY_AREA: return -(double)item->size * (item->upper - item->lower);
    case BY_LENGTH: return item->lower - item->upper;
    case BY_UPPER: return -item->upper;
    case BY_LOWER: return item->lower;
    case RULE_COUNT: break;
    }
    return 0;
}

struct sortable {
    double key;
    int64_t size;
    int32_t length, index;
};

static int compare_sortable(const void *a, const void *b)
{
    const struct sortable *left = a, *right = b;
    if (left->key != right->key) return left->key < right->key ? -1 : 1;
    if (left->size != right->size) return left->size > right->size ? -1 : 1;
    if (left->length != right->length) return left->length > right->length ? -1 : 1;
    return left->index < right->index ? -1 : 1;
}

static void pack_sort(struct pack *pack, const double *keys)
{
    struct sortable *list = memory_new((size_t)pack->count, sizeof *list);
    for (int i = 0; i < pack->count; i++) {
        const struct item *item = &pack->items[i];
        list[i] = (struct sortable){keys[i], item->size, item->upper - item->lower, i};
    }
    qsort(list, (size_t)pack->count, sizeof *list, compare_sortable);
    for (int i = 0; i < pack->count; i++) pack->order[i] = list[i].index;
    free(list);
}

static void pack_sort_by(struct pack *pack, enum rule rule)
{
    double *keys = memory_new((size_t)pack->count, sizeof *keys);
    for (int i = 0; i < pack->count; i++) keys[i] = rule_key(&pack->items[i], rule, pack->peak_time);
    pack_sort(pack, keys);
    free(keys);
}

static bool pack_exhausted(const struct pack *pack)
{
    return pack->visits + pack->shelves.visits > pack->visit_limit || now() > pack->deadline;
}

static bool pack_done(const struct pack *pack)
{
    return pack->best_peak <= pack->target || pack_exhausted(pack);
}

/* Good enough to end with, where there is nothing better at hand. */
static bool pack_easy(const struct pack *pack)
{
    return pack->best_peak <= pack->easy;
}

static void pack_keep(struct pack *pack, int64_t peak)
{
    if (peak >= pack->best_peak) return;
    pack->best_peak = peak;
    memcpy(pack->best_offsets, pack->offsets, (size_t)pack->count * sizeof *pack->offsets);
}

static int64_t pack_peak(const struct pack *pack)
{
    int64_t peak = 0;
    for (int i = 0; i < pack->count; i++) {
        int64_t end = pack->offsets[i] + pack->items[i].size;
        if (end > peak) peak = end;
    }
    return peak;
}

static struct placed pack_place(struct pack *pack, int index, enum fit fit)
{
    const struct item *item = &pack->items[index];
    int64_t start = shelves_find(&pack->shelves, item->lower, item->upper, item->size, fit);
    struct placed block = {start, start + item->size, item->lower, item->upper, index};
    pack->offsets[index] = start;
    shelves_insert(&pack->shelves, block);
    return block;
}

/* Places the items in `order`, each as `fit` says; gives up, with INT64_MAX, above `ceiling` and
 * when time is up. */
static int64_t pack_try(struct pack *pack, enum fit fit, int64_t ceiling)
{
    int64_t peak = 0;
    shelves_clear(&pack->shelves);
    for (int i = 0; i < pack->count && peak <= ceiling; i++) {
        struct placed block = pack_place(pack, pack->order[i], fit);
        if (block.end > peak) peak = block.end;
        if (i % 256 == 255 && pack_exhausted(pack)) peak = INT64_MAX;
    }
    pack->visits += pack->shelves.visits;
    pack->shelves.visits = 0;
    if (peak > ceiling) return INT64_MAX;
    pack_keep(pack, peak);
    return peak;
}

/* Places the items as an allocator would that meets them in time, and forgets those that have died:
 * fast, and never far off on lifetimes that nest like a stack's. */
static void pack_try_online(struct pack *pack, enum fit fit)
{
    int32_t *by_upper = memory_new((size_t)pack->count, sizeof *by_upper);
    pack_sort_by(pack, BY_UPPER);
    for (int i = 0; i < pack->count; i++) by_upper[i] = pack->order[pack->count - 1 - i];
    pack_sort_by(pack, BY_LOWER);
    int64_t peak = 0;
    shelves_clear(&pack->shelves);
    for (int i = 0, dead = 0; i < pack->count; i++) {
        int32_t time = pack->items[pack->order[i]].lower;
        for (; pack->items[by_upper[dead]].upper <= time; dead++) {
            const struct item *item = &pack->items[by_upper[dead]];
            int64_t start = pack->offsets[by_upper[dead]];
            shelves_remove(&pack->shelves, (struct placed){start, start + item->size, item->lower,
                                                           item->upper, by_upper[dead]});
        }
        struct placed block = pack_place(pack, pack->order[i], fit);
        if (block.end > peak) peak = block.end;
    }
    pack->visits += pack->shelves.visits;
    free(by_upper);
    pack_keep(pack, peak);
}

/* A small generator of our own keeps the packer a function of its input (Marsaglia: Xorshift RNGs,
 * 2003). */
static uint32_t draw(uint32_t *state, uint32_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return (uint32_t)((uint64_t)*state * limit >> 32);
}

/* Moves the item at position `from` of the order to position `to`. */
static void order_move(int32_t *order, int from, int to)
{
    int32_t index = order[from];
    if (to < from) memmove(order + to + 1, order + to, (size_t)(from - to) * sizeof *order);
    else memmove(order + from, order + from + 1, (size_t)(to - from) * sizeof *order);
    order[to] = index;
}

/* A position of the order whose item sticks out above the goal, or any. */
static int pack_culprit(const struct pack *pack, const int64_t *offsets, int64_t goal, uint32_t *state)
{
    int start = (int)draw(state, (uint32_t)pack->count);
    for (int i = 0; i < pack->count; i++) {
        int position = (start + i) % pack->count;
        int index = pack->order[position];
        if (offsets[index] + pack->items[index].size > goal) return position;
    }
    return start;
}

/* Squeaky wheel optimisation (Joslin, Clements 1999): what sticks out of the best order so far comes
 * earlier, something else is shuffled, and the order is kept unless it got worse. */
static void pack_improve(struct pack *pack)
{
    size_t bytes = (size_t)pack->count * sizeof *pack->order;
    int32_t *kept = memory_new((size_t)pack->count, sizeof *kept);
    int64_t *kept_offsets = memory_new((size_t)pack->count, sizeof *kept_offsets);
    uint32_t state = 2463534242u;
    int64_t peak = pack_try(pack, FIT_LOWEST, INT64_MAX - 1);
    memcpy(kept, pack->order, bytes);
    memcpy(kept_offsets, pack->offsets, 2 * bytes);
    while (!pack_done(pack)) {
        int moves = 1 + (int)draw(&state, 3);
        for (int i = 0; i < moves; i++) {
            int from = i == 0 ? pack_culprit(pack, kept_offsets, peak - 1, &state)
                              : (int)draw(&state, (uint32_t)pack->count);
            int limit = i == 0 ? from + 1 : pack->count;
            order_move(pack->order, from, (int)draw(&state, (uint32_t)limit));
        }
        int64_t found = pack_try(pack, FIT_LOWEST, peak);
        if (found <= peak) {
            peak = found;
            memcpy(kept, pack->order, bytes);
            memcpy(kept_offsets, pack->offsets, 2 * bytes);
        } else {
            memcpy(pack->order, kept, bytes);
        }
    }
    free(kept_offsets);
    free(kept);
}

/* The order of the best placement's offsets: from it, first fit does no worse. */
static void pack_sort_by_best(struct pack *pack)
{
    double *keys = memory_new((size_t)pack->count, sizeof *keys);
    for (int i = 0; i < pack->count; i++) keys[i] = (double)pack->best_offsets[i];
    pack_sort(pack, keys);
    free(keys);
}

/* Asks the exact search for a placement within `capacity`. */
static void pack_try_exactly(struct pack *pack, int64_t capacity, double work, double seconds)
{
    double left = pack->deadline - now();
    if (pack->count > SEARCH_COUNT || pack->best_peak <= capacity) return;
    struct span *spans = memory_new((size_t)pack->count, sizeof *spans);
    for (int i = 0; i < pack->count; i++) {
        const struct item *item = &pack->items[i];
        spans[i] = (struct span){item->born, item->dies, item->size, 0};
    }
    if (search_pack(spans, pack->count, pack->alignment, capacity, (int64_t)work,
                    seconds < left ? seconds : left) == SEARCH_FOUND) {
        for (int i = 0; i < pack->count; i++) pack->offsets[i] = spans[i].offset;
        pack_keep(pack, pack_peak(pack));
    }
    free(spans);
}

/* The same, for a share of all the time. */
static void pack_try_long(struct pack *pack, int64_t capacity, double share)
{
    double seconds = share * pack->seconds;
    pack_try_exactly(pack, capacity, seconds * SEARCH_WORK_PER_SECOND, seconds);
}

static int64_t pack_share(const struct pack *pack, double share)
{
    return (int64_t)((1 + share) * (double)pack->bound);
}

/* Turns at the easy shares, for up to `share` of all the work, until one is met. */
static void pack_try_easy(struct pack *pack, double share)
{
    double left = share * pack->seconds * SEARCH_WORK_PER_SECOND;
    for (double work = TURN_WORK; left > 0; work *= 4)
        for (int i = 0; i < EASY_SHARES && left > 0; i++, left -= work) {
            if (pack_done(pack) || pack_easy(pack)) return;
            pack_try_exactly(pack, pack_share(pack, easy_shares[i]), work < left ? work : left,
                             pack->seconds);
        }
}

/* From the bottom up, turn after turn: the plain ones, then others for up to `share` of all the work, and
 * for a moment only in small tables, which the exact search is better at. A walk through the table takes
 * longer than a scan; making the first one is most of what it takes. */
#define SETTLE_VISIT 5
#define SETTLE_MOMENT 20000000   /* blocks looked at */
static void pack_try_settling(struct pack *pack, double share)
{
    struct skyline_block *blocks = memory_new((size_t)pack->count, sizeof *blocks);
    for (int i = 0; i < pack->count; i++) {
        const struct item *item = &pack->items[i];
        blocks[i] = (struct skyline_block){item->lower, item->upper, item->size};
    }
    struct settle *settle = settle_open(blocks, pack->count, pack->load, pack->times, pack->easy);
    int64_t before = pack->visits, most = (int64_t)(share * (double)pack->visit_limit);
    if (pack->count <= SEARCH_COUNT && most > SETTLE_MOMENT) most = SETTLE_MOMENT;
    for (int turn = 0; turn == 0 || !pack_done(pack); turn++) {
        bool enough = pack->visits - before > most || pack_easy(pack);
        if (turn >= SETTLE_PLAIN && enough) break;
        pack_keep(pack, settle_turn(settle, pack->best_peak, pack->offsets));
        pack->visits = before + SETTLE_VISIT * settle_visits(settle);
    }
    settle_close(settle);
    free(blocks);
}

/* In large tables the most bytes are alive in a few stretches of time. Those whose load is above a share
 * of the bound are placed first, exactly; where all else goes, there is room to spare. */
static const double hot_shares[] = {0.9, 0.8, 0.7};
#define HOT_SHARES (int)(sizeof hot_shares / sizeof *hot_shares)
#define HOT_COUNT 1500         /* blocks of one stretch, at most ... */
#define HOT_WORK 60e6          /* ... and the search that each is worth */
#define HOT_FAILURES 3

/* The blocks of the hot stretches, by birth. */
struct hot {
    int32_t *index;
    int count;
    bool *placed;              /* by block */
    int failures;
};

static struct hot hot_open(const struct pack *pack, double share)
{
    struct hot hot = {.index = memory_new((size_t)pack->count, sizeof *hot.index),
                      .placed = memory_new((size_t)pack->count, sizeof *hot.placed)};
    int64_t level = (int64_t)(share * (double)pack->bound);
    for (int i = 0; i < pack->count; i++)
        if (pack->items[pack->order[i]].load > level) hot.index[hot.count++] = pack->order[i];
    return hot;
}

static void hot_close(struct hot *hot)
{
    free(hot->index);
    free(hot->placed);
}

/* The end of the stretch that begins with `begin`: until none is alive across. */
static int hot_end(const struct pack *pack, const struct hot *hot, int begin)
{
    int32_t reach = pack->items[hot->index[begin]].upper;
    int end = begin + 1;
    for (; end < hot->count && pack->items[hot->index[end]].lower < reach; end++)
        if (pack->items[hot->index[end]].upper > reach) reach = pack->items[hot->index[end]].upper;
    return end;
}

static void hot_search(struct pack *pack, struct hot *hot, int begin, int end, int64_t capacity)
{
    int count = end - begin;
    struct span *spans = memory_new((size_t)count, sizeof *spans);
    for (int i = 0; i < count; i++) {
        const struct item *item = &pack->items[hot->index[begin + i]];
        spans[i] = (struct span){item->born, item->dies, item->size, 0};
    }
    bool found = count <= HOT_COUNT && search_pack(spans, count, pack->alignment, capacity, (int64_t)HOT_WORK,
                                                   pack->deadline - now()) == SEARCH_FOUND;
    for (int i = 0; found && i < count; i++) {
        pack->offsets[hot->index[begin + i]] = spans[i].offset;
        hot->placed[hot->index[begin + i]] = true;
    }
    hot->failures += !found;
    free(spans);
}

/* Places what is not hot around what is, in the order that the rule gives. */
static void pack_try_around(struct pack *pack, const struct hot *hot, enum rule rule)
{
    int64_t peak = 0;
    shelves_clear(&pack->shelves);
    pack_sort_by(pack, rule);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < pack->count && peak < pack->best_peak; i++) {
            int32_t index = pack->order[i];
            const struct item *item = &pack->items[index];
            if (hot->placed[index] != (pass == 0)) continue;
            int64_t start = pack->offsets[index], end = start + item->size;
            const struct placed hot_block = {start, end, item->lower, item->upper, index};
            if (pass == 0) shelves_insert(&pack->shelves, hot_block);
            else end = pack_place(pack, index, FIT_LOWEST).end;
            if (end > peak) peak = end;
            if (i % 256 == 255 && pack_exhausted(pack)) peak = INT64_MAX;
        }
    pack->visits += pack->shelves.visits;
    pack->shelves.visits = 0;
    pack_keep(pack, peak);
}

/* Returns whether to go on with less hot stretches. */
static bool pack_try_hot(struct pack *pack, double share, int64_t capacity)
{
    pack_sort_by(pack, BY_LOWER);
    struct hot hot = hot_open(pack, share);
    for (int begin = 0, end; begin < hot.count && !pack_exhausted(pack); begin = end) {
        if (hot.failures == HOT_FAILURES) break;
        end = hot_end(pack, &hot, begin);
        hot_search(pack, &hot, begin, end, capacity);
    }
    bool good = hot.failures < HOT_FAILURES && hot.count > 0;
    if (good) pack_try_around(pack, &hot, BY_SIZE);
    if (good && pack->best_peak > capacity && !pack_exhausted(pack))
        pack_try_around(pack, &hot, BY_CLASS_FROM_PEAK);
    hot_close(&hot);
    return good;
}

static void pack_try_stretches(struct pack *pack)
{
    for (int i = 0; i < HOT_SHARES && pack->best_peak > pack->easy && !pack_exhausted(pack); i++)
        if (!pack_try_hot(pack, hot_shares[i], pack->easy)) return;
}

/* The time at which the most bytes die: of a training step, the update, which reads all gradients. */
static int32_t pack_common_end(const struct pack *pack)
{
    int32_t times = 0, end = 0;
    for (int i = 0; i < pack->count; i++)
        if (pack->items[i].upper > times) times = pack->items[i].upper;
    int64_t *dying = memory_new((size_t)times + 1, sizeof *dying);
    for (int i = 0; i < pack->count; i++) dying[pack->items[i].upper] += pack->items[i].size;
    for (int32_t time = 1; time <= times; time++)
        if (dying[time] > dying[end]) end = time;
    free(dying);
    return end;
}

/* Two stacks in one range: what lives to the common end piles up from `top` down as it is born, the
 * rest lies below it, the longest lives lowest. Activations and weight gradients of a training step
 * grow towards each other like this, and large scratch memory finds the whole gap between them. */
static void pack_try_two_ends(struct pack *pack, int32_t end, int64_t top)
{
    int64_t peak = top;
    pack_sort_by(pack, BY_LOWER);
    shelves_clear(&pack->shelves);
    for (int i = 0; i < pack->count; i++) {
        const struct item *item = &pack->items[pack->order[i]];
        if (item->upper < end) continue;
        top -= item->size;
        if (top < 0) return;
        pack->offsets[pack->order[i]] = top;
        shelves_insert(&pack->shelves, (struct placed){top, top + item->size, item->lower, item->upper,
                                                       pack->order[i]});
    }
    pack_sort_by(pack, BY_LENGTH);
    for (int i = 0; i < pack->count && peak < pack->best_peak; i++) {
        if (pack->items[pack->order[i]].upper >= end) continue;
        struct placed block = pack_place(pack, pack->order[i], FIT_LOWEST);
        if (block.end > peak) peak = block.end;
    }
    pack->visits += pack->shelves.visits;
    pack->shelves.visits = 0;
    pack_keep(pack, peak);
}

/* Tops from the bound up, in steps of a thousandth, as long as they could be an improvement. */
static void pack_try_tops(struct pack *pack)
{
    int32_t end = pack_common_end(pack);
    int64_t top = pack->bound, step = aligned(1 + pack->bound / 1000, pack->alignment);
    for (int i = 0; i < 20 && top < pack->best_peak && !pack_done(pack); i++, top += step)
        pack_try_two_ends(pack, end, top);
}

/* Brings the best placement's peak down, with `share` of the work and time that is left. */
static void pack_repair(struct pack *pack, double share)
{
    struct repair_block *blocks = memory_new((size_t)pack->count, sizeof *blocks);
    struct repair_limits limits = {
        .goal = pack->target,
        .visits = (int64_t)(share * (double)(pack->visit_limit - pack->visits)),
        .deadline = pack->deadline,
    };
    for (int i = 0; i < pack->count; i++) {
        const struct item *item = &pack->items[i];
        blocks[i] = (struct repair_block){item->lower, item->upper, item->size, pack->best_offsets[i]};
    }
    int64_t peak = repair_peak(blocks, pack->count, &limits, &pack->visits);
    for (int i = 0; i < pack->count; i++) pack->offsets[i] = blocks[i].offset;
    pack_keep(pack, peak);
    free(blocks);
}

/* Orders, each in two ways. */
static void pack_try_orders(struct pack *pack)
{
    int64_t enough = pack->visits + pack->visit_limit / 5;
    pack_try_online(pack, FIT_TIGHTEST);
    if (!pack_done(pack)) pack_try_online(pack, FIT_LOWEST);
    for (enum rule rule = 0; rule < RULE_COUNT && !pack_done(pack) && pack->visits < enough; rule++) {
        if (pack_easy(pack)) return;
        pack_sort_by(pack, rule);
        pack_try(pack, FIT_LOWEST, pack->best_peak - 1);
        if (!pack_done(pack)) pack_try(pack, FIT_TIGHTEST, pack->best_peak - 1);
    }
    if (!pack_done(pack) && !pack_easy(pack)) pack_try_tops(pack);
}

static void pack_search_exactly(struct pack *pack)
{
    if (!pack->eased) {
        pack_try_long(pack, pack->target, 0.9);
        return;
    }
    pack_try_easy(pack, 0.7);
    if (pack_easy(pack)) pack_try_exactly(pack, pack->target, BOUND_WORK, pack->seconds);
    else pack_try_long(pack, pack->target, 0.3);
}

/* What is fast and does well on most tables comes first; the first turn always ends. */
static void pack_search(struct pack *pack)
{
    bool large = pack->count > SEARCH_COUNT;
    pack_try_settling(pack, large ? 0.4 : 0.05);
    if (!pack_done(pack) && !pack_easy(pack)) pack_try_orders(pack);
    if (!pack_done(pack) && !large) pack_search_exactly(pack);
    if (!pack_done(pack) && large) pack_try_stretches(pack);
    if (pack_done(pack) || pack_easy(pack)) return;
    pack_repair(pack, 0.8);
    if (pack_done(pack)) return;
    pack_sort_by_best(pack);
    pack_improve(pack);
}

int64_t pack_spans(struct span *spans, int count, int64_t alignment, int64_t capacity, double seconds)
{
    int times;
    size_t n = (size_t)count;
    int32_t *source = memory_new(n, sizeof *source);
    struct pack pack = {.items = memory_new(n, sizeof *pack.items),
                        .order = memory_new(n, sizeof *pack.order),
                        .offsets = memory_new(n, sizeof *pack.offsets),
                        .best_offsets = memory_new(n, sizeof *pack.best_offsets),
                        .alignment = alignment,
                        .best_peak = INT64_MAX,
                        .visit_limit = (int64_t)(seconds * VISITS_PER_SECOND),
                        .seconds = seconds,
                        .deadline = now() + seconds};
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    pack.count = items_make(spans, count, alignment, pack.items, source, &times);
    pack.times = times;
    pack.load = items_load(pack.items, pack.count, times);
    pack.bound = load_bound(pack.load, times);
    for (int t = 0; t < times; t++)
        if (pack.load[t] == pack.bound) pack.peak_time = t;
    pack.target = capacity > pack.bound ? capacity : pack.bound;
    pack.eased = capacity <= 0;
    pack.easy = pack.eased ? pack_share(&pack, EASY_SHARE) : pack.target;
    items_set_load(pack.items, pack.count, pack.load, times);
    if (pack.count > 0) pack_search(&pack);
    for (int i = 0; i < count; i++) spans[i].offset = 0;
    for (int i = 0; i < pack.count; i++) spans[source[i]].offset = pack.best_offsets[i];
    int64_t peak = pack.count > 0 ? pack.best_peak : 0;
    shelves_free(&pack.shelves);
    free(pack.load);
    free(pack.best_offsets);
    free(pack.offsets);
    free(pack.order);
    free(pack.items);
    free(source);
    return peak;
}
