/* The caching allocator on a made-up device, which notices work on memory that is not there or another's. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/cache.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define CELL ((size_t)256)
#define PAGE ((size_t)16384)
#define PAGES 4096
#define CELLS (PAGES * PAGE / CELL)
#define RANGE (PAGES * PAGE)
#define BASE ((uintptr_t)1 << 40)
#define LIVE 400

/* The device. A touch is work of a block; its cells remember whose they are. */

struct sim {
    uint32_t cells[CELLS];
    int32_t pieces[PAGES];     /* pages of the piece that begins here */
    bool mapped[PAGES];
    size_t reserved, capacity;
    size_t last_map;
    int64_t maps, unmaps;
    bool finished;             /* nothing is queued: maps make work again */
    int64_t fail_at, fail_count;   /* calls of map that fail: the first of them (0: none) and how many */
    int wrong;                 /* touches of cells that are another's or nobody's, and wrong calls */
    int ranges;
};

static bool sim_finish(void *context)
{
    struct sim *sim = context;
    sim->finished = true;
    return true;
}

static void *sim_reserve(void *context, size_t bytes)
{
    struct sim *sim = context;
    if (bytes > RANGE) return NULL;
    sim->ranges++;
    return (void *)BASE;
}

static void sim_unreserve(void *context, void *range, size_t bytes)
{
    struct sim *sim = context;
    sim->ranges--;
    sim->wrong += (uintptr_t)range != BASE || bytes != RANGE;
}

/* The first page of so many that are not mapped. */
static size_t find_pages(const struct sim *sim, size_t pages)
{
    for (size_t page = 0, run = 0; page < PAGES; page++) {
        run = sim->mapped[page] ? 0 : run + 1;
        if (run == pages) return page + 1 - pages;
    }
    return PAGES;
}

static void *sim_map(void *context, void *at, size_t bytes)
{
    struct sim *sim = context;
    size_t pages = bytes / PAGE, page = at ? ((uintptr_t)at - BASE) / PAGE : find_pages(sim, pages);
    sim->maps++;
    if (sim->fail_at && sim->maps >= sim->fail_at && sim->maps < sim->fail_at + sim->fail_count) return NULL;
    if (bytes > sim->capacity - sim->reserved || page + pages > PAGES) return NULL;
    sim->wrong += bytes == 0 || bytes % PAGE > 0 || (uintptr_t)at % PAGE > 0;
    for (size_t p = page; p < page + pages; p++) {
        sim->wrong += sim->mapped[p];
        sim->mapped[p] = true;
    }
    sim->pieces[page] = (int32_t)pages;
    sim->reserved += bytes;
    sim->last_map = bytes;
    sim->finished = false;
    return (void *)(BASE + page * PAGE);
}

static void sim_unmap(void *context, void *at, size_t bytes)
{
    struct sim *sim = context;
    size_t page = ((uintptr_t)at - BASE) / PAGE;
    sim->unmaps++;
    sim->wrong += sim->pieces[page] != (int32_t)(bytes / PAGE);
    sim->wrong += !sim->finished;
    for (size_t p = page; p < page + bytes / PAGE; p++) sim->mapped[p] = false;
    sim->pieces[page] = 0;
    sim->reserved -= bytes;
}

static size_t sim_free_bytes(void *context)
{
    struct sim *sim = context;
    return sim->capacity - sim->reserved;
}

static struct physical sim_physical(struct sim *sim, bool ranges)
{
    return (struct physical){
        .context = sim,
        .granularity = PAGE,
        .reserve = ranges ? sim_reserve : NULL,
        .unreserve = sim_unreserve,
        .map = sim_map,
        .unmap = sim_unmap,
        .free_bytes = sim_free_bytes,
        .synchronize = sim_finish,
    };
}

static struct sim *sim_new(size_t capacity)
{
    struct sim *sim = memory_new(1, sizeof *sim);
    sim->capacity = capacity;
    return sim;
}

static void sim_free(struct sim *sim)
{
    free(sim);
}

