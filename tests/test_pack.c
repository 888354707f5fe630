/* The packer and its judge: on tables made by rule, at random, with planted faults, and real ones. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/check.h"
#include "alloc/join.h"
#include "alloc/pack.h"
#include "alloc/repair.h"
#include "alloc/skyline.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/caught.h"
#include "tests/rounds.h"

#include <cmocka.h>      /* last: its fail() is not ours */

/* Packs and has the result judged; returns the peak. */
static int64_t pack_checked(struct span *spans, int count, int64_t alignment, double seconds)
{
    struct reason reason = {0};
    int64_t peak = pack_spans(spans, count, alignment, 0, seconds), top = 0;
    if (!check_spans(spans, count, alignment, peak, &reason)) fail_msg("%s", reason.text);
    assert_true(peak >= pack_bound(spans, count, alignment));
    for (int i = 0; i < count; i++) {
        int64_t end = spans[i].offset + (spans[i].size + alignment - 1) / alignment * alignment;
        if (spans[i].lower < spans[i].upper && end > top) top = end;
    }
    assert_int_equal(top, peak);
    return peak;
}

static void nothing_to_pack(void **state)
{
    (void)state;
    assert_int_equal(pack_bound(NULL, 0, 256), 0);
    assert_int_equal(pack_spans(NULL, 0, 256, 0, 1), 0);
}

static void one_block(void **state)
{
    (void)state;
    struct span span = {5, 6, 100, -1};
    assert_int_equal(pack_bound(&span, 1, 1), 100);
    assert_int_equal(pack_bound(&span, 1, 256), 256);
    assert_int_equal(pack_checked(&span, 1, 256, 1), 256);
    assert_int_equal(span.offset, 0);
}

static void half_open_lifetimes_share(void **state)
{
    (void)state;
    struct span spans[] = {{0, 3, 7, 0}, {3, 5, 7, 0}, {5, 9, 7, 0}};
    assert_int_equal(pack_checked(spans, 3, 1, 1), 7);
}

/* Lives times sizes, by which blocks are put in order, are over 2^64. */
static void long_lives_of_large_blocks(void **state)
{
    (void)state;
    struct random random = random_open(31, PURPOSE_TEST, 0, 0);
    int exact = 0;
    for (int round = 0; round < 60; round++) {
        struct span spans[24];
        for (int i = 0; i < 24; i++) {
            int64_t lower = random_below(&random, 20), length = 1 + random_below(&random, 12);
            int64_t size = 1 + random_below(&random, 99);
            spans[i] = (struct span){lower << 54, (lower + length) << 54, size << 46, 0};
        }
        int64_t bound = pack_bound(spans, 24, 256);
        exact += pack_checked(spans, 24, 256, 0.05) == bound;
    }
    assert_true(exact > 30);
}

static void blocks_that_never_live(void **state)
{
    (void)state;
    struct span spans[] = {{0, 3, 7, 0}, {2, 2, 100, 5}, {3, 1, 50, 5}, {0, 9, 0, 5}};
    assert_int_equal(pack_bound(spans, 4, 1), 7);
    assert_int_equal(pack_checked(spans, 4, 1, 1), 7);
}

static void far_times_and_large_sizes(void **state)
{
    (void)state;
    int64_t far = (int64_t)1 << 62, large = (int64_t)1 << 50;
    struct span spans[] = {{-far, far, large, 0}, {-far, -far + 1, large, 0}, {far - 1, far, 3, 0}};
    assert_int_equal(pack_checked(spans, 3, 1, 1), 2 * large);
}

/* Greedy orders alone fail here: every block must be put where a search finds it. */
static void small_puzzle(void **state)
{
    (void)state;
    struct span spans[] = {{0, 3, 4, 0}, {3, 9, 4, 0}, {0, 9, 4, 0}, {9, 21, 4, 0}, {0, 21, 4, 0}};
    assert_int_equal(pack_checked(spans, 5, 1, 1), 12);
}

static void random_spans(struct span *spans, int count, uint64_t seed, uint32_t times, uint32_t sizes)
{
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < count; i++) {
        int64_t lower = random_below(&random, times);
        int64_t length = 1 + random_below(&random, random_below(&random, 4) ? 1 + times / 20 : times);
        spans[i] = (struct span){lower, lower + length, 1 + random_below(&random, sizes), -1};
    }
}

static void small_tables(void **state)
{
    (void)state;
    struct span spans[12];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        int count = 1 + (int)(seed % 12);
        random_spans(spans, count, seed, 12, 20);
        pack_checked(spans, count, seed % 3 ? 1 : 4, 0.002);
    }
}

