#include "part.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/most.h"
#include "alloc/repair.h"
#include "alloc/search.h"
#include "alloc/settle.h"
#include "alloc/shelves.h"
#include "base/align.h"
#include "base/clock.h"
#include "base/memory.h"

/* The exact search works on tables of up to this many blocks. Without a capacity it is first asked for
 * the bound and a little more, which is much easier to find than the bound itself. Whether it falls
 * upon a placement at once or never depends on the capacity as it does on the order, so several shares
 * of the bound take turns, with growing work. */
#define SEARCH_COUNT 3000
static const double easy_shares[] = {0.0035, 0.0048, 0.0030};
#define EASY_SHARES (int)(sizeof easy_shares / sizeof *easy_shares)
#define TURN_WORK 20e6
#define BOUND_WORK 12e6        /* that the bound itself is worth then */

struct part {
    struct part_item *items;
    int count;
    int32_t times;
    int64_t *load;             /* [times]: bytes alive from each time to the next */
    const struct part_goals *goals;
    int32_t peak_time;         /* when the most bytes are alive */
    int32_t *order;            /* being tried */
    int64_t *offsets;          /* what it led to */
    int64_t *best_offsets;
    int64_t best_peak;
    struct shelves shelves;
    int64_t visits, visit_limit;
    int64_t searched;          /* the exact search's own work */
    double seconds;            /* that all of it takes, more or less */
};

int64_t *part_load(const struct part_item *items, int count, int times)
{
    int64_t *load = memory_new((size_t)times + 1, sizeof *load);
    for (int i = 0; i < count; i++) {
        load[items[i].lower] += items[i].size;
        load[items[i].upper] -= items[i].size;
    }
    for (int i = 1; i < times; i++) load[i] += load[i - 1];
    return load;
}

static void items_set_load(struct part_item *items, int count, const int64_t *load, int times)
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
static int32_t from_peak(const struct part_item *item, int32_t peak)
{
    if (item->upper <= peak) return peak - item->upper + 1;
    return item->lower > peak ? item->lower - peak : 0;
}

static int size_bits(const struct part_item *item)
{
    return 64 - __builtin_clzll((unsigned long long)item->size);
}

static double rule_key(const struct part_item *item, enum rule rule, int32_t peak)
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

static void part_sort(struct part *part, const double *keys)
{
    struct sortable *list = memory_new((size_t)part->count, sizeof *list);
    for (int i = 0; i < part->count; i++) {
        const struct part_item *item = &part->items[i];
        list[i] = (struct sortable){keys[i], item->size, item->upper - item->lower, i};
    }
    qsort(list, (size_t)part->count, sizeof *list, compare_sortable);
    for (int i = 0; i < part->count; i++) part->order[i] = list[i].index;
    free(list);
}

static void part_sort_by(struct part *part, enum rule rule)
{
    double *keys = memory_new((size_t)part->count, sizeof *keys);
    for (int i = 0; i < part->count; i++) keys[i] = rule_key(&part->items[i], rule, part->peak_time);
    part_sort(part, keys);
    free(keys);
}

static bool part_exhausted(const struct part *part)
{
    return part->visits + part->shelves.visits > part->visit_limit || clock_seconds() > part->goals->deadline;
}

static bool part_done(const struct part *part)
{
    return part->best_peak <= part->goals->target || part_exhausted(part);
}

/* Good enough to end with, where there is nothing better at hand. */
static bool part_easy(const struct part *part)
{
    return part->best_peak <= part->goals->easy;
}

static void part_keep(struct part *part, int64_t peak)
{
    if (peak >= part->best_peak) return;
    part->best_peak = peak;
    memcpy(part->best_offsets, part->offsets, (size_t)part->count * sizeof *part->offsets);
}

static int64_t part_peak(const struct part *part)
{
    int64_t peak = 0;
    for (int i = 0; i < part->count; i++) {
        int64_t end = part->offsets[i] + part->items[i].size;
        if (end > peak) peak = end;
    }
    return peak;
}