static struct cache *open_cache(struct sim *sim, bool ranges, size_t chunk, size_t limit)
{
    struct physical physical = sim_physical(sim, ranges);
    struct cache_options options = {.alignment = CELL, .chunk = chunk, .range = RANGE, .limit = limit};
    struct cache *cache = cache_open(&physical, &options);
    assert_non_null(cache);
    return cache;
}

/* Closes both; what was taken must be back. */
static void close_both(struct sim *sim, struct cache *cache)
{
    struct cache_statistics at_end = cache_statistics(cache);
    assert_int_equal(at_end.allocated, 0);
    assert_int_equal(at_end.requested, 0);
    assert_int_equal(at_end.allocations, at_end.frees);
    cache_close(cache);
    assert_int_equal(sim->reserved, 0);
    assert_int_equal(sim->ranges, 0);
    assert_int_equal(sim->wrong, 0);
    sim_free(sim);
}

/* A user of the cache, who remembers what he holds. */

struct held {
    void *memory;
    size_t bytes;
    uint32_t block;
};

struct user {
    struct sim *sim;
    struct cache *cache;
    struct random random;
    struct held held[LIVE];
    int count;
    uint32_t blocks;           /* taken so far */
    int64_t refused;
    uint64_t trace;            /* a hash of all places given */
    bool late;                 /* a planted fault: it goes on writing to what it gave back last */
    struct held last;
};

static uint32_t below(struct user *user, uint32_t limit)
{
    return random_below(&user->random, limit);
}

static size_t rounded(size_t bytes)
{
    return ((bytes ? bytes : 1) + CELL - 1) / CELL * CELL;
}

/* The block writes its number to all of its cells (first), or finds it there. */
static void touch(struct user *user, const struct held *held, bool first)
{
    size_t cell = ((uintptr_t)held->memory - BASE) / CELL;
    for (size_t c = cell; c < cell + rounded(held->bytes) / CELL; c++) {
        bool kept = first || user->sim->cells[c] == held->block;
        user->sim->wrong += !user->sim->mapped[c * CELL / PAGE] || !kept;
        user->sim->cells[c] = held->block;
    }
}

/* Small ones mostly, some of many pages. */
static size_t random_bytes(struct user *user)
{
    switch (below(user, 8)) {
    case 0: return below(user, 12 * PAGE);
    case 1: return PAGE * (1 + below(user, 4));
    case 2: return below(user, 2);
    default: return below(user, 16 * CELL);
    }
}

static const char *const owners[] = {"arena", "store", "batches", "results"};

static void take(struct user *user)
{
    if (user->count == LIVE) return;
    struct held held = {.bytes = random_bytes(user)};
    held.memory = cache_allocate(user->cache, held.bytes, owners[below(user, 4)]);
    user->trace = (user->trace ^ (uintptr_t)held.memory) * 0x9e3779b97f4a7c15u;
    if (!held.memory) {
        user->refused++;
        return;
    }
    held.block = ++user->blocks;
    user->held[user->count++] = held;
    touch(user, &held, true);
}

static void give(struct user *user, int which)
{
    struct held held = user->held[which];
    touch(user, &held, false);
    cache_free(user->cache, held.memory);
    user->held[which] = user->held[--user->count];
    user->last = held;
}

static void act(struct user *user)
{
    uint32_t dice = below(user, 1000);
    /* Busy and idle times: what is held rises and falls. */
    uint32_t takes = user->blocks / 500 % 2 ? 480 : 380;
    if (dice < takes) take(user);
    else if (dice < 860 && user->count > 0) give(user, (int)below(user, (uint32_t)user->count));
    else if (dice < 990 && user->count > 0)
        touch(user, &user->held[below(user, (uint32_t)user->count)], false);
    else if (dice == 999) cache_trim(user->cache, below(user, (uint32_t)user->sim->reserved + 1));
    if (user->late && user->last.memory) touch(user, &user->last, true);
}

static int by_address(const void *a, const void *b)
{
    const struct held *x = a, *y = b;
    return ((uintptr_t)x->memory > (uintptr_t)y->memory) - ((uintptr_t)x->memory < (uintptr_t)y->memory);
}