static void random_tables(void **state)
{
    (void)state;
    struct span *spans = memory_new(3000, sizeof *spans);
    for (int count = 30; count <= 3000; count *= 10) {
        random_spans(spans, count, (uint64_t)count, 400, 1 << 20);
        int64_t bound = pack_bound(spans, count, 256);
        int64_t peak = pack_checked(spans, count, 256, 0.3);
        assert_true((double)peak < 1.25 * (double)bound);
    }
    free(spans);
}

static void time_may_be_up_at_once(void **state)
{
    (void)state;
    struct span spans[500];
    random_spans(spans, 500, 3, 200, 1000);
    pack_checked(spans, 500, 1, 0);
}

static void same_input_same_answer(void **state)
{
    (void)state;
    struct span first[200], second[200];
    random_spans(first, 200, 11, 100, 1000);
    memcpy(second, first, sizeof first);
    pack_spans(first, 200, 16, 0, 0.2);
    pack_spans(second, 200, 16, 0, 0.2);
    assert_memory_equal(first, second, sizeof first);
}

static void stops_at_the_capacity(void **state)
{
    (void)state;
    struct span spans[300];
    random_spans(spans, 300, 12, 100, 1000);
    int64_t bound = pack_bound(spans, 300, 1);
    assert_true(pack_spans(spans, 300, 1, 2 * bound, 60) <= 2 * bound);
}

/* Given a capacity that nothing fits into, all of the search runs: each table is packed soundly, no higher
 * than in no time. */
static void capacities_out_of_reach(void **state)
{
    (void)state;
    struct span spans[600], at_once[600];
    struct reason reason = {0};
    for (uint64_t seed = 0; seed < 4; seed++) {
        int count = 150 * (1 + (int)seed);
        random_spans(spans, count, 40 + seed, 100, 1000);
        memcpy(at_once, spans, sizeof at_once);
        int64_t bound = pack_bound(spans, count, 16);
        int64_t peak = pack_spans(spans, count, 16, bound, 0.3);
        if (!check_spans(spans, count, 16, peak, &reason)) fail_msg("%s", reason.text);
        assert_true(peak <= pack_spans(at_once, count, 16, bound, 0));
    }
}

/* Lifetimes of a network's training: what is saved forward and read backward nests like a stack,
 * gradients and workspaces come and go. */
static int network_spans(struct span *spans, int layers)
{
    struct random random = random_open(1, PURPOSE_TEST, 7, (uint64_t)layers);
    int count = 0;
    int64_t size = 1 << 24;
    for (int i = 0; i < layers; i++) {
        int back = 2 * layers - i;
        if (random_below(&random, 8) == 0 && size > 4096) size /= 2;
        int64_t bytes = size * (1 + random_below(&random, 4)) / 2;
        spans[count++] = (struct span){i, back + 1, bytes, 0};
        spans[count++] = (struct span){back - 1, back + 1, bytes, 0};
        spans[count++] = (struct span){i, i + 1, 1 + random_below(&random, 1 << 22), 0};
        spans[count++] = (struct span){back, back + 1, 1 + random_below(&random, 1 << 22), 0};
        spans[count++] = (struct span){back, 2 * layers + 2, 256 + random_below(&random, 1 << 20), 0};
        if (i % 3 == 0) spans[count++] = (struct span){i, i + 4, bytes, 0};
    }
    return count;
}

static void network_tables(void **state)
{
    (void)state;
    static const int layers[] = {5, 18, 50, 152};
    struct span spans[1000];
    for (int i = 0; i < 4; i++) {
        int count = network_spans(spans, layers[i]);
        int64_t bound = pack_bound(spans, count, 256);
        assert_true((double)pack_checked(spans, count, 256, 2) <= 1.004 * (double)bound);
    }
}

static void sixty_thousand_blocks(void **state)
{
    (void)state;
    struct span *spans = memory_new(70000, sizeof *spans);
    int count = network_spans(spans, 11000);
    assert_true(count > 58000);
    int64_t bound = pack_bound(spans, count, 256);
    assert_true((double)pack_checked(spans, count, 256, 2) <= 1.05 * (double)bound);
    free(spans);
}