static struct placed part_place(struct part *part, int index, enum fit fit)
{
    const struct part_item *item = &part->items[index];
    int64_t start = shelves_find(&part->shelves, item->lower, item->upper, item->size, fit);
    struct placed block = {start, start + item->size, item->lower, item->upper, index};
    part->offsets[index] = start;
    shelves_insert(&part->shelves, block);
    return block;
}

/* Places the items in `order`, each as `fit` says; gives up, with INT64_MAX, above `ceiling` and
 * when time is up. */
static int64_t part_try(struct part *part, enum fit fit, int64_t ceiling)
{
    int64_t peak = 0;
    shelves_clear(&part->shelves);
    for (int i = 0; i < part->count && peak <= ceiling; i++) {
        struct placed block = part_place(part, part->order[i], fit);
        if (block.end > peak) peak = block.end;
        if (i % 256 == 255 && part_exhausted(part)) peak = INT64_MAX;
    }
    part->visits += part->shelves.visits;
    part->shelves.visits = 0;
    if (peak > ceiling) return INT64_MAX;
    part_keep(part, peak);
    return peak;
}

/* Places the items as an allocator would that meets them in time, and forgets those that have died:
 * fast, and never far off on lifetimes that nest like a stack's. */
static void part_try_online(struct part *part, enum fit fit)
{
    int32_t *by_upper = memory_new((size_t)part->count, sizeof *by_upper);
    part_sort_by(part, BY_UPPER);
    for (int i = 0; i < part->count; i++) by_upper[i] = part->order[part->count - 1 - i];
    part_sort_by(part, BY_LOWER);
    int64_t peak = 0;
    shelves_clear(&part->shelves);
    for (int i = 0, dead = 0; i < part->count; i++) {
        int32_t time = part->items[part->order[i]].lower;
        for (; part->items[by_upper[dead]].upper <= time; dead++) {
            const struct part_item *item = &part->items[by_upper[dead]];
            int64_t start = part->offsets[by_upper[dead]];
            shelves_remove(&part->shelves, (struct placed){start, start + item->size, item->lower,
                                                           item->upper, by_upper[dead]});
        }
        struct placed block = part_place(part, part->order[i], fit);
        if (block.end > peak) peak = block.end;
    }
    part->visits += part->shelves.visits;
    free(by_upper);
    part_keep(part, peak);
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
static int part_culprit(const struct part *part, const int64_t *offsets, int64_t goal, uint32_t *state)
{
    int start = (int)draw(state, (uint32_t)part->count);
    for (int i = 0; i < part->count; i++) {
        int position = (start + i) % part->count;
        int index = part->order[position];
        if (offsets[index] + part->items[index].size > goal) return position;
    }
    return start;
}

/* Squeaky wheel optimisation (Joslin, Clements 1999): what sticks out of the best order so far comes
 * earlier, something else is shuffled, and the order is kept unless it got worse. */
static void part_improve(struct part *part)
{
    size_t bytes = (size_t)part->count * sizeof *part->order;
    int32_t *kept = memory_new((size_t)part->count, sizeof *kept);
    int64_t *kept_offsets = memory_new((size_t)part->count, sizeof *kept_offsets);
    uint32_t state = 2463534242u;
    int64_t peak = part_try(part, FIT_LOWEST, INT64_MAX - 1);
    memcpy(kept, part->order, bytes);
    memcpy(kept_offsets, part->offsets, 2 * bytes);
    while (!part_done(part)) {
        int moves = 1 + (int)draw(&state, 3);
        for (int i = 0; i < moves; i++) {
            int from = i == 0 ? part_culprit(part, kept_offsets, peak - 1, &state)
                              : (int)draw(&state, (uint32_t)part->count);
            int limit = i == 0 ? from + 1 : part->count;
            order_move(part->order, from, (int)draw(&state, (uint32_t)limit));
        }
        int64_t found = part_try(part, FIT_LOWEST, peak);
        if (found <= peak) {
            peak = found;
            memcpy(kept, part->order, bytes);
            memcpy(kept_offsets, part->offsets, 2 * bytes);
        } else {
            memcpy(part->order, kept, bytes);
        }
    }
    free(kept_offsets);
    free(kept);
}

/* The order of the best placement's offsets: from it, first fit does no worse. */
static void part_sort_by_best(struct part *part)
{
    double *keys = memory_new((size_t)part->count, sizeof *keys);
    for (int i = 0; i < part->count; i++) keys[i] = (double)part->best_offsets[i];
    part_sort(part, keys);
    free(keys);
}

/* Asks the exact search for a placement within `capacity`. */
static void part_try_exactly(struct part *part, int64_t capacity, double work)
{
    double left = part->goals->deadline - clock_seconds();
    if (part->count > SEARCH_COUNT || part->best_peak <= capacity) return;
    struct span *spans = memory_new((size_t)part->count, sizeof *spans);
    for (int i = 0; i < part->count; i++) {
        const struct part_item *item = &part->items[i];
        spans[i] = (struct span){item->born, item->dies, item->size, 0};
    }
    int64_t unused = (int64_t)work;
    if (search_pack(spans, part->count, part->goals->alignment, capacity, &unused, left) == SEARCH_FOUND) {
        for (int i = 0; i < part->count; i++) part->offsets[i] = spans[i].offset;
        part_keep(part, part_peak(part));
    }
    part->searched += (int64_t)work - unused;
    free(spans);
}

/* The exact search's work that a share of all the time is good for. */
static double part_long(const struct part *part, double share)
{
    return share * part->seconds * SEARCH_WORK_PER_SECOND;
}

static int64_t part_share(const struct part *part, double share)
{
    return (int64_t)((1 + share) * (double)part->goals->bound);
}

/* Turns at the easy shares, for up to `share` of all the work, until one is met. */
static void part_try_easy(struct part *part, double share)
{
    double left = part_long(part, share);
    for (double work = TURN_WORK; left > 0; work *= 4)
        for (int i = 0; i < EASY_SHARES && left > 0; i++, left -= work) {
            if (part_done(part) || part_easy(part)) return;
            part_try_exactly(part, part_share(part, easy_shares[i]), work < left ? work : left);
        }
}

/* From the bottom up, turn after turn: the plain ones, then others for up to `share` of all the work, and
 * for a moment only in small tables, which the exact search is better at. A walk through the table takes
 * longer than a scan; making the first one is most of what it takes. */
#define SETTLE_VISIT 5
#define SETTLE_MOMENT 20000000   /* blocks looked at */
struct settling {
    struct skyline_block *blocks;
    struct settle *settle;
    int turns;
    int64_t visits;
};

static struct settling settling_open(const struct part *part)
{
    struct settling settling = {.blocks = memory_new((size_t)part->count, sizeof *settling.blocks)};
    for (int i = 0; i < part->count; i++) {
        const struct part_item *item = &part->items[i];
        settling.blocks[i] = (struct skyline_block){item->lower, item->upper, item->size};
    }
    settling.settle = settle_open(settling.blocks, part->count, part->load, part->times, part->goals->easy);
    return settling;
}

static void settling_close(struct settling *settling)
{
    settle_close(settling->settle);
    free(settling->blocks);
}

static void part_try_settling(struct part *part, struct settling *settling, double share)
{
    int64_t before = settling->visits, most = (int64_t)(share * (double)part->visit_limit);
    if (part->count <= SEARCH_COUNT && most > SETTLE_MOMENT) most = SETTLE_MOMENT;
    for (; settling->turns == 0 || !part_done(part); settling->turns++) {
        bool enough = settling->visits - before > most || part_easy(part);
        if (settling->turns >= SETTLE_PLAIN && enough) break;
        part_keep(part, settle_turn(settling->settle, part->best_peak, part->offsets));
        part->visits -= settling->visits;
        settling->visits = SETTLE_VISIT * settle_visits(settling->settle);
        part->visits += settling->visits;
    }
}

/* In large tables the most bytes are alive in a few stretches of time. Those whose load is above a share
 * of the bound are packed first, each by itself; where all else goes around, there is room to spare, which
 * repairs make use of. */
static const double hot_shares[] = {0.9, 0.8, 0.7};
#define HOT_SHARES (int)(sizeof hot_shares / sizeof *hot_shares)
#define HOT_MOST 2             /* a stretch of more blocks than one of so many in all is not worth while */
#define HOT_WORK 16            /* each is worth one of so many shares of the work, ... */
#define HOT_WORK_ALL 5         /* ... all of them one of so many, ... */
#define HOT_REPAIR 0.1         /* ... and all else this share of what is left */

/* The blocks of the hot stretches, by birth. */
struct hot {
    int32_t *index;
    int count;
    bool *placed;              /* by block */
};

static struct hot hot_open(const struct part *part, double share)
{
    struct hot hot = {.index = memory_new((size_t)part->count, sizeof *hot.index),
                      .placed = memory_new((size_t)part->count, sizeof *hot.placed)};
    int64_t level = (int64_t)(share * (double)part->goals->bound);
    for (int i = 0; i < part->count; i++)
        if (part->items[part->order[i]].load > level) hot.index[hot.count++] = part->order[i];
    return hot;
}

static void hot_close(struct hot *hot)
{
    free(hot->index);
    free(hot->placed);
}

/* The end of the stretch that begins with `begin`: until none is alive across. */
static int hot_end(const struct part *part, const struct hot *hot, int begin)
{
    int32_t reach = part->items[hot->index[begin]].upper;
    int end = begin + 1;
    for (; end < hot->count && part->items[hot->index[end]].lower < reach; end++)
        if (part->items[hot->index[end]].upper > reach) reach = part->items[hot->index[end]].upper;
    return end;
}

static void hot_pack(struct part *part, struct hot *hot, int begin, int end)
{
    size_t count = (size_t)(end - begin);
    struct part_item *items = memory_new(count, sizeof *items);
    int64_t *offsets = memory_new(count, sizeof *offsets);
    const int32_t *index = hot->index + begin;
    int32_t time = part->items[index[0]].lower;
    for (size_t i = 0; i < count; i++) {
        items[i] = part->items[index[i]];
        items[i].lower -= time;
        items[i].upper -= time;
    }
    struct part_goals goals = *part->goals;
    int64_t given = part->visit_limit / HOT_WORK, work = given;
    goals.within = true;
    part_pack(items, (int)count, &goals, &work, offsets);
    part->visits += given - work;
    for (size_t i = 0; i < count; i++) {
        part->offsets[index[i]] = offsets[i];
        hot->placed[index[i]] = true;
    }
    free(offsets);
    free(items);
}

/* Places what is not hot around what is, in the order that the rule gives. */
static void part_try_around(struct part *part, const struct hot *hot, enum rule rule)
{
    int64_t peak = 0;
    shelves_clear(&part->shelves);
    part_sort_by(part, rule);
    for (int pass = 0; pass < 2; pass++)
        for (int i = 0; i < part->count && peak < part->best_peak; i++) {
            int32_t index = part->order[i];
            const struct part_item *item = &part->items[index];
            if (hot->placed[index] != (pass == 0)) continue;
            int64_t start = part->offsets[index], end = start + item->size;
            const struct placed hot_block = {start, end, item->lower, item->upper, index};
            if (pass == 0) shelves_insert(&part->shelves, hot_block);
            else end = part_place(part, index, FIT_LOWEST).end;
            if (end > peak) peak = end;
            if (i % 256 == 255 && part_exhausted(part)) peak = INT64_MAX;
        }
    part->visits += part->shelves.visits;
    part->shelves.visits = 0;
    part_keep(part, peak);
}

/* Brings the best placement's peak down, with `share` of the work and time that is left. */
static void part_repair(struct part *part, double share)
{
    struct repair_block *blocks = memory_new((size_t)part->count, sizeof *blocks);
    struct repair_limits limits = {
        .goal = part->count > SEARCH_COUNT ? part->goals->easy : part->goals->target,
        .visits = (int64_t)(share * (double)(part->visit_limit - part->visits)),
        .deadline = part->goals->deadline,
    };
    for (int i = 0; i < part->count; i++) {
        const struct part_item *item = &part->items[i];
        blocks[i] = (struct repair_block){item->lower, item->upper, item->size, part->best_offsets[i]};
    }
    int64_t peak = repair_peak(blocks, part->count, &limits, &part->visits);
    for (int i = 0; i < part->count; i++) part->offsets[i] = blocks[i].offset;
    part_keep(part, peak);
    free(blocks);
}

/* Returns whether to go on with less hot stretches. */
static bool part_try_hot(struct part *part, double share)
{
    part_sort_by(part, BY_LOWER);
    struct hot hot = hot_open(part, share);
    bool good = hot.count > 0;
    int64_t enough = part->visits + part->visit_limit / HOT_WORK_ALL;
    for (int begin = 0, end; good && begin < hot.count && part->visits < enough; begin = end) {
        end = hot_end(part, &hot, begin);
        good = end - begin <= part->count / HOT_MOST;
        if (good) hot_pack(part, &hot, begin, end);
    }
    if (good) part_try_around(part, &hot, BY_SIZE);
    if (good && !part_easy(part) && !part_exhausted(part)) part_try_around(part, &hot, BY_CLASS_FROM_PEAK);
    if (good && !part_easy(part) && !part_exhausted(part)) part_repair(part, HOT_REPAIR);
    hot_close(&hot);
    return good;
}

static void part_try_stretches(struct part *part)
{
    for (int i = 0; i < HOT_SHARES && !part_easy(part) && !part_exhausted(part); i++)
        if (!part_try_hot(part, hot_shares[i])) return;
}

/* The time at which the most bytes die: of a training step, the update, which reads all gradients. */
static int32_t part_common_end(const struct part *part)
{
    int32_t times = 0, end = 0;
    for (int i = 0; i < part->count; i++)
        if (part->items[i].upper > times) times = part->items[i].upper;
    int64_t *dying = memory_new((size_t)times + 1, sizeof *dying);
    for (int i = 0; i < part->count; i++) dying[part->items[i].upper] += part->items[i].size;
    for (int32_t time = 1; time <= times; time++)
        if (dying[time] > dying[end]) end = time;
    free(dying);
    return end;
}

/* Two stacks in one range: what lives to the common end piles up from `top` down as it is born, the
 * rest lies below it, the longest lives lowest. Activations and weight gradients of a training step
 * grow towards each other like this, and large scratch memory finds the whole gap between them. */
static void part_try_two_ends(struct part *part, int32_t end, int64_t top)
{
    int64_t peak = top;
    part_sort_by(part, BY_LOWER);
    shelves_clear(&part->shelves);
    for (int i = 0; i < part->count; i++) {
        const struct part_item *item = &part->items[part->order[i]];
        if (item->upper < end) continue;
        top -= item->size;
        if (top < 0) return;
        part->offsets[part->order[i]] = top;
        shelves_insert(&part->shelves, (struct placed){top, top + item->size, item->lower, item->upper,
                                                       part->order[i]});
    }
    part_sort_by(part, BY_LENGTH);
    for (int i = 0; i < part->count && peak < part->best_peak; i++) {
        if (part->items[part->order[i]].upper >= end) continue;
        struct placed block = part_place(part, part->order[i], FIT_LOWEST);
        if (block.end > peak) peak = block.end;
    }
    part->visits += part->shelves.visits;
    part->shelves.visits = 0;
    part_keep(part, peak);
}

/* Tops from the bound up, in steps of a thousandth, as long as they could be an improvement. */
static void part_try_tops(struct part *part)
{
    int32_t end = part_common_end(part);
    int64_t top = part->goals->bound, alignment = part->goals->alignment;
    int64_t step = (int64_t)align_up((size_t)(1 + part->goals->bound / 1000), (size_t)alignment);
    for (int i = 0; i < 20 && top < part->best_peak && !part_done(part); i++, top += step)
        part_try_two_ends(part, end, top);
}

/* Orders, each in two ways. */
static void part_try_orders(struct part *part)
{
    int64_t enough = part->visits + part->visit_limit / (part->count > SEARCH_COUNT ? 20 : 5);
    part_try_online(part, FIT_TIGHTEST);
    if (!part_done(part)) part_try_online(part, FIT_LOWEST);
    for (enum rule rule = 0; rule < RULE_COUNT && !part_done(part) && part->visits < enough; rule++) {
        if (part_easy(part)) return;
        part_sort_by(part, rule);
        part_try(part, FIT_LOWEST, part->best_peak - 1);
        if (!part_done(part)) part_try(part, FIT_TIGHTEST, part->best_peak - 1);
    }
    if (!part_done(part) && !part_easy(part)) part_try_tops(part);
}

static void part_search_exactly(struct part *part)
{
    int64_t target = part->goals->target;
    if (!part->goals->eased) {
        part_try_exactly(part, target, part_long(part, 0.9));
        return;
    }
    part_try_easy(part, 0.7);
    double work = part_long(part, 0.3);
    part_try_exactly(part, target, part_easy(part) && work > BOUND_WORK ? BOUND_WORK : work);
}

/* What helps small tables, once they have settled. */
static void part_search_small(struct part *part)
{
    if (!part_done(part) && !part_easy(part)) part_try_orders(part);
    if (!part_done(part)) part_search_exactly(part);
}

/* What helps large ones. */
static void part_search_large(struct part *part, struct settling *settling)
{
    if (!part_done(part) && !part_easy(part) && !part->goals->within) part_try_stretches(part);
    if (!part_done(part) && !part_easy(part)) part_try_settling(part, settling, 0.35);
    if (!part_done(part) && !part_easy(part)) part_try_orders(part);
}

/* What helps any, for as long as there is time: after repairs small tables are improved by the order, for
 * which large ones take too long. */
static void part_search_on(struct part *part, struct settling *settling)
{
    bool large = part->count > SEARCH_COUNT;
    part_repair(part, large ? 0.5 : 0.8);
    if (part_done(part)) return;
    if (large) {
        part_try_settling(part, settling, 1);
    } else {
        part_sort_by_best(part);
        part_improve(part);
    }
}

/* What is fast and does well on most tables comes first; the first turn always ends. */
static void part_search(struct part *part)
{
    bool large = part->count > SEARCH_COUNT;
    struct settling settling = settling_open(part);
    part_try_settling(part, &settling, large ? 0.1 : 0.05);
    if (large) part_search_large(part, &settling);
    else part_search_small(part);
    bool enough = part_done(part) || part_easy(part) || (part->goals->brief && !large);
    if (!enough) part_search_on(part, &settling);
    settling_close(&settling);
}

int64_t part_pack(struct part_item *items, int count, const struct part_goals *goals, int64_t *work,
                  int64_t *offsets)
{
    size_t n = (size_t)count;
    struct part part = {.items = items, .count = count, .goals = goals,
                        .order = memory_new(n, sizeof *part.order),
                        .offsets = memory_new(n, sizeof *part.offsets),
                        .best_offsets = offsets,
                        .best_peak = INT64_MAX,
                        .visit_limit = *work,
                        .seconds = (double)*work / PART_WORK_PER_SECOND};
    for (int i = 0; i < count; i++)
        if (items[i].upper > part.times) part.times = items[i].upper;
    part.times++;
    part.load = part_load(items, count, part.times);
    for (int t = 0; t < part.times; t++)
        if (part.load[t] >= part.load[part.peak_time]) part.peak_time = t;
    items_set_load(items, count, part.load, part.times);
    part_search(&part);
    *work -= part.visits + (int64_t)((double)part.searched * (PART_WORK_PER_SECOND / SEARCH_WORK_PER_SECOND));
    shelves_free(&part.shelves);
    free(part.load);
    free(part.offsets);
    free(part.order);
    return part.best_peak;
}