/* True if one call of map covers the block. */
static bool is_in_one_piece(const struct sim *sim, const struct cache_block *block)
{
    size_t first = (block->at - BASE) / PAGE, last = (block->at + block->bytes - 1 - BASE) / PAGE;
    while (sim->pieces[first] == 0) first--;
    return last < first + (size_t)sim->pieces[first];
}

/* The cache's books against the device's and the user's. */
static void check_books(struct user *user, bool ranges)
{
    struct cache_block *blocks;
    int count = cache_snapshot(user->cache, &blocks), live = 0;
    size_t requested = 0, used = 0, unused = 0, largest = 0;
    struct held held[LIVE];
    memcpy(held, user->held, sizeof held);
    qsort(held, (size_t)user->count, sizeof *held, by_address);
    for (int i = 0; i < count; i++) {
        const struct cache_block *block = &blocks[i];
        assert_int_equal(block->at % CELL, 0);
        if (i > 0) assert_true(blocks[i - 1].at + blocks[i - 1].bytes <= block->at);
        assert_true(ranges || is_in_one_piece(user->sim, block));
        if (block->owner) {
            assert_true(live < user->count);
            assert_int_equal(block->at, (uintptr_t)held[live].memory);
            assert_int_equal(block->requested, held[live].bytes);
            assert_int_equal(block->bytes, rounded(held[live].bytes));
            requested += block->requested;
            used += block->bytes;
            live++;
            continue;
        }
        unused += block->bytes;
        if (block->bytes > largest) largest = block->bytes;
        if (ranges && i > 0 && !blocks[i - 1].owner)
            assert_true(blocks[i - 1].at + blocks[i - 1].bytes < block->at);
    }
    free(blocks);
    struct cache_statistics now = cache_statistics(user->cache);
    assert_int_equal(live, user->count);
    assert_int_equal(now.requested, requested);
    assert_int_equal(now.allocated, used);
    assert_int_equal(now.reserved, used + unused);
    assert_int_equal(now.reserved, user->sim->reserved);
    assert_int_equal(now.largest, largest);
    assert_int_equal(now.allocations, user->blocks);
    assert_int_equal(now.allocations - now.frees, user->count);
    assert_int_equal(now.unmaps, user->sim->unmaps);
    assert_int_equal(now.failures, user->refused);
    assert_true(now.failures <= now.retries);
    assert_true(now.reserved_peak >= now.reserved && now.reserved_peak <= user->sim->capacity);
    assert_true(now.allocated_peak >= now.allocated && now.requested_peak >= now.requested);
    assert_true(now.fragmentation >= 0 && now.fragmentation <= 1);
}

/* After free-all every stretch of memory is one block, and all of it can go back. */
static void give_all(struct user *user)
{
    struct cache_block *blocks;
    while (user->count > 0) give(user, user->count - 1);
    int count = cache_snapshot(user->cache, &blocks);
    for (int i = 0; i < count; i++) assert_null(blocks[i].owner);
    free(blocks);
    check_books(user, user->sim->ranges > 0);
    cache_trim(user->cache, 0);
    assert_int_equal(user->sim->reserved, 0);
    assert_int_equal(cache_snapshot(user->cache, &blocks), 0);
    free(blocks);
}

struct play {
    int actions;
    bool ranges;
    size_t chunk, capacity, limit;
};

static uint64_t run_play(const struct play *play, uint64_t seed)
{
    struct sim *sim = sim_new(play->capacity);
    struct user user = {.sim = sim, .random = random_open(seed, PURPOSE_TEST, 1, 0)};
    user.cache = open_cache(sim, play->ranges, play->chunk, play->limit);
    for (int i = 0; i < play->actions; i++) {
        act(&user);
        if (i % 509 == 0) check_books(&user, play->ranges);
    }
    assert_int_equal(sim->wrong, 0);
    struct cache_statistics all = cache_statistics(user.cache);
    assert_true((double)all.reserved_peak < 1.2 * (double)all.allocated_peak);
    if (play->limit) assert_true(all.reserved_peak <= play->limit);
    give_all(&user);
    close_both(sim, user.cache);
    return user.trace;
}