/* Short lives all over the time: a few stretches of it are crowded more than others. */
static void crowded_stretches(void **state)
{
    (void)state;
    static const int longest[] = {50, 200};
    int count = (int)rounds(5000, 60000);
    struct span *spans = memory_new((size_t)count, sizeof *spans);
    for (int k = 0; k < 2; k++) {
        struct random random = random_open(1, PURPOSE_TEST, 8, (uint64_t)k);
        for (int i = 0; i < count; i++) {
            int64_t lower = random_below(&random, (uint32_t)(2 * count));
            spans[i] = (struct span){lower, lower + 1 + random_below(&random, (uint32_t)longest[k]),
                                     1 + random_below(&random, 10000), 0};
        }
        double bound = (double)pack_bound(spans, count, 1), peak = (double)pack_checked(spans, count, 1, 50);
        figure("%d blocks that live for up to %d of %d: %.4f of the bound", count, longest[k], 2 * count,
               peak / bound);
        assert_true(peak <= 1.01 * bound);
    }
    free(spans);
}

/* Without a structure of any kind. */
static void random_blocks_in_great_number(void **state)
{
    (void)state;
    const int count = 60000;
    struct span *spans = memory_new((size_t)count, sizeof *spans);
    for (uint32_t times = 400; times <= rounds(400, 10000); times *= 25) {
        random_spans(spans, count, times, times, 1 << 20);
        double bound = (double)pack_bound(spans, count, 256),
               peak = (double)pack_checked(spans, count, 256, 50);
        figure("%d blocks over %u times: %.4f of the bound", count, times, peak / bound);
        assert_true(peak <= 1.01 * bound);
    }
    free(spans);
}

/* Blocks that fill memory to the last byte at every moment, if each is put where it was cut out. */
static void cut_up(struct span *spans, int most, uint64_t seed)
{
    struct random random = random_open(1, PURPOSE_TEST, 9, seed);
    int count = 1;
    spans[0] = (struct span){0, 1 << 24, 1 << 30, 0};
    while (count < most) {
        /* The largest of a few. */
        struct span *piece = &spans[random_below(&random, (uint32_t)count)];
        for (int i = 0; i < 3; i++) {
            struct span *other = &spans[random_below(&random, (uint32_t)count)];
            if ((double)other->size * (double)(other->upper - other->lower) >
                (double)piece->size * (double)(piece->upper - piece->lower)) piece = other;
        }
        struct span rest = *piece;
        bool in_time = random_below(&random, 2);
        int64_t length = in_time ? piece->upper - piece->lower : piece->size;
        if (length < 2) continue;
        int64_t cut = 1 + random_below(&random, (uint32_t)(length - 1));
        if (in_time) rest.lower = piece->upper = piece->lower + cut;
        else rest.size = piece->size - cut, piece->size = cut;
        spans[count++] = rest;
    }
}

static void a_rectangle_cut_up(void **state)
{
    (void)state;
    const int count = (int)rounds(4000, 60000);
    struct span *spans = memory_new((size_t)count, sizeof *spans);
    for (uint64_t seed = 0; seed < 3; seed++) {
        cut_up(spans, count, seed);
        double bound = (double)pack_bound(spans, count, 1), peak = (double)pack_checked(spans, count, 1, 20);
        figure("a rectangle cut into %d: %.4f of the bound", count, peak / bound);
        assert_true(peak <= 1.01 * bound);
    }
    free(spans);
}

/* Some pieces are missing: nobody finds the rest again, and what stands out of the first attempts is worth
 * every further one. */
static void a_rectangle_with_holes(void **state)
{
    (void)state;
    enum { COUNT = 4000 };
    struct span *spans = memory_new(COUNT, sizeof *spans);
    int count = 0;
    cut_up(spans, COUNT, 0);
    for (int i = 0; i < COUNT; i++)
        if (i % 20 > 0) spans[count++] = spans[i];
    double bound = (double)pack_bound(spans, count, 1), peak = (double)pack_checked(spans, count, 1, 2);
    figure("a rectangle cut into %d, and a 20th lost: %.4f of the bound", COUNT, peak / bound);
    assert_true(peak <= 1.3 * bound);
    free(spans);
}

/* --- joining --- */

