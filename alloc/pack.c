#include "pack.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/alike.h"
#include "alloc/join.h"
#include "alloc/part.h"
#include "base/align.h"
#include "base/clock.h"
#include "base/memory.h"

/* Seconds that the counted work may take longer than it should: machines are slow, or busy with something
 * else, and an answer that hangs on that is another every time. */
#define PATIENCE 2

/* Blocks that are connected in time: none outside is alive with any of them, so that they are packed
 * apart. */
struct piece {
    int begin, end;            /* of the table's blocks by birth */
    int twin;                  /* the first piece that is equal to it, most often itself */
    int64_t peak;
    int followed;              /* models, from the first, that it was tried after */
};

/* What is ever alive. */
struct table {
    struct part_item *items;
    int32_t *source;           /* by item: which span */
    int64_t *offsets;          /* by item */
    int32_t *order;            /* items by birth */
    int count, times;
    struct piece *pieces;
    int piece_count;
    int *models;               /* pieces that are placed well, as they came */
    int model_count;
    struct part_goals goals;
    int64_t work;              /* that is left */
};

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

static struct table table_open(const struct span *spans, int count, int64_t alignment)
{
    struct table table = {.items = memory_new((size_t)count, sizeof *table.items),
                          .source = memory_new((size_t)count, sizeof *table.source)};
    int64_t *time = memory_new(2 * (size_t)count, sizeof *time);
    for (int i = 0; i < count; i++) {
        if (never_alive(&spans[i])) continue;
        time[2 * table.count] = spans[i].lower;
        time[2 * table.count + 1] = spans[i].upper;
        table.source[table.count++] = i;
    }
    table.times = unique(time, 2 * table.count);
    for (int i = 0; i < table.count; i++) {
        const struct span *span = &spans[table.source[i]];
        table.items[i] = (struct part_item){.lower = rank_of(span->lower, time, table.times),
                                            .upper = rank_of(span->upper, time, table.times),
                                            .size = (int64_t)align_up((size_t)span->size, (size_t)alignment),
                                            .born = span->lower, .dies = span->upper};
    }
    free(time);
    return table;
}

static void table_close(struct table *table)
{
    free(table->items);
    free(table->source);
    free(table->offsets);
    free(table->order);
    free(table->pieces);
    free(table->models);
}

static int64_t table_bound(const struct table *table)
{
    int64_t *load = part_load(table->items, table->count, table->times), bound = 0;
    for (int i = 0; i < table->times; i++)
        if (load[i] > bound) bound = load[i];
    free(load);
    return bound;
}

int64_t pack_bound(const struct span *spans, int count, int64_t alignment)
{
    struct table table = table_open(spans, count, alignment);
    int64_t bound = table_bound(&table);
    table_close(&table);
    return bound;
}

/* An item, sorted by birth. */
struct sortable {
    int32_t lower, upper;
    int64_t size;
    int32_t index;
};

static int compare_items(const void *a, const void *b)
{
    const struct sortable *left = a, *right = b;
    if (left->lower != right->lower) return left->lower < right->lower ? -1 : 1;
    if (left->upper != right->upper) return left->upper < right->upper ? -1 : 1;
    if (left->size != right->size) return left->size < right->size ? -1 : 1;
    return (left->index > right->index) - (left->index < right->index);
}

static void table_sort(struct table *table)
{
    struct sortable *list = memory_new((size_t)table->count, sizeof *list);
    for (int i = 0; i < table->count; i++) {
        const struct part_item *item = &table->items[i];
        list[i] = (struct sortable){item->lower, item->upper, item->size, i};
    }
    qsort(list, (size_t)table->count, sizeof *list, compare_items);
    table->order = memory_new((size_t)table->count, sizeof *table->order);
    for (int i = 0; i < table->count; i++) table->order[i] = list[i].index;
    free(list);
}

static const struct part_item *item_at(const struct table *table, int place)
{
    return &table->items[table->order[place]];
}

/* Cuts the table where nothing is alive. */
static void table_cut(struct table *table)
{
    for (int begin = 0, end = 0; begin < table->count; begin = end) {
        int32_t reach = item_at(table, begin)->upper;
        for (end = begin + 1; end < table->count && item_at(table, end)->lower < reach; end++)
            if (item_at(table, end)->upper > reach) reach = item_at(table, end)->upper;
        int number = table->piece_count;
        *array_push(table->pieces, table->piece_count) =
            (struct piece){.begin = begin, .end = end, .twin = number, .peak = INT64_MAX};
    }
}

/* By the number of blocks, and by those in the order of birth. */
static int compare_pieces(const struct table *table, const struct piece *left, const struct piece *right)
{
    int32_t left_time = item_at(table, left->begin)->lower, right_time = item_at(table, right->begin)->lower;
    if (left->end - left->begin != right->end - right->begin)
        return left->end - left->begin < right->end - right->begin ? -1 : 1;
    for (int i = 0; i < left->end - left->begin; i++) {
        const struct part_item *a = item_at(table, left->begin + i), *b = item_at(table, right->begin + i);
        if (a->lower - left_time != b->lower - right_time)
            return a->lower - left_time < b->lower - right_time ? -1 : 1;
        if (a->upper - left_time != b->upper - right_time)
            return a->upper - left_time < b->upper - right_time ? -1 : 1;
        if (a->size != b->size) return a->size < b->size ? -1 : 1;
    }
    return 0;
}

