/* The packer and its judge: on tables made by rule, at random, with planted faults, and real ones. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "alloc/check.h"
#include "alloc/pack.h"
#include "alloc/range_max.h"
#include "alloc/search.h"
#include "alloc/skyline.h"
#include "alloc/skyline_search.h"
#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/support/caught.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

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
    assert_int_equal(pack_bound(NULL, 0, 256), 0);
    assert_int_equal(pack_spans(NULL, 0, 256, 0, 1), 0);
    skyline_close(NULL);
    search_close(NULL);
}

static void one_block(void **state)
{
    struct span span = {5, 6, 100, -1};
    assert_int_equal(pack_bound(&span, 1, 1), 100);
    assert_int_equal(pack_bound(&span, 1, 256), 256);
    assert_int_equal(pack_checked(&span, 1, 256, 1), 256);
    assert_int_equal(span.offset, 0);
}

static void half_open_lifetimes_share(void **state)
{
    struct span spans[] = {{0, 3, 7, 0}, {3, 5, 7, 0}, {5, 9, 7, 0}};
    assert_int_equal(pack_checked(spans, 3, 1, 1), 7);
}

/* Lives times sizes, by which blocks are put in order, are over 2^64. */
static void long_lives_of_large_blocks(void **state)
{
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
    struct span spans[] = {{0, 3, 7, 0}, {2, 2, 100, 5}, {3, 1, 50, 5}, {0, 9, 0, 5}};
    assert_int_equal(pack_bound(spans, 4, 1), 7);
    assert_int_equal(pack_checked(spans, 4, 1, 1), 7);
}

static void far_times_and_large_sizes(void **state)
{
    int64_t far = (int64_t)1 << 62, large = (int64_t)1 << 50;
    struct span spans[] = {{-far, far, large, 0}, {-far, -far + 1, large, 0}, {far - 1, far, 3, 0}};
    assert_int_equal(pack_checked(spans, 3, 1, 1), 2 * large);
}

/* Greedy orders alone fail here: every block must be put where a search finds it. */
static void small_puzzle(void **state)
{
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
    struct span spans[12];
    for (uint64_t seed = 0; seed < 2000; seed++) {
        int count = 1 + (int)(seed % 12);
        random_spans(spans, count, seed, 12, 20);
        pack_checked(spans, count, seed % 3 ? 1 : 4, 0.002);
    }
}

static void random_tables(void **state)
{
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
    struct span spans[500];
    random_spans(spans, 500, 3, 200, 1000);
    pack_checked(spans, 500, 1, 0);
}

static void same_input_same_answer(void **state)
{
    struct span first[200], second[200];
    random_spans(first, 200, 11, 100, 1000);
    memcpy(second, first, sizeof first);
    pack_spans(first, 200, 16, 0, 0.2);
    pack_spans(second, 200, 16, 0, 0.2);
    assert_memory_equal(first, second, sizeof first);
}

static void stops_at_the_capacity(void **state)
{
    struct span spans[300];
    random_spans(spans, 300, 12, 100, 1000);
    int64_t bound = pack_bound(spans, 300, 1);
    assert_true(pack_spans(spans, 300, 1, 2 * bound, 60) <= 2 * bound);
}

/* Given a capacity that nothing fits into, all of the search runs: each table is packed soundly, no higher
 * than in no time. */
/* Blocks whose sizes always add up to 8, and which fit into 9. */
static void proofs_end_the_search(void **state)
{
    struct span spans[] = {
        {0, 3, 4, 0}, {0, 2, 3, 0}, {0, 1, 1, 0}, {1, 7, 1, 0}, {2, 6, 1, 0}, {2, 4, 2, 0}, {3, 6, 1, 0},
        {3, 5, 2, 0}, {3, 5, 1, 0}, {4, 5, 2, 0}, {5, 8, 4, 0}, {5, 6, 1, 0}, {6, 8, 3, 0}, {7, 8, 1, 0},
    };
    const int count = sizeof spans / sizeof *spans;
    double begin = clock_seconds();
    for (int i = 0; i < count; i++) spans[i].size <<= 30;
    assert_int_equal(pack_bound(spans, count, 1), (int64_t)8 << 30);
    assert_int_equal(pack_checked(spans, count, 1, 600), (int64_t)9 << 30);
    assert_true(pack_spans(spans, count, 1, (int64_t)8 << 30, 600) > (int64_t)8 << 30);
    assert_true(clock_seconds() - begin < 100);
}