/* What is left of the joined blocks, piled up, keeps the blocks apart; returns how many are left. */
static int join_checked(const struct span *spans, int count)
{
    struct part_item *items = memory_new((size_t)count, sizeof *items);
    struct span *placed = memory_new((size_t)count, sizeof *placed);
    struct span *piled = memory_new((size_t)count, sizeof *piled);
    int64_t *offsets = memory_new((size_t)count, sizeof *offsets);
    int64_t *at = memory_new((size_t)count, sizeof *at);
    struct reason reason = {0};
    int64_t top = 0;
    for (int i = 0; i < count; i++)
        items[i] = (struct part_item){.lower = (int32_t)spans[i].lower, .upper = (int32_t)spans[i].upper,
                                      .size = spans[i].size, .born = spans[i].lower, .dies = spans[i].upper};
    struct join *join = join_open(items, count);
    int left = join_count(join);
    for (int i = 0; i < left; i++) {
        struct part_item item = join_item(join, i);
        assert_true(item.lower == item.born && item.upper == item.dies);
        piled[i] = (struct span){item.born, item.dies, item.size, 0};
        at[i] = top;
        top += item.size;
    }
    assert_int_equal(pack_bound(piled, left, 1), pack_bound(spans, count, 1));
    join_spread(join, at, offsets);
    for (int i = 0; i < count; i++) {
        placed[i] = spans[i];
        placed[i].offset = offsets[i];
    }
    if (!check_spans(placed, count, 1, top, &reason)) fail_msg("%s", reason.text);
    join_close(join);
    free(at);
    free(offsets);
    free(piled);
    free(placed);
    free(items);
    return left;
}

static void what_was_cut_is_joined(void **state)
{
    (void)state;
    struct span *spans = memory_new(3000, sizeof *spans);
    for (uint64_t seed = 0; seed < 5; seed++) {
        cut_up(spans, 3000, seed);
        assert_in_range(join_checked(spans, 3000), 1, 100);
    }
    free(spans);
}

static void what_is_joined_stays_apart(void **state)
{
    (void)state;
    struct span spans[300];
    for (uint64_t seed = 0; seed < 300; seed++) {
        int count = 1 + (int)seed;
        random_spans(spans, count, seed, 10, 4);
        assert_in_range(join_checked(spans, count), 1, count);
    }
}

/* --- tables in a row --- */

/* A table at random, packed as well as it goes; the same again and again, forwards and backwards, with
 * smaller and shorter blocks, fits into what the one takes. */
static void tables_in_a_row(void **state)
{
    (void)state;
    enum { ONE = 120, COPIES = 200 };
    struct span one[ONE], *spans = memory_new(ONE * COPIES, sizeof *spans);
    struct random random = random_open(1, PURPOSE_TEST, 11, 0);
    struct reason reason = {0};
    random_spans(one, ONE, 5, 60, 1000);
    for (int i = 0; i < ONE; i++) {
        one[i].lower *= 10;
        one[i].upper *= 10;
    }
    int64_t capacity = pack_checked(one, ONE, 1, 1), bound = pack_bound(one, ONE, 1);
    for (int i = 0; i < ONE * COPIES; i++) {
        const struct span *model = &one[i % ONE];
        int64_t time = i / ONE * 10000, less = i / ONE % 3 == 1 ? random_below(&random, 10) : 0;
        spans[i] = (struct span){time + model->lower + less / 3, time + model->upper - less / 3, 0, -1};
        spans[i].size = model->size > less ? model->size - less : model->size;
        if (i / ONE % 3 == 2) {
            spans[i].lower = time + 1000 - model->upper;
            spans[i].upper = time + 1000 - model->lower;
        }
    }
    assert_int_equal(pack_bound(spans, ONE * COPIES, 1), bound);
    assert_true(pack_spans(spans, ONE * COPIES, 1, capacity, 20) <= capacity);
    if (!check_spans(spans, ONE * COPIES, 1, capacity, &reason)) fail_msg("%s", reason.text);
    free(spans);
}

/* --- repair --- */

#define REPAIRED 400

/* One upon the other at first, which nobody needs. */
static int64_t pile_up(struct repair_block *blocks, uint64_t seed)
{
    struct random random = random_open(1, PURPOSE_TEST, 10, seed);
    int64_t top = 0;
    for (int i = 0; i < REPAIRED; i++) {
        int32_t lower = (int32_t)random_below(&random, 200);
        int64_t size = 1 + random_below(&random, 1000);
        blocks[i] = (struct repair_block){lower, lower + 1 + (int32_t)random_below(&random, 40), size, top};
        top += size;
    }
    return top;
}

static void assert_apart(const struct repair_block *blocks, int64_t peak)
{
    struct span spans[REPAIRED];
    struct reason reason = {0};
    for (int i = 0; i < REPAIRED; i++)
        spans[i] = (struct span){blocks[i].lower, blocks[i].upper, blocks[i].size, blocks[i].offset};
    if (!check_spans(spans, REPAIRED, 1, peak, &reason)) fail_msg("%s", reason.text);
}