/* Merge sort, since pieces are compared by what the table has. */
static void pieces_sort(const struct table *table, int *list, int *spare, int count)
{
    if (count < 2) return;
    int half = count / 2, left = 0, right = half;
    pieces_sort(table, list, spare, half);
    pieces_sort(table, list + half, spare, count - half);
    for (int i = 0; i < count; i++) {
        bool take_left = right == count || (left < half && compare_pieces(table, &table->pieces[list[left]],
                                                                          &table->pieces[list[right]]) <= 0);
        spare[i] = list[take_left ? left++ : right++];
    }
    memcpy(list, spare, (size_t)count * sizeof *list);
}

/* Finds the pieces that are equal. */
static void table_pair(struct table *table)
{
    int count = table->piece_count;
    int *list = memory_new((size_t)count, sizeof *list), *spare = memory_new((size_t)count, sizeof *spare);
    for (int i = 0; i < count; i++) list[i] = i;
    pieces_sort(table, list, spare, count);
    for (int i = 1; i < count; i++)
        if (compare_pieces(table, &table->pieces[list[i - 1]], &table->pieces[list[i]]) == 0)
            table->pieces[list[i]].twin = table->pieces[list[i - 1]].twin;
    free(spare);
    free(list);
}

/* A piece's blocks by themselves, in the table's order. */
struct extract {
    int32_t *index;            /* in the table */
    struct part_item *items;
    int64_t *offsets;
    int count;
};

static struct extract extract_open(const struct table *table, const struct piece *piece)
{
    size_t n = (size_t)(piece->end - piece->begin);
    struct extract extract = {memory_new(n, sizeof *extract.index), memory_new(n, sizeof *extract.items),
                              memory_new(n, sizeof *extract.offsets), (int)n};
    int32_t time = item_at(table, piece->begin)->lower;
    for (int i = 0; i < extract.count; i++) extract.index[i] = table->order[piece->begin + i];
    for (int i = 0; i < extract.count; i++) {
        struct part_item *item = &extract.items[i];
        *item = table->items[extract.index[i]];
        item->lower -= time;
        item->upper -= time;
        extract.offsets[i] = table->offsets[extract.index[i]];
    }
    return extract;
}

static void extract_close(struct extract *extract)
{
    free(extract->index);
    free(extract->items);
    free(extract->offsets);
}

/* Better than what the piece had: its offsets become the table's. */
static void extract_keep(const struct extract *extract, struct table *table, struct piece *piece,
                         int64_t peak)
{
    if (peak >= piece->peak) return;
    piece->peak = peak;
    for (int i = 0; i < extract->count; i++) table->offsets[extract->index[i]] = extract->offsets[i];
}

static bool piece_good(const struct table *table, const struct piece *piece)
{
    return piece->peak <= table->goals.easy;
}

static bool table_exhausted(const struct table *table)
{
    return table->work <= 0 || clock_seconds() > table->goals.deadline;
}

/* Whether the one could be placed after the other: about as many blocks. Looking for the nearest takes the
 * square of their number. */
#define ALIKE_COUNT 3000
#define ALIKE_SHARE 8
static bool pieces_alike(const struct piece *piece, const struct piece *other)
{
    int count = piece->end - piece->begin, others = other->end - other->begin;
    return count <= ALIKE_COUNT && abs(count - others) <= count / ALIKE_SHARE;
}

static void piece_follow_one(struct table *table, struct piece *piece, const struct piece *other)
{
    struct extract own = extract_open(table, piece), model = extract_open(table, other);
    int64_t visits = 0;
    for (int backwards = 0; backwards < 2 && !piece_good(table, piece); backwards++) {
        const struct alike_model after = {model.items, model.offsets, model.count, backwards};
        extract_keep(&own, table, piece, alike_place(&after, own.items, own.count, own.offsets, &visits));
    }
    table->work -= visits;
    extract_close(&model);
    extract_close(&own);
}

/* Tries it after the models that have come since the last time. */
static void piece_follow(struct table *table, struct piece *piece)
{
    for (; piece->followed < table->model_count; piece->followed++) {
        const struct piece *other = &table->pieces[table->models[piece->followed]];
        if (piece_good(table, piece) || table_exhausted(table)) return;
        if (pieces_alike(piece, other)) piece_follow_one(table, piece, other);
    }
}

/* Packs the blocks as they are. */
static void extract_pack(struct extract *extract, struct table *table, struct piece *piece, int64_t work)
{
    int64_t left = work;
    int64_t peak = part_pack(extract->items, extract->count, &table->goals, &left, extract->offsets);
    table->work -= work - left;
    extract_keep(extract, table, piece, peak);
}