/* Random work. */

static void test_a_million_operations(void **state)
{
    long actions = rounds(1000000, 20000000);
    run_play(&(struct play){(int)actions, true, 4 * PAGE, 200 * PAGE, 0}, 1);
    figure("%ld operations: no block touched by two, books balanced", actions);
}

static void test_a_limit(void **state)
{
    run_play(&(struct play){200000, true, 8 * PAGE, 300 * PAGE, 150 * PAGE}, 2);
}

static void test_without_ranges(void **state)
{
    run_play(&(struct play){200000, false, 4 * PAGE, 200 * PAGE, 0}, 3);
}

static void test_plenty_of_memory(void **state)
{
    run_play(&(struct play){200000, true, 64 * PAGE, RANGE, 0}, 4);
}

static void test_replay(void **state)
{
    const struct play play = {50000, true, 4 * PAGE, 200 * PAGE, 0};
    assert_true(run_play(&play, 5) == run_play(&play, 5));
    assert_true(run_play(&play, 5) != run_play(&play, 6));
}

/* How many wrong touches a user leads to. */
static int run_user(bool late)
{
    struct sim *sim = sim_new(200 * PAGE);
    struct user user = {.sim = sim, .late = late, .random = random_open(7, PURPOSE_TEST, 1, 0)};
    user.cache = open_cache(sim, true, 4 * PAGE, 0);
    for (int i = 0; i < 20000; i++) act(&user);
    int wrong = sim->wrong;
    cache_close(user.cache);
    sim_free(sim);
    return wrong;
}

static void test_planted_faults_are_seen(void **state)
{
    assert_int_equal(run_user(false), 0);
    assert_true(run_user(true) > 0);
}

/* One thing at a time. */

static void test_growth_is_exact(void **state)
{
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    void *a = cache_allocate(cache, 10 * PAGE - 5, "a");
    assert_int_equal(sim->maps, 3);
    assert_int_equal(sim->last_map, 2 * PAGE);
    assert_int_equal(sim->reserved, 10 * PAGE);
    void *b = cache_allocate(cache, 1, "b");
    assert_int_equal(sim->reserved, 11 * PAGE);
    void *c = cache_allocate(cache, PAGE - CELL, "c");
    assert_int_equal(sim->reserved, 11 * PAGE);
    cache_free(cache, c);
    /* Free memory at the end of the range counts: only the rest is mapped. */
    void *d = cache_allocate(cache, 2 * PAGE, "d");
    assert_int_equal(sim->reserved, 13 * PAGE);
    assert_int_equal((uintptr_t)d, (uintptr_t)c);
    cache_free(cache, a);
    cache_free(cache, b);
    cache_free(cache, d);
    /* Trimmed memory leaves a gap, which is where memory is missing least. */
    assert_int_equal(cache_trim(cache, 11 * PAGE), 2 * PAGE);
    a = cache_allocate(cache, 12 * PAGE, "a");
    assert_int_equal((uintptr_t)a, BASE);
    assert_int_equal(sim->reserved, 12 * PAGE);
    cache_free(cache, a);
    close_both(sim, cache);
}

static void test_tightest_fit(void **state)
{
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    static const size_t cells[] = {9, 1, 5, 1, 7, 1, 5, 1, 12, 1};
    void *memory[10];
    for (int i = 0; i < 10; i++) memory[i] = cache_allocate(cache, cells[i] * CELL, "x");
    for (int i = 0; i < 10; i += 2) cache_free(cache, memory[i]);
    void *five = cache_allocate(cache, 4 * CELL + 1, "five");
    void *eight = cache_allocate(cache, 8 * CELL, "eight");
    assert_ptr_equal(five, memory[2]);
    assert_ptr_equal(eight, memory[0]);
    cache_free(cache, five);
    cache_free(cache, eight);
    for (int i = 1; i < 10; i += 2) cache_free(cache, memory[i]);
    struct cache_block *blocks;
    assert_int_equal(cache_snapshot(cache, &blocks), 1);
    free(blocks);
    close_both(sim, cache);
}