static void what_sticks_out_is_put_elsewhere(void **state)
{
    (void)state;
    struct repair_block blocks[REPAIRED], again[REPAIRED];
    struct span spans[REPAIRED];
    for (uint64_t seed = 0; seed < 5; seed++) {
        int64_t pile = pile_up(blocks, seed), visits = 0, none = 0;
        for (int i = 0; i < REPAIRED; i++)
            spans[i] = (struct span){blocks[i].lower, blocks[i].upper, blocks[i].size, 0};
        int64_t bound = pack_bound(spans, REPAIRED, 1);
        struct repair_limits limits = {.goal = bound, .visits = 3000000, .deadline = 1e18};
        int64_t peak = repair_peak(blocks, REPAIRED, &limits, &visits);
        assert_apart(blocks, peak);
        assert_true(peak < pile / 2 && peak >= bound);
        assert_in_range(visits, 1, 2 * limits.visits);
        pile_up(again, seed);
        assert_int_equal(repair_peak(again, REPAIRED, &limits, &none), peak);
        for (int i = 0; i < REPAIRED; i++) assert_int_equal(again[i].offset, blocks[i].offset);
        limits.goal = peak;                           /* good enough: nothing is moved */
        assert_int_equal(repair_peak(again, REPAIRED, &limits, &none), peak);
        for (int i = 0; i < REPAIRED; i++) assert_int_equal(again[i].offset, blocks[i].offset);
    }
}

/* --- from the bottom up --- */

static int64_t rest_of(const struct skyline_block *blocks, const int64_t *offsets, int count, int which)
{
    int64_t rest = 0;
    for (int i = 0; i < count; i++) {
        bool together = blocks[i].lower < blocks[which].upper && blocks[which].lower < blocks[i].upper;
        if (offsets[i] >= 0 && together && offsets[i] + blocks[i].size > rest)
            rest = offsets[i] + blocks[i].size;
    }
    return rest;
}

/* Every time the block that can be placed lowest, of several the one of the lowest rank. */
static void place_slowly(const struct skyline_block *blocks, const int32_t *rank, int count, int64_t *offsets)
{
    for (int i = 0; i < count; i++) offsets[i] = -1;
    for (int placed = 0; placed < count; placed++) {
        int64_t best_rest = INT64_MAX;
        int best = -1;
        for (int i = 0; i < count; i++) {
            int64_t rest = offsets[i] < 0 ? rest_of(blocks, offsets, count, i) : INT64_MAX;
            if (rest > best_rest || offsets[i] >= 0 || (rest == best_rest && rank[i] > rank[best])) continue;
            best_rest = rest;
            best = i;
        }
        offsets[best] = best_rest;
    }
}

static void valleys_are_filled_as_they_should(void **state)
{
    (void)state;
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    for (int round = 0; round < 600; round++) {
        struct skyline_block blocks[60];
        int32_t rank[60];
        int64_t right[60], offsets[60], peak = 0;
        int count = 1 + (int)random_below(&random, 60), times = 2 + (int)random_below(&random, 40);
        for (int i = 0; i < count; i++) {
            int32_t lower = (int32_t)random_below(&random, (uint32_t)times - 1);
            int32_t upper = lower + 1 + (int32_t)random_below(&random, (uint32_t)(times - 1 - lower));
            blocks[i] = (struct skyline_block){lower, upper, 1 + random_below(&random, 9)};
            rank[i] = (int32_t)((i + 7 * round) % count);
        }
        place_slowly(blocks, rank, count, right);
        for (int i = 0; i < count; i++)
            if (right[i] + blocks[i].size > peak) peak = right[i] + blocks[i].size;
        struct skyline *skyline = skyline_open(blocks, count, times);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(skyline_place(skyline, rank, peak, offsets), peak);
            assert_memory_equal(offsets, right, (size_t)count * sizeof *offsets);
            assert_true(skyline_place(skyline, rank, peak - 1, offsets) == INT64_MAX);
        }
        skyline_close(skyline);
    }
}

/* --- the judge --- */

/* Every pair, as the definition says. */
static bool overlap_somewhere(const struct span *spans, int count)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < i; j++) {
            const struct span *a = &spans[i], *b = &spans[j];
            bool together = a->lower < b->upper && b->lower < a->upper && a->lower < a->upper &&
                            b->lower < b->upper;
            if (together && a->offset < b->offset + b->size && b->offset < a->offset + a->size &&
                a->size && b->size)
                return true;
        }
    return false;
}