/* Packs what the blocks are joined to. */
static void extract_pack_joined(struct extract *extract, const struct join *join, struct table *table,
                                struct piece *piece, int64_t work)
{
    int count = join_count(join);
    struct part_item *items = memory_new((size_t)count, sizeof *items);
    int64_t *offsets = memory_new((size_t)count, sizeof *offsets), left = work;
    for (int i = 0; i < count; i++) items[i] = join_item(join, i);
    int64_t peak = part_pack(items, count, &table->goals, &left, offsets);
    table->work -= work - left;
    join_spread(join, offsets, extract->offsets);
    extract_keep(extract, table, piece, peak);
    free(offsets);
    free(items);
}

/* Packs the blocks as they are, and where joining leaves few, also joined: hardly any, and that is what
 * they were cut from; about half, and it may be right or wrong. */
#define JOINED_MOST 2          /* of so many blocks one is left, at most */
#define JOINED_FEW 16
static void piece_pack(struct table *table, struct piece *piece, int64_t work)
{
    struct extract extract = extract_open(table, piece);
    struct join *join = join_open(extract.items, extract.count);
    bool few = join_count(join) <= extract.count / JOINED_FEW;
    if (join_count(join) <= extract.count / JOINED_MOST) {
        int64_t before = few ? work / 32 : work / 8, joined = few ? work / 2 : work / 4;
        bool brief = table->goals.brief;
        table->goals.brief = true;
        extract_pack(&extract, table, piece, before);
        if (!piece_good(table, piece)) extract_pack_joined(&extract, join, table, piece, joined);
        table->goals.brief = brief;
        work -= before + joined;
    }
    if (!piece_good(table, piece)) extract_pack(&extract, table, piece, work);
    join_close(join);
    extract_close(&extract);
}

/* The pieces that are not good enough yet, and their blocks. */
struct rest {
    int pieces;
    int64_t blocks;
};

static bool piece_left(const struct table *table, int number)
{
    return table->pieces[number].twin == number && !piece_good(table, &table->pieces[number]);
}

static struct rest table_rest(const struct table *table)
{
    struct rest rest = {0};
    for (int i = 0; i < table->piece_count; i++) {
        if (!piece_left(table, i)) continue;
        rest.pieces++;
        rest.blocks += table->pieces[i].end - table->pieces[i].begin;
    }
    return rest;
}

/* Packs what is left, with `work` for all, half of it by blocks and half by pieces. */
static void table_round(struct table *table, double work)
{
    struct rest rest = table_rest(table);
    for (int i = 0; i < table->piece_count; i++) {
        struct piece *piece = &table->pieces[i];
        if (!piece_left(table, i)) continue;
        if (piece->peak < INT64_MAX && table_exhausted(table)) return;
        if (rest.pieces > 1) piece_follow(table, piece);
        double share = 0.5 * (piece->end - piece->begin) / (double)rest.blocks + 0.5 / rest.pieces;
        if (!piece_good(table, piece)) piece_pack(table, piece, (int64_t)(share * work));
        if (piece_good(table, piece)) *array_push(table->models, table->model_count) = i;
    }
}

/* Most pieces need little, some all that there is: rounds of growing work, but one if there is one piece. */
static void table_pack(struct table *table)
{
    double work = (double)table->work, share = 1 / 32.;
    do {
        bool last = table_rest(table).pieces == 1 || share >= 1;
        table->goals.brief = !last;
        table_round(table, last ? (double)table->work : share * work);
        share *= 4;
    } while (table_rest(table).pieces > 0 && !table_exhausted(table));
}

/* Sets the offsets of pieces from those of their twins; returns the peak. */
static int64_t table_finish(struct table *table)
{
    int64_t peak = 0;
    for (int i = 0; i < table->piece_count; i++) {
        const struct piece *piece = &table->pieces[i], *twin = &table->pieces[piece->twin];
        for (int j = 0; j < piece->end - piece->begin; j++)
            table->offsets[table->order[piece->begin + j]] = table->offsets[table->order[twin->begin + j]];
        if (twin->peak > peak) peak = twin->peak;
    }
    return peak;
}

int64_t pack_spans(struct span *spans, int count, int64_t alignment, int64_t capacity, double seconds)
{
    assert(alignment > 0 && (alignment & (alignment - 1)) == 0);
    struct table table = table_open(spans, count, alignment);
    int64_t bound = table_bound(&table), target = capacity > bound ? capacity : bound;
    table.goals = (struct part_goals){.alignment = alignment, .bound = bound, .target = target,
                                      .eased = capacity <= 0,
                                      .deadline = clock_seconds() + seconds + PATIENCE};
    table.goals.easy = table.goals.eased ? (int64_t)((1 + PART_EASY_SHARE) * (double)bound) : target;
    table.work = (int64_t)(seconds * PART_WORK_PER_SECOND);
    table.offsets = memory_new((size_t)table.count, sizeof *table.offsets);
    table_sort(&table);
    table_cut(&table);
    table_pair(&table);
    table_pack(&table);
    int64_t peak = table_finish(&table);
    for (int i = 0; i < count; i++) spans[i].offset = 0;
    for (int i = 0; i < table.count; i++) spans[table.source[i]].offset = table.offsets[i];
    table_close(&table);
    return peak;
}