static void capacities_out_of_reach(void **state)
{
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
    struct span *spans = memory_new(70000, sizeof *spans);
    int count = network_spans(spans, 11000);
    assert_true(count > 58000);
    int64_t bound = pack_bound(spans, count, 256);
    assert_true((double)pack_checked(spans, count, 256, 2) <= 1.05 * (double)bound);
    free(spans);
}

/* --- what the portfolio is made of --- */

/* Blocks of small sizes over few times. */
static struct table small_table(struct random *random, int count, int times)
{
    struct table table = {.blocks = memory_new((size_t)count, sizeof *table.blocks), .count = count,
                          .times = times, .load = memory_new((size_t)times + 1, sizeof *table.load)};
    for (int i = 0; i < count; i++) {
        int32_t lower = (int32_t)random_below(random, (uint32_t)times - 1);
        int32_t upper = lower + 1 + (int32_t)random_below(random, (uint32_t)(times - 1 - lower));
        table.blocks[i] = (struct block){lower, upper, 1 + random_below(random, 9), upper - lower};
        for (int32_t t = lower; t < upper; t++) table.load[t] += table.blocks[i].size;
    }
    for (int32_t t = 0; t < times; t++)
        if (table.load[t] > table.bound) table.bound = table.load[t];
    return table;
}

static bool together(const struct block *a, const struct block *b)
{
    return a->lower < b->upper && b->lower < a->upper;
}

/* The lowest offset above all that is placed (offsets >= 0) and alive with the block. */
static int64_t rest_of(const struct table *table, const int64_t *offsets, int which)
{
    int64_t rest = 0;
    for (int i = 0; i < table->count; i++) {
        const struct block *block = &table->blocks[i];
        if (offsets[i] >= 0 && together(block, &table->blocks[which]) && offsets[i] + block->size > rest)
            rest = offsets[i] + block->size;
    }
    return rest;
}

static void assert_sound(const struct table *table, const int64_t *offsets)
{
    for (int i = 0; i < table->count; i++)
        for (int j = 0; j < i; j++) {
            const struct block *a = &table->blocks[i], *b = &table->blocks[j];
            bool overlap = offsets[i] < offsets[j] + b->size && offsets[j] < offsets[i] + a->size;
            assert_false(together(a, b) && overlap);
        }
}

/* Every time the block that can be placed lowest, of several the one of the lowest rank. */
static void place_slowly(const struct table *table, const int32_t *rank, int64_t *offsets)
{
    for (int i = 0; i < table->count; i++) offsets[i] = -1;
    for (int placed = 0; placed < table->count; placed++) {
        int64_t best_rest = INT64_MAX;
        int best = -1;
        for (int i = 0; i < table->count; i++) {
            int64_t rest = offsets[i] < 0 ? rest_of(table, offsets, i) : INT64_MAX;
            if (rest > best_rest || offsets[i] >= 0 || (rest == best_rest && rank[i] > rank[best])) continue;
            best_rest = rest;
            best = i;
        }
        offsets[best] = best_rest;
    }
}

static void skylines_are_filled_from_the_lowest_valley(void **state)
{
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    for (int round = 0; round < 600; round++) {
        int32_t rank[60];
        int64_t right[60], offsets[60];
        int count = 1 + (int)random_below(&random, 60);
        struct table table = small_table(&random, count, 2 + (int)random_below(&random, 40));
        for (int i = 0; i < count; i++) rank[i] = (int32_t)((i + 7 * round) % count);
        place_slowly(&table, rank, right);
        int64_t peak = table_peak(&table, right);
        struct skyline *skyline = skyline_open(&table);
        for (int again = 0; again < 2; again++) {
            assert_int_equal(skyline_place(skyline, rank, peak, offsets), peak);
            assert_memory_equal(offsets, right, (size_t)count * sizeof *offsets);
            assert_true(skyline_place(skyline, rank, peak - 1, offsets) == INT64_MAX);
        }
        skyline_close(skyline);
        table_close(&table);
    }
}