static void judge_agrees_with_the_definition(void **state)
{
    (void)state;
    struct random random = random_open(2, PURPOSE_TEST, 1, 0);
    int wrong = 0;
    for (int round = 0; round < 20000; round++) {
        struct span spans[5];
        int count = 1 + (int)random_below(&random, 5);
        for (int i = 0; i < count; i++)
            spans[i] = (struct span){random_below(&random, 6), random_below(&random, 8),
                                     random_below(&random, 4), random_below(&random, 12)};
        struct reason reason;
        bool overlap = overlap_somewhere(spans, count);
        assert_int_equal(check_spans(spans, count, 1, 100, &reason), !overlap);
        wrong += overlap;
    }
    assert_true(wrong > 1000 && wrong < 19000);
}

static void judge_finds_planted_faults(void **state)
{
    (void)state;
    struct span spans[400];
    struct reason reason;
    random_spans(spans, 400, 21, 150, 5000);
    int64_t peak = pack_checked(spans, 400, 64, 0.1);
    for (int i = 0; i < 400; i++) {
        int64_t good = spans[i].offset;
        for (int64_t moved = good - 64; moved <= good + 64; moved += 128) {
            spans[i].offset = moved;
            bool wrong = moved < 0 || moved + spans[i].size > peak || overlap_somewhere(spans, 400);
            assert_int_equal(check_spans(spans, 400, 64, peak, &reason), !wrong);
        }
        spans[i].offset = good;
    }
}

static void expect_fault(struct span span, int64_t alignment, int64_t limit, const char *words)
{
    struct reason reason = {0};
    assert_false(check_spans(&span, 1, alignment, limit, &reason));
    assert_non_null(strstr(reason.text, words));
}

static void judge_checks_places(void **state)
{
    (void)state;
    expect_fault((struct span){0, 1, 10, 3}, 4, 100, "multiple of 4");
    expect_fault((struct span){0, 1, 10, -4}, 4, 100, "multiple of 4");
    expect_fault((struct span){0, 1, 10, 92}, 4, 100, "reaches over the limit");
    expect_fault((struct span){0, 1, INT64_MAX, 4}, 4, 100, "reaches over the limit");
    expect_fault((struct span){0, 1, -1, 4}, 4, 100, "negative");
}

/* --- tables in files --- */

struct table {
    struct span *spans;
    char **ids;
    int count;
};

static void table_free(struct table *table)
{
    for (int i = 0; i < table->count; i++) free(table->ids[i]);
    free(table->ids);
    free(table->spans);
}

static enum status read_csv(const char *text, size_t length, struct table *table, struct caught *caught)
{
    char path[] = "/tmp/test_pack.XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, text, length), (ssize_t)length);
    close(descriptor);
    caught_begin(caught);
    enum status status = pack_read_csv(path, &table->spans, &table->ids, &table->count);
    caught_end(caught);
    unlink(path);
    return status;
}

static struct table read_good(const char *text)
{
    struct table table = {0};
    struct caught caught;
    enum status status = read_csv(text, strlen(text), &table, &caught);
    if (status != OK) fail_msg("%s", caught.words.data);
    text_free(&caught.words);
    return table;
}

static void expect_csv_refused(const char *text, const char *words, int errors)
{
    struct table table = {.count = 77};
    struct caught caught;
    assert_int_equal(read_csv(text, strlen(text), &table, &caught), BAD_DATA);
    assert_int_equal(table.count, 77);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, errors);
    text_free(&caught.words);
}

static void tables_are_read(void **state)
{
    (void)state;
    static const char *const texts[] = {
        "id,lower,upper,size\nb1,0,3,4\nb2,-3,9,5\n",
        "\xef\xbb\xbfsize, id ,upper,lower\r\n4,b1,3,0\r\n\r\n5 , b2,9,-3",
        "id,start,end,size\nb1,0,2,4\nb2,-3,8,5\n",
        "id,begin,upper,size\nb1,0,3,4\nb2,-3,9,5\n\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct table table = read_good(texts[i]);
        assert_int_equal(table.count, 2);
        assert_string_equal(table.ids[0], "b1");
        assert_string_equal(table.ids[1], "b2");
        assert_int_equal(table.spans[0].upper, 3);
        assert_int_equal(table.spans[1].lower, -3);
        assert_int_equal(table.spans[1].upper, 9);
        assert_int_equal(table.spans[1].size, 5);
        table_free(&table);
    }
}