/* Without a size of pieces, each block has a piece to itself or shares one with others, but never lies on
 * two, though there is free memory on both sides of it. */
static void test_blocks_in_one_piece(void **state)
{
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, 0, 0);
    void *memory[8];
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < 8; i++) {
            size_t bytes = (size_t)(1 + (i + round) % 8) * PAGE - CELL;
            assert_non_null(memory[i] = cache_allocate(cache, bytes, "x"));
            size_t first = ((uintptr_t)memory[i] - BASE) / PAGE, piece = first;
            while (sim->pieces[piece] == 0) piece--;
            assert_true((uintptr_t)memory[i] + bytes <= BASE + (piece + (size_t)sim->pieces[piece]) * PAGE);
        }
        for (int i = 0; i < 8; i++) cache_free(cache, memory[i]);
    }
    close_both(sim, cache);
}

/* Where a block of its own piece lies depends on nothing that was taken before. */
static void test_block_of_its_own_piece(void **state)
{
    struct sim *sim = sim_new(12 * PAGE);
    struct cache *cache = open_cache(sim, true, 0, 0);
    void *below = cache_allocate(cache, CELL, "below");
    cache_free(cache, cache_allocate(cache, 8 * PAGE, "before"));
    void *own = cache_allocate_piece(cache, 2 * PAGE - CELL, "own");
    assert_non_null(own);
    assert_int_equal(sim->pieces[((uintptr_t)own - BASE) / PAGE], 2);
    /* Nothing else is on it, though there is room, and it is taken again. */
    void *beside = cache_allocate(cache, CELL, "beside");
    assert_true((uintptr_t)beside < (uintptr_t)own || (uintptr_t)beside >= (uintptr_t)own + 2 * PAGE);
    cache_free(cache, own);
    assert_ptr_equal(cache_allocate_piece(cache, 2 * PAGE, "again"), own);
    cache_free(cache, own);
    /* Free memory makes room for it. */
    void *large = cache_allocate_piece(cache, 12 * PAGE, "large");
    assert_null(large);
    cache_free(cache, beside);
    cache_free(cache, below);
    large = cache_allocate_piece(cache, 12 * PAGE, "large");
    assert_int_equal(sim->pieces[((uintptr_t)large - BASE) / PAGE], 12);
    cache_free(cache, large);
    close_both(sim, cache);
}

/* Every other chunk is held: whoever keeps what is free where it is has half of it left and cannot use it. */
static void test_free_memory_moves_to_where_it_is_needed(void **state)
{
    enum { CHUNKS = 64 };
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, 2 * PAGE, CHUNKS * 2 * PAGE);
    void *memory[CHUNKS];
    for (int i = 0; i < CHUNKS; i++) assert_non_null(memory[i] = cache_allocate(cache, 2 * PAGE, "x"));
    assert_null(cache_allocate(cache, CELL, "one more"));
    for (int i = 0; i < CHUNKS; i += 2) cache_free(cache, memory[i]);
    void *large = cache_allocate(cache, CHUNKS * PAGE, "large");
    assert_non_null(large);
    assert_int_equal(sim->reserved, CHUNKS * 2 * PAGE);
    assert_int_equal(cache_statistics(cache).retries, 2);
    assert_int_equal(cache_statistics(cache).failures, 1);
    for (int i = 1; i < CHUNKS; i += 2) cache_free(cache, memory[i]);
    cache_free(cache, large);
    close_both(sim, cache);
}

static size_t pages_in_use(struct cache *cache)
{
    struct cache_block *blocks;
    int count = cache_snapshot(cache, &blocks);
    size_t pages = 0;
    uintptr_t end = 0;         /* of the last page counted */
    for (int i = 0; i < count; i++) {
        if (!blocks[i].owner) continue;
        uintptr_t first = blocks[i].at / PAGE * PAGE;
        if (first < end) first = end;
        end = (blocks[i].at + blocks[i].bytes + PAGE - 1) / PAGE * PAGE;
        pages += (end - first) / PAGE;
    }
    free(blocks);
    return pages;
}