/* UBSan tells. */
static void weights_do_not_overflow(void **state)
{
    const struct span spans[] = {{0, 2, (int64_t)1 << 59, 0}, {1, 3, (int64_t)1 << 59, 0}};
    struct table table = table_open(spans, 2, 1);
    struct skyline_search *search = skyline_search_open(&table, 0);
    int64_t offsets[2];
    for (int turn = 0; turn < 100; turn++)
        assert_int_equal(skyline_search_turn(search, INT64_MAX, offsets), (int64_t)1 << 60);
    skyline_search_close(search);
    table_close(&table);
}

/* True if a canonical placement fits, found by trying all: blocks by offset and then by number, each as low
 * as those before it allow. offsets[] are -1 for what is to be placed after block `last` at `floor`. */
static bool fits_somehow(const struct table *table, int64_t capacity, int64_t *offsets, int64_t floor,
                         int last)
{
    bool all = true, found = false;
    for (int i = 0; i < table->count && !found; i++) {
        if (offsets[i] >= 0) continue;
        all = false;
        int64_t rest = rest_of(table, offsets, i);
        if (rest + table->blocks[i].size > capacity || rest < floor || (rest == floor && i < last)) continue;
        offsets[i] = rest;
        found = fits_somehow(table, capacity, offsets, rest, i);
        offsets[i] = -1;
    }
    return all || found;
}

/* Always full: at each time about half of what is alive dies, and other blocks of as many bytes are born. */
static struct table full_table(struct random *random, int64_t bytes, int times)
{
    struct table table = {.times = times + 1, .bound = bytes};
    table.load = memory_new((size_t)times + 2, sizeof *table.load);
    int64_t room = bytes;
    for (int32_t t = 0; t < times; t++, room = 0) {
        for (int i = 0; i < table.count; i++) {
            if (table.blocks[i].upper < times || random_below(random, 2)) continue;
            table.blocks[i].upper = t;
            room += table.blocks[i].size;
        }
        for (int64_t size; room > 0; room -= size) {
            size = 1 + random_below(random, (uint32_t)room);
            *array_push(table.blocks, table.count) = (struct block){t, times, size, 0};
        }
        table.load[t] = bytes;
    }
    for (int i = 0; i < table.count; i++)
        table.blocks[i].life = table.blocks[i].upper - table.blocks[i].lower;
    return table;
}

/* Finds a placement wherever there is one, and nowhere else; one search serves several capacities. */
static void the_search_is_exact(void **state)
{
    struct random random = random_open(14, PURPOSE_TEST, 0, 0);
    int above = 0, tried = 0;
    while (tried < 600) {
        int64_t offsets[14];
        struct table table = full_table(&random, 12, 6);
        struct search_limits limits = {.visits = INT64_MAX / 2, .deadline = 1e18};
        if (table.count <= 12) {
            struct search *search = search_open(&table);
            for (limits.capacity = 11; limits.capacity <= 13; limits.capacity++) {
                for (int i = 0; i < table.count; i++) offsets[i] = -1;
                bool fits = fits_somehow(&table, limits.capacity, offsets, 0, -1);
                assert_int_equal(search_place(search, &limits, offsets), fits);
                above += !fits && limits.capacity >= 12;
                if (!fits) continue;
                assert_true(table_peak(&table, offsets) <= limits.capacity);
                assert_sound(&table, offsets);
            }
            limits.visits = 0;
            limits.capacity = 13;
            assert_false(search_place(search, &limits, offsets));
            search_close(search);
            tried++;
        }
        table_close(&table);
    }
    figure("%d of %d tables do not fit", above, tried);
    assert_true(above > 0);
}