static void empty_table(void **state)
{
    (void)state;
    struct table table = read_good("id,lower,upper,size\n");
    assert_int_equal(table.count, 0);
    table_free(&table);
    expect_csv_refused("", "empty", 1);
}

#define HEADER "id,lower,upper,size\n"

static void malformed_tables(void **state)
{
    (void)state;
    expect_csv_refused("id,lower,upper\n", ":1: fewer than 4 columns", 1);
    expect_csv_refused("id,lower,upper,size,x\n", ":1: more than 4 columns", 1);
    expect_csv_refused("id,lower,upper,bytes\n", ":1: unknown column 'bytes'", 1);
    expect_csv_refused("id,lower,start,size\n", ":1: column 'start' is there twice", 1);
    expect_csv_refused("id,end,upper,size\n", ":1: column 'upper' is there twice", 1);
    expect_csv_refused(HEADER "a,0,1,2\nb,0,1\n", ":3: fewer than", 1);
    expect_csv_refused(HEADER "a,0,1,2,3\n", ":2: more than", 1);
    expect_csv_refused(HEADER "a,0,1,x\n", ":2: not a whole number: 'x'", 1);
    expect_csv_refused(HEADER "a,0,1,\n", ":2: not a whole number: ''", 1);
    expect_csv_refused(HEADER "a,0,1,1.5\n", ":2: not a whole number", 1);
    expect_csv_refused(HEADER "a,0,1,99999999999999999999\n", ":2: 99999999999999999999 is too large", 1);
    expect_csv_refused(HEADER ",0,1,1\n", ":2: the id is empty", 1);
    expect_csv_refused(HEADER "a\x1b[2J,0,1,1\n", ":2: the id 'a\\x1b[2J' is not plain text", 1);
    expect_csv_refused(HEADER "a,1,1,1\n", ":2: the lifetime is empty", 1);
    expect_csv_refused(HEADER "a,2,1,1\n", ":2: the lifetime is empty", 1);
    expect_csv_refused(HEADER "a,0,1,-1\n", ":2: the size is negative", 1);
    expect_csv_refused(HEADER "a,0,1,1\nb,0,1,1\na,0,1,1\n", ":4: the id 'a' is that of line 2", 1);
    expect_csv_refused(HEADER "a,0,1,1152921504606846976\nb,0,1,1\n", ":3: the sizes add up", 1);
}

static void every_mistake_in_a_table(void **state)
{
    (void)state;
    struct text text = {0};
    text_add(&text, HEADER "a\nb,0,1,1\nc,1,1,1\n");
    expect_csv_refused(text.data, ":4: the lifetime", 2);
    for (int i = 0; i < 30; i++) text_add(&text, "x\n");
    expect_csv_refused(text.data, ": 12 more mistakes", 21);
    text_free(&text);
}

static void binary_table(void **state)
{
    (void)state;
    struct table table;
    struct caught caught;
    assert_int_equal(read_csv("id\0,lower\n\0\n\0\n", 14, &table, &caught), BAD_DATA);
    assert_true(caught_has(&caught, ":1: a NUL byte"));
    text_free(&caught.words);
}

static void tables_that_are_not_there(void **state)
{
    (void)state;
    struct table table;
    struct caught caught;
    caught_begin(&caught);
    enum status missing = pack_read_csv("/nonexistent.csv", &table.spans, &table.ids, &table.count);
    enum status folder = pack_read_csv("/tmp", &table.spans, &table.ids, &table.count);
    caught_end(&caught);
    assert_int_equal(missing, BAD_DATA);
    assert_int_equal(folder, BAD_DATA);
    assert_true(caught_has(&caught, "cannot read /tmp: Is a directory"));
    text_free(&caught.words);
}

static void noise_in_tables(void **state)
{
    (void)state;
    static const char *const pieces[] = {"a", "b", ",", ",", ",", "1", "20", "\n", "\n", "-", " ", "\xff",
                                         "x1,2,30,4\n", "y,0,5,6\n", "\"", "9999999999999999999"};
    struct random random = random_open(3, PURPOSE_TEST, 0, 0);
    int taken = 0;
    for (int round = 0; round < 2000; round++) {
        struct text text = {0};
        text_add(&text, "%s", round % 4 ? HEADER : "");
        for (uint32_t i = random_below(&random, 12); i > 0; i--)
            text_add(&text, "%s", pieces[random_below(&random, sizeof pieces / sizeof *pieces)]);
        struct table table;
        struct caught caught;
        enum status status = read_csv(text.data, text.length, &table, &caught);
        text_free(&text);
        text_free(&caught.words);
        assert_int_equal(status, caught.errors ? BAD_DATA : OK);
        if (status != OK) continue;
        pack_checked(table.spans, table.count, 1, 0.001);
        table_free(&table);
        taken++;
    }
    assert_true(taken > 50);
}