/* An adversary after Robson (Journal of the ACM 18, 1971): in each round blocks of twice the size, of which
 * every second stays. With pieces of a page, trimming leaves the pages that hold a live block and no other,
 * and all that the limit leaves beside them can be had in one block. */
static void test_worst_case_sequence(void **state)
{
    enum { MOST = 4096, SPARE = 500 };
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, PAGE, 0);
    void **memory = memory_new(MOST, sizeof *memory);
    int count = 0;
    for (size_t bytes = CELL; bytes <= 16 * PAGE; bytes *= 2) {
        while (cache_statistics(cache).allocated + bytes <= MOST * CELL)
            assert_non_null(memory[count++] = cache_allocate(cache, bytes, "x"));
        int kept = 0;
        for (int i = 0; i < count; i++) {
            if (i % 2) cache_free(cache, memory[i]);
            else memory[kept++] = memory[i];
        }
        count = kept;
        cache_trim(cache, 0);
        assert_int_equal(sim->reserved, pages_in_use(cache) * PAGE);
        assert_true(cache_limit(cache, sim->reserved + SPARE * PAGE));
        void *large = cache_allocate(cache, SPARE * PAGE, "large");
        assert_non_null(large);
        assert_null(cache_allocate(cache, SPARE * PAGE, "more"));
        cache_free(cache, large);
        assert_true(cache_limit(cache, 0));
    }
    for (int i = 0; i < count; i++) cache_free(cache, memory[i]);
    free(memory);
    close_both(sim, cache);
}

static void test_table_of_who_holds_what(void **state)
{
    struct sim *sim = sim_new(16 * PAGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 12 * PAGE);
    void *a = cache_allocate(cache, 2 * PAGE, "images");
    void *b = cache_allocate(cache, 7 * PAGE, "working memory");
    void *c = cache_allocate(cache, PAGE, "images");
    assert_null(cache_allocate(cache, 3 * PAGE, "more"));
    struct text table = {0};
    cache_table(cache, &table);
    assert_string_equal(table.data, "   112.0 KiB  working memory\n"
                                    "    48.0 KiB  images (2 blocks)\n"
                                    "         0 B  free between them\n"
                                    "   160.0 KiB  reserved together\n"
                                    "   192.0 KiB  is the limit\n"
                                    "    96.0 KiB  free on the device\n");
    text_free(&table);
    cache_free(cache, a);
    cache_free(cache, b);
    cache_free(cache, c);
    close_both(sim, cache);
}