static void maxima_of_every_range(void **state)
{
    struct random random = random_open(9, PURPOSE_TEST, 0, 0);
    for (int count = 1; count <= 40; count++) {
        int64_t values[40];
        for (int i = 0; i < count; i++) values[i] = (int64_t)random_below(&random, 100) - 50;
        struct range_max maxima = range_max_open(values, count);
        for (int lower = 0; lower < count; lower++) {
            int64_t most = INT64_MIN;
            for (int upper = lower + 1; upper <= count; upper++) {
                if (values[upper - 1] > most) most = values[upper - 1];
                assert_int_equal(range_max_of(&maxima, lower, upper), most);
            }
        }
        range_max_close(&maxima);
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
    expect_fault((struct span){0, 1, 10, 3}, 4, 100, "multiple of 4");
    expect_fault((struct span){0, 1, 10, -4}, 4, 100, "multiple of 4");
    expect_fault((struct span){0, 1, 10, 92}, 4, 100, "exceeds the limit");
    expect_fault((struct span){0, 1, 10, 104}, 4, 100, "exceeds the limit");
    expect_fault((struct span){0, 1, INT64_MAX, 4}, 4, 100, "exceeds the limit");
    expect_fault((struct span){0, 1, -1, 4}, 4, 100, "negative");
}

/* --- tables in files --- */

struct csv {
    struct span *spans;
    char **ids;
    int count;
};

static void csv_free(struct csv *table)
{
    for (int i = 0; i < table->count; i++) free(table->ids[i]);
    free(table->ids);
    free(table->spans);
}

static enum status read_csv(const char *text, size_t length, struct csv *table, struct caught *caught)
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

static struct csv read_good(const char *text)
{
    struct csv table = {0};
    struct caught caught;
    enum status status = read_csv(text, strlen(text), &table, &caught);
    if (status != OK) fail_msg("%s", caught.words.data);
    text_free(&caught.words);
    return table;
}

static void expect_csv_refused(const char *text, const char *words)
{
    struct csv table = {.count = 77};
    struct caught caught;
    assert_int_equal(read_csv(text, strlen(text), &table, &caught), BAD_DATA);
    assert_int_equal(table.count, 77);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, 1);
    text_free(&caught.words);
}

static void tables_are_read(void **state)
{
    static const char *const texts[] = {
        "id,lower,upper,size\nb1,0,3,4\nb2,-3,9,5\n",
        "\xef\xbb\xbfid,lower,upper,size\r\nb1,0,3,4\r\n\r\n b2,-3 ,9,5",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct csv table = read_good(texts[i]);
        assert_int_equal(table.count, 2);
        assert_string_equal(table.ids[0], "b1");
        assert_string_equal(table.ids[1], "b2");
        assert_int_equal(table.spans[0].upper, 3);
        assert_int_equal(table.spans[1].lower, -3);
        assert_int_equal(table.spans[1].upper, 9);
        assert_int_equal(table.spans[1].size, 5);
        csv_free(&table);
    }
}

static void empty_table(void **state)
{
    struct csv table = read_good("id,lower,upper,size\n");
    assert_int_equal(table.count, 0);
    csv_free(&table);
    expect_csv_refused("", "empty");
}

#define HEADER "id,lower,upper,size\n"

static void malformed_tables(void **state)
{
    expect_csv_refused("id,lower,upper\n", ":1: expected a header id,lower,upper,size");
    expect_csv_refused("\n0,1,2,3\n", ":2: expected a header");
    expect_csv_refused("id;lower;upper;size\na;0;1;1\n", ":1: expected a header");
    expect_csv_refused("\xff\xfei\nd", "is UTF-16; save it as UTF-8");
    expect_csv_refused(HEADER "\"a,b\",0,1,1\n", ":2: the id 'a,b' is not plain text");
    expect_csv_refused(HEADER "a,0,1,2\nb,0,1\n", ":3: fewer than");
    expect_csv_refused(HEADER "a,0,1,2,3\n", ":2: more than");
    expect_csv_refused(HEADER "a,0,1,x\n", ":2: not a whole number: 'x'");
    expect_csv_refused(HEADER "a,0,1,\n", ":2: not a whole number: ''");
    expect_csv_refused(HEADER "a,0,1,1.5\n", ":2: not a whole number");
    expect_csv_refused(HEADER "a,0,1,99999999999999999999\n", ":2: 99999999999999999999 is too large");
    expect_csv_refused(HEADER ",0,1,1\n", ":2: the id is empty");
    expect_csv_refused(HEADER "a\x1b[2J,0,1,1\n", ":2: the id 'a\\x1b[2J' is not plain text");
    expect_csv_refused(HEADER "a,1,1,1\n", ":2: the lifetime is empty");
    expect_csv_refused(HEADER "a,2,1,1\n", ":2: the lifetime is empty");
    expect_csv_refused(HEADER "a,0,1,-1\n", ":2: the size is negative");
    expect_csv_refused(HEADER "a,0,1,1\nb,0,1,1\na,0,1,1\n", "duplicate id 'a'");
    expect_csv_refused(HEADER "a,0,1,1152921504606846976\nb,0,1,1\n", ":3: the sum of the sizes");
}