static struct table published_table(char name)
{
    struct table table;
    char *path = text_format("%s/planner/%c.1048576.csv", getenv("AMPTRAIN_DATA"), name);
    enum status status = pack_read_csv(path, &table.spans, &table.ids, &table.count);
    free(path);
    assert_int_equal(status, OK);
    return table;
}

/* The published tables that need a real search. */
static void published_tables(void **state)
{
    (void)state;
    const char *data = getenv("AMPTRAIN_DATA");
    if (!data || !*data) skip();
    for (char name = 'A'; name <= 'E'; name++) {
        struct table table = published_table(name);
        struct reason reason;
        assert_true(pack_spans(table.spans, table.count, 1, 1048576, 600) <= 1048576);
        assert_true(check_spans(table.spans, table.count, 1, 1048576, &reason));
        table_free(&table);
    }
}

/* The same one after another, within the time and the capacity of one. */
static void published_tables_in_a_row(void **state)
{
    (void)state;
    const char *data = getenv("AMPTRAIN_DATA");
    if (!data || !*data) skip();
    const char *names = rounds(0, 1) ? "ABCDE" : "BD";
    int count = 0, most = (int)rounds(3000, 60000), kinds = (int)strlen(names);
    struct span *spans = memory_new((size_t)most, sizeof *spans);
    struct reason reason = {0};
    for (int64_t copy = 0; count < most; copy++) {
        struct table table = published_table(names[copy % kinds]);
        for (int i = 0; i < table.count && count < most; i++) {
            spans[count] = table.spans[i];
            spans[count].lower += copy << 40;
            spans[count++].upper += copy << 40;
        }
        table_free(&table);
    }
    clock_t start = clock();
    int64_t peak = pack_spans(spans, count, 1, 1048576, 600);
    figure("tables %s in a row, %d blocks: peak %lld in %.1f s of a processor", names, count, (long long)peak,
           (double)(clock() - start) / CLOCKS_PER_SEC);
    assert_true(peak <= 1048576);
    if (!check_spans(spans, count, 1, peak, &reason)) fail_msg("%s", reason.text);
    free(spans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nothing_to_pack),
        cmocka_unit_test(one_block),
        cmocka_unit_test(half_open_lifetimes_share),
        cmocka_unit_test(long_lives_of_large_blocks),
        cmocka_unit_test(blocks_that_never_live),
        cmocka_unit_test(far_times_and_large_sizes),
        cmocka_unit_test(small_puzzle),
        cmocka_unit_test(small_tables),
        cmocka_unit_test(random_tables),
        cmocka_unit_test(time_may_be_up_at_once),
        cmocka_unit_test(same_input_same_answer),
        cmocka_unit_test(stops_at_the_capacity),
        cmocka_unit_test(capacities_out_of_reach),
        cmocka_unit_test(network_tables),
        cmocka_unit_test(sixty_thousand_blocks),
        cmocka_unit_test(crowded_stretches),
        cmocka_unit_test(random_blocks_in_great_number),
        cmocka_unit_test(a_rectangle_cut_up),
        cmocka_unit_test(a_rectangle_with_holes),
        cmocka_unit_test(what_was_cut_is_joined),
        cmocka_unit_test(what_is_joined_stays_apart),
        cmocka_unit_test(tables_in_a_row),
        cmocka_unit_test(what_sticks_out_is_put_elsewhere),
        cmocka_unit_test(valleys_are_filled_as_they_should),
        cmocka_unit_test(judge_agrees_with_the_definition),
        cmocka_unit_test(judge_finds_planted_faults),
        cmocka_unit_test(judge_checks_places),
        cmocka_unit_test(tables_are_read),
        cmocka_unit_test(empty_table),
        cmocka_unit_test(malformed_tables),
        cmocka_unit_test(every_mistake_in_a_table),
        cmocka_unit_test(binary_table),
        cmocka_unit_test(tables_that_are_not_there),
        cmocka_unit_test(noise_in_tables),
        cmocka_unit_test(published_tables),
        cmocka_unit_test(published_tables_in_a_row),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