/* Two of equal size, in the order of their names, and no limit. */
static void test_table_of_equals(void **state)
{
    struct sim *sim = sim_new(16 * PAGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    void *a = cache_allocate(cache, PAGE, "second");
    void *b = cache_allocate(cache, PAGE, "first");
    struct text table = {0};
    cache_table(cache, &table);
    assert_string_equal(table.data, "    16.0 KiB  first\n"
                                    "    16.0 KiB  second\n"
                                    "         0 B  free between them\n"
                                    "    32.0 KiB  reserved together\n"
                                    "   224.0 KiB  free on the device\n");
    text_free(&table);
    cache_free(cache, a);
    cache_free(cache, b);
    close_both(sim, cache);
    cache_close(NULL);
}

static void test_absurd_requests(void **state)
{
    struct sim *sim = sim_new(16 * PAGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    assert_null(cache_allocate(cache, SIZE_MAX, "x"));
    assert_null(cache_allocate(cache, SIZE_MAX - CELL, "x"));
    assert_null(cache_allocate(cache, (size_t)1 << 50, "x"));
    assert_null(cache_allocate(cache, RANGE, "x"));
    assert_int_equal(sim->reserved, 0);
    void *none = cache_allocate(cache, 0, "nothing");
    assert_non_null(none);
    cache_free(cache, none);
    cache_free(cache, NULL);
    close_both(sim, cache);
    struct sim *small = sim_new(PAGE);
    struct physical physical = sim_physical(small, true);
    struct cache_options options = {.alignment = CELL, .chunk = PAGE, .range = 2 * RANGE};
    assert_null(cache_open(&physical, &options));
    sim_free(small);
}

static void test_a_lower_limit(void **state)
{
    struct sim *sim = sim_new(RANGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    void *a = cache_allocate(cache, 20 * PAGE, "a"), *b = cache_allocate(cache, 20 * PAGE, "b");
    cache_free(cache, b);
    assert_true(cache_limit(cache, 24 * PAGE));
    assert_int_equal(sim->reserved, 24 * PAGE);
    assert_null(cache_allocate(cache, 5 * PAGE, "c"));
    assert_false(cache_limit(cache, 10 * PAGE));
    assert_int_equal(sim->reserved, 20 * PAGE);
    assert_null(cache_allocate(cache, CELL, "c"));
    assert_true(cache_limit(cache, 0));
    b = cache_allocate(cache, 100 * PAGE, "b");
    assert_non_null(b);
    cache_free(cache, a);
    cache_free(cache, b);
    close_both(sim, cache);
}

/* The device says no at the k-th call, once or from then on: a refusal is NULL, the rest goes on. */
static int64_t run_failing(int64_t at, int64_t count)
{
    struct sim *sim = sim_new(20 * PAGE);
    struct user user = {.sim = sim, .random = random_open(11, PURPOSE_TEST, 1, 0)};
    sim->fail_at = at;
    sim->fail_count = count;
    user.cache = open_cache(sim, true, 2 * PAGE, 0);
    for (int i = 0; i < 2000; i++) {
        act(&user);
        if (i % 16 == 0) check_books(&user, true);
    }
    int64_t maps = sim->maps;
    give_all(&user);
    close_both(sim, user.cache);
    return maps;
}

static void test_failures_at_every_call(void **state)
{
    int64_t calls = run_failing(0, 0);
    assert_true(calls > 100);
    for (int64_t k = 1; k <= calls; k++) {
        run_failing(k, 1);
        run_failing(k, 2);
        run_failing(k, 1000000);
    }
}

/* Threads take turns. */

struct work_of_thread {
    struct cache *cache;
    uint64_t seed;
};

static void *worker(void *context)
{
    struct work_of_thread *work = context;
    struct cache *cache = work->cache;
    void *memory[16] = {NULL};
    struct random random = random_open(work->seed, PURPOSE_TEST, 3, 0);
    for (int i = 0; i < 20000; i++) {
        void **at = &memory[random_below(&random, 16)];
        cache_free(cache, *at);
        *at = cache_allocate(cache, random_below(&random, 3 * PAGE), "worker");
    }
    for (int i = 0; i < 16; i++) cache_free(cache, memory[i]);
    return NULL;
}

static void test_threads(void **state)
{
    struct sim *sim = sim_new(100 * PAGE);
    struct cache *cache = open_cache(sim, true, 4 * PAGE, 0);
    pthread_t threads[4];
    struct work_of_thread work[4];
    for (int i = 0; i < 4; i++) {
        work[i] = (struct work_of_thread){cache, (uint64_t)i};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    close_both(sim, cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_growth_is_exact),
        cmocka_unit_test(test_tightest_fit),
        cmocka_unit_test(test_blocks_in_one_piece),
        cmocka_unit_test(test_block_of_its_own_piece),
        cmocka_unit_test(test_free_memory_moves_to_where_it_is_needed),
        cmocka_unit_test(test_worst_case_sequence),
        cmocka_unit_test(test_table_of_who_holds_what),
        cmocka_unit_test(test_table_of_equals),
        cmocka_unit_test(test_absurd_requests),
        cmocka_unit_test(test_a_lower_limit),
        cmocka_unit_test(test_failures_at_every_call),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_replay),
        cmocka_unit_test(test_planted_faults_are_seen),
        cmocka_unit_test(test_a_limit),
        cmocka_unit_test(test_without_ranges),
        cmocka_unit_test(test_plenty_of_memory),
        cmocka_unit_test(test_a_million_operations),
    };
    return cmocka_run_group_tests_name("cache", tests, NULL, NULL);
}