static void binary_table(void **state)
{
    struct csv table;
    struct caught caught;
    assert_int_equal(read_csv("id\0,lower\n\0\n\0\n", 14, &table, &caught), BAD_DATA);
    assert_true(caught_has(&caught, ":1: it has a byte of value 0"));
    text_free(&caught.words);
}

static void tables_that_are_not_there(void **state)
{
    struct csv table;
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
    static const char *const pieces[] = {"a", "b", ",", ",", ",", "1", "20", "\n", "\n", "-", " ", "\xff",
                                         "x1,2,30,4\n", "y,0,5,6\n", "\"", "9999999999999999999"};
    struct random random = random_open(3, PURPOSE_TEST, 0, 0);
    int taken = 0;
    for (int round = 0; round < 2000; round++) {
        struct text text = {0};
        text_add(&text, "%s", round % 4 ? HEADER : "");
        for (uint32_t i = random_below(&random, 12); i > 0; i--)
            text_add(&text, "%s", pieces[random_below(&random, sizeof pieces / sizeof *pieces)]);
        struct csv table;
        struct caught caught;
        enum status status = read_csv(text.data, text.length, &table, &caught);
        text_free(&text);
        text_free(&caught.words);
        assert_int_equal(status, caught.errors ? BAD_DATA : OK);
        if (status != OK) continue;
        pack_checked(table.spans, table.count, 1, 0.001);
        csv_free(&table);
        taken++;
    }
    assert_true(taken > 50);
}

static struct csv published_table(char name)
{
    struct csv table;
    char *path = text_format("%s/planner/%c.1048576.csv", getenv("AMPTRAIN_DATA"), name);
    enum status status = pack_read_csv(path, &table.spans, &table.ids, &table.count);
    free(path);
    assert_int_equal(status, OK);
    return table;
}

/* The published tables that need a real search. */
static void published_tables(void **state)
{
    const char *data = getenv("AMPTRAIN_DATA");
    if (!data || !*data) skip();
    for (char name = 'A'; name <= 'E'; name++) {
        struct csv table = published_table(name);
        struct reason reason;
        clock_t start = clock();
        assert_true(pack_spans(table.spans, table.count, 1, 1048576, 600) <= 1048576);
        figure("table %c in %.2f s of a processor", name, (double)(clock() - start) / CLOCKS_PER_SEC);
        assert_true(check_spans(table.spans, table.count, 1, 1048576, &reason));
        csv_free(&table);
    }
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
        cmocka_unit_test(proofs_end_the_search),
        cmocka_unit_test(capacities_out_of_reach),
        cmocka_unit_test(network_tables),
        cmocka_unit_test(sixty_thousand_blocks),
        cmocka_unit_test(skylines_are_filled_from_the_lowest_valley),
        cmocka_unit_test(weights_do_not_overflow),
        cmocka_unit_test(the_search_is_exact),
        cmocka_unit_test(maxima_of_every_range),
        cmocka_unit_test(judge_agrees_with_the_definition),
        cmocka_unit_test(judge_finds_planted_faults),
        cmocka_unit_test(judge_checks_places),
        cmocka_unit_test(tables_are_read),
        cmocka_unit_test(empty_table),
        cmocka_unit_test(malformed_tables),
        cmocka_unit_test(binary_table),
        cmocka_unit_test(tables_that_are_not_there),
        cmocka_unit_test(noise_in_tables),
        cmocka_unit_test(published_tables),
    };
    return cmocka_run_group_tests_name("pack", tests, NULL, NULL);
}
