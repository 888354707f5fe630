/* Pinned host memory from a made-up device, which copies late. */
#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#include "alloc/pinned.h"
#include "base/memory.h"
#include "base/random.h"
#include "tests/support/caught.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define STREAMS 4
#define LIVE 200
#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)

#ifdef HAVE_JEMALLOC
#define SHARES true
#else
#define SHARES false
#endif

/* The device. A copy looks, when it is its turn, whether the block is still as it was. */

struct copy {
    uint8_t *memory;
    size_t bytes;
    uint32_t stamp;
};

struct stream {
    struct copy *queue;
    int count, done;           /* in the queue */
    int64_t passed;            /* before it */
};

struct event {
    int stream;
    int64_t until;
};

struct piece {
    uint8_t *memory;
    size_t bytes;
};

struct sim {
    struct stream streams[STREAMS];
    struct random random;
    struct piece *pieces;
    int count;
    size_t held;
    int64_t pins;
    int64_t fail_at, fail_count;   /* calls of pin that fail: the first of them (0: none) and how many */
    int events;                    /* that are not over */
    int wrong;
};

/* A block holds its stamp at every `STEP` bytes, in its last ones too. */
#define STEP ((size_t)1024)

static void stamp(uint8_t *memory, size_t bytes, uint32_t with)
{
    for (size_t at = 0; at + 4 <= bytes; at += STEP) memcpy(memory + at, &with, 4);
    if (bytes >= 4) memcpy(memory + bytes - 4, &with, 4);
}

static bool has_stamp(const uint8_t *memory, size_t bytes, uint32_t with)
{
    for (size_t at = 0; at + 4 <= bytes; at += STEP)
        if (at + 8 <= bytes && memcmp(memory + at, &with, 4) != 0) return false;
    return bytes < 4 || memcmp(memory + bytes - 4, &with, 4) == 0;
}

static bool stream_step(struct sim *sim, int stream)
{
    struct stream *at = &sim->streams[stream];
    if (at->done == at->count) return false;
    const struct copy *copy = &at->queue[at->done++];
    sim->wrong += !has_stamp(copy->memory, copy->bytes, copy->stamp);
    return true;
}

static void sim_copy(struct sim *sim, int stream, struct copy copy)
{
    struct stream *to = &sim->streams[stream];
    if (to->done == to->count) {
        to->passed += to->done;
        to->done = to->count = 0;
    }
    *array_push(to->queue, to->count) = copy;
}

static void sim_progress(struct sim *sim)
{
    int stream = (int)random_below(&sim->random, STREAMS);
    uint32_t steps = random_below(&sim->random, 4);
    while (steps > 0 && stream_step(sim, stream)) steps--;
}

static void sim_finish(struct sim *sim)
{
    for (int stream = 0; stream < STREAMS; stream++)
        while (stream_step(sim, stream)) continue;
}

static void *sim_pin(void *context, size_t bytes)
{
    struct sim *sim = context;
    sim->pins++;
    if (sim->fail_at && sim->pins >= sim->fail_at && sim->pins < sim->fail_at + sim->fail_count) return NULL;
    uint8_t *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    *array_push(sim->pieces, sim->count) = (struct piece){memory, bytes};
    sim->held += bytes;
    return memory;
}

static void sim_unpin(void *context, void *memory, size_t bytes)
{
    struct sim *sim = context;
    int i = 0;
    while (i < sim->count && sim->pieces[i].memory != memory) i++;
    bool known = i < sim->count && sim->pieces[i].bytes == bytes;
    sim->wrong += !known;
    if (!known) return;
    for (int stream = 0; stream < STREAMS; stream++)
        for (int k = sim->streams[stream].done; k < sim->streams[stream].count; k++) {
            const uint8_t *copied = sim->streams[stream].queue[k].memory;
            sim->wrong += copied >= sim->pieces[i].memory && copied < sim->pieces[i].memory + bytes;
        }
    sim->pieces[i] = sim->pieces[--sim->count];
    sim->held -= bytes;
    munmap(memory, bytes);
}

static void *sim_event_create(void *context, int stream)
{
    struct sim *sim = context;
    const struct stream *at = &sim->streams[stream];
    if (at->done == at->count) return NULL;
    struct event *event = memory_new(1, sizeof *event);
    *event = (struct event){stream, at->passed + at->count};
    sim->events++;
    return event;
}

static bool sim_event_retire(void *context, void *memory, bool wait)
{
    struct sim *sim = context;
    struct event *event = memory;
    const struct stream *at = &sim->streams[event->stream];
    while (wait && at->passed + at->done < event->until && stream_step(sim, event->stream)) continue;
    if (at->passed + at->done < event->until) return false;
    sim->events--;
    free(event);
    return true;
}

static struct pinned *open_pool(struct sim *sim, size_t cap)
{
    struct pinning pinning = {.context = sim, .pin = sim_pin, .unpin = sim_unpin,
                              .event_create = sim_event_create, .event_retire = sim_event_retire};
    return pinned_open(&pinning, cap);
}

static void sim_end(struct sim *sim)
{
    for (int stream = 0; stream < STREAMS; stream++) free(sim->streams[stream].queue);
    free(sim->pieces);
}

/* Closes both; everything was given back, and goes back. */
static void close_both(struct sim *sim, struct pinned *pool)
{
    struct pinned_statistics at_end = pinned_statistics(pool);
    assert_int_equal(at_end.allocations, at_end.frees);
    assert_int_equal(at_end.requested, at_end.waiting);
    assert_int_equal(at_end.held, sim->held);
    pinned_close(pool);
    assert_int_equal(sim->held, 0);
    assert_int_equal(sim->count, 0);
    assert_int_equal(sim->events, 0);
    assert_int_equal(sim->wrong, 0);
    sim_end(sim);
}

static void test_blocks_lie_apart_and_come_again(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 0);
    static const size_t bytes[] = {0, 1, 200, 4096, 4097, 100000, MIB, 5 * MIB + 7, 32 * MIB, 33 * MIB};
    enum { COUNT = sizeof bytes / sizeof *bytes };
    uint8_t *memory[COUNT];
    int64_t pins = 0;
    for (int round = 0; round < 3; round++) {
        for (uint32_t i = 0; i < COUNT; i++) {
            bool pinned = false;
            assert_non_null(memory[i] = pinned_allocate(pool, bytes[i], "x", i % 2 ? &pinned : NULL));
            assert_true(pinned == (i % 2 == 1));
            assert_int_equal((uintptr_t)memory[i] % 4096, 0);
            stamp(memory[i], bytes[i], i);
        }
        assert_int_equal(pinned_statistics(pool).blocks, COUNT);
        for (uint32_t i = 0; i < COUNT; i++) assert_true(has_stamp(memory[i], bytes[i], i));
        for (int i = 0; i < COUNT; i++) pinned_free(pool, memory[i]);
        assert_int_equal(pinned_statistics(pool).requested, 0);
        /* Slabs stay; what is large goes at once. */
        if (SHARES && round > 0) assert_int_equal(sim.pins, pins + 1);
        pins = sim.pins;
    }
    pinned_free(pool, NULL);
    assert_null(pinned_allocate(pool, SIZE_MAX, "x", NULL));
    close_both(&sim, pool);
}

static void test_large_blocks_are_exact(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 0);
    void *large = pinned_allocate(pool, 65 * MIB + 3, "x", NULL);
    assert_int_equal(sim.held, 65 * MIB + 3);
    pinned_free(pool, large);
    assert_int_equal(sim.held, 0);
    pinned_free_after(pool, NULL, 0);
    close_both(&sim, pool);
    pinned_close(NULL);
}

static void test_blocks_come_again_when_their_copy_is_done(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 0);
    uint8_t *first = pinned_allocate(pool, MIB, "x", NULL);
    stamp(first, MIB, 1);
    sim_copy(&sim, 2, (struct copy){first, MIB, 1});
    pinned_free_after(pool, first, 2);
    assert_int_equal(pinned_statistics(pool).waiting, MIB);
    uint8_t *second = pinned_allocate(pool, MIB, "x", NULL);
    assert_ptr_not_equal(second, first);
    stamp(second, MIB, 2);
    sim_finish(&sim);
    uint8_t *third = pinned_allocate(pool, MIB, "x", NULL);
    if (SHARES) assert_ptr_equal(third, first);
    assert_int_equal(pinned_statistics(pool).waiting, 0);
    assert_true(has_stamp(second, MIB, 2));
    /* A pool with nothing queued has nothing to wait for. */
    pinned_free_after(pool, third, 1);
    assert_int_equal(pinned_statistics(pool).waiting, 0);
    /* Closing waits. */
    sim_copy(&sim, 0, (struct copy){second, MIB, 2});
    pinned_free_after(pool, second, 0);
    close_both(&sim, pool);
}

static int count_words(const char *text, const char *words)
{
    int count = 0;
    for (; (text = strstr(text, words)); text++) count++;
    return count;
}

static void test_a_cap(void **state)
{
    struct sim sim = {0};
    struct caught caught;
    struct pinned *pool = open_pool(&sim, 100 * MIB);
    uint8_t *memory[5];
    bool pinned[5], must;
    caught_begin(&caught);
    for (int i = 0; i < 5; i++) memory[i] = pinned_allocate(pool, 40 * MIB, "batches", &pinned[i]);
    must = pinned_allocate(pool, MIB, "small", &must) && pinned_allocate(pool, 50 * MIB, "numbers", NULL);
    caught_end(&caught);
    assert_true(must);
    for (int i = 0; i < 5; i++) assert_true(memory[i] && pinned[i] == (i < 2));
    assert_int_equal(pinned_statistics(pool).ordinary, 120 * MIB);
    assert_int_equal(pinned_statistics(pool).fallbacks, 3);
    assert_true(sim.held > 100 * MIB);
    assert_int_equal(count_words(caught.words.data, "no pinned host memory for 40.0 MiB of batches"), 3);
    for (int i = 0; i < 5; i++) {
        stamp(memory[i], 40 * MIB, (uint32_t)i);
        pinned_free(pool, memory[i]);
    }
    assert_int_equal(pinned_statistics(pool).ordinary, 0);
    text_free(&caught.words);
    /* These two were never given back: they stay. */
    pinned_close(pool);
    assert_true(sim.held >= 51 * MIB);
    for (int i = 0; i < sim.count; i++) munmap(sim.pieces[i].memory, sim.pieces[i].bytes);
    sim_end(&sim);
}

/* Copies that are under way are waited for before ordinary memory stands in. */
static void test_waiting_is_better_than_ordinary_memory(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 50 * MIB);
    bool pinned;
    for (uint32_t i = 0; i < 5; i++) {
        uint8_t *memory = pinned_allocate(pool, 40 * MIB, "pieces", &pinned);
        assert_true(memory && pinned);
        stamp(memory, 40 * MIB, i);
        sim_copy(&sim, 1, (struct copy){memory, 40 * MIB, i});
        pinned_free_after(pool, memory, 1);
    }
    assert_int_equal(pinned_statistics(pool).waits, 4);
    close_both(&sim, pool);
}

/* Neither pinned memory nor any other: the block is refused, where the caller can go on without it. */
static void test_blocks_larger_than_memory(void **state)
{
#ifdef __SANITIZE_ADDRESS__
    skip();                                /* which ends a program that asks for as much */
#endif
    struct sim sim = {0};
    struct caught caught;
    struct pinned *pool = open_pool(&sim, 50 * MIB);
    bool pinned;
    caught_begin(&caught);
    void *memory = pinned_allocate(pool, PTRDIFF_MAX - 64 * KIB, "too much", &pinned);
    void *forced = pinned_allocate(pool, PTRDIFF_MAX - 64 * KIB, "too much", NULL);
    caught_end(&caught);
    assert_null(memory);
    assert_null(forced);
    assert_int_equal(count_words(caught.words.data, "of too much"), 1);
    assert_int_equal(pinned_statistics(pool).blocks, 0);
    text_free(&caught.words);
    close_both(&sim, pool);
}

static long mmaps_left = -1;           /* until one is refused; below 0: none is */
static bool refused;

static bool is_refused(long *left)
{
    refused = refused || *left == 0;
    return *left >= 0 && (*left)-- == 0;
}

void *__real_mmap(void *at, size_t bytes, int access, int flags, int file, off_t from);
void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t from);

void *__wrap_mmap(void *at, size_t bytes, int access, int flags, int file, off_t from)
{
    return is_refused(&mmaps_left) ? MAP_FAILED : __real_mmap(at, bytes, access, flags, file, from);
}

#ifdef HAVE_JEMALLOC
static long mallctls_left = -1;

int __real_mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);
int __wrap_mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size);

int __wrap_mallctl(const char *name, void *old, size_t *old_size, void *new, size_t new_size)
{
    return is_refused(&mallctls_left) ? EAGAIN : __real_mallctl(name, old, old_size, new, new_size);
}

/* A pool of which each call of jemalloc's, or one of those for its records, fails in turn: blocks are pinned
 * one by one then. What cannot be ended stays. */
static bool use_pool(long *left, long before)
{
    struct sim sim = {0};
    refused = false;
    *left = before;
    struct pinned *pool = open_pool(&sim, 0);
    void *memory[3];
    for (int i = 0; i < 3; i++) assert_non_null(memory[i] = pinned_allocate(pool, MIB, "x", NULL));
    for (int i = 0; i < 3; i++) pinned_free(pool, memory[i]);
    close_both(&sim, pool);
    *left = -1;
    return refused;
}

static void test_jemalloc_that_is_refused(void **state)
{
    long before = 0;
    while (use_pool(&mallctls_left, before)) before++;
    assert_int_equal(before, 4);           /* an arena, two of its settings, and its end */
    assert_true(use_pool(&mmaps_left, 0));
}
#endif

/* A user of the pool, who remembers what he holds. */

struct held {
    uint8_t *memory;
    size_t bytes;
    uint32_t stamp;
    int stream;                /* of its last copy; -1: none */
};

struct user {
    struct sim *sim;
    struct pinned *pool;
    struct random random;
    struct held held[LIVE];
    int count;
    uint32_t stamps;
    size_t requested;
    int64_t refused, ordinary;
    bool hasty;                /* a planted fault: does not say that a copy is under way */
};

static size_t draw_bytes(struct random *random)
{
    static const size_t most[] = {600, 20 * KIB, 300 * KIB, 3 * MIB};
    uint32_t kind = random_below(random, 16);
    return 1 + random_below(random, (uint32_t)most[kind < 6 ? 0 : kind < 11 ? 1 : kind < 15 ? 2 : 3]);
}

static void take(struct user *user)
{
    struct held held = {.bytes = draw_bytes(&user->random), .stamp = ++user->stamps, .stream = -1};
    bool pinned = true, must = random_below(&user->random, 8) == 0;
    held.memory = pinned_allocate(user->pool, held.bytes, "x", must ? NULL : &pinned);
    user->ordinary += !pinned;
    user->refused += !held.memory;
    user->sim->wrong += !held.memory && !must;
    if (!held.memory) return;
    stamp(held.memory, held.bytes, held.stamp);
    user->requested += held.bytes;
    user->held[user->count++] = held;
}

static void copy(struct user *user, struct held *held)
{
    int stream = held->stream < 0 ? (int)random_below(&user->random, STREAMS) : held->stream;
    sim_copy(user->sim, stream, (struct copy){held->memory, held->bytes, held->stamp});
    held->stream = stream;
}

static void give(struct user *user, int i)
{
    struct held held = user->held[i];
    user->held[i] = user->held[--user->count];
    user->requested -= held.bytes;
    user->sim->wrong += !has_stamp(held.memory, held.bytes, held.stamp);
    if (held.stream < 0 || user->hasty) pinned_free(user->pool, held.memory);
    else pinned_free_after(user->pool, held.memory, held.stream);
}

static void act(struct user *user)
{
    struct random *random = &user->random;
    uint32_t what = random_below(random, 10);
    int i = user->count ? (int)random_below(random, (uint32_t)user->count) : 0;
    if (user->count == 0 || (what < 4 && user->count < LIVE)) take(user);
    else if (what < 7) copy(user, &user->held[i]);
    else give(user, i);
    sim_progress(user->sim);
}

static void check_books(struct user *user)
{
    struct pinned_statistics now = pinned_statistics(user->pool);
    assert_int_equal(now.requested - now.waiting, user->requested);
    assert_int_equal(now.held, user->sim->held);
    assert_int_equal(now.pins - now.unpins, user->sim->count);
    assert_true(now.requested - now.ordinary <= now.held);
    assert_true(now.requested_peak >= now.requested && now.held_peak >= now.held);
}

static struct user user_open(struct sim *sim, uint64_t seed, size_t cap)
{
    struct user user = {.sim = sim, .pool = open_pool(sim, cap)};
    user.random = random_open(seed, PURPOSE_TEST, 1, 0);
    sim->random = random_open(seed, PURPOSE_TEST, 2, 0);
    return user;
}

static void give_all(struct user *user)
{
    while (user->count > 0) give(user, user->count - 1);
}

static void test_random_operations(void **state)
{
    long count = rounds(30000, 2000000);
    struct sim sim = {0};
    struct user user = user_open(&sim, 1, 0);
    for (long i = 0; i < count; i++) {
        act(&user);
        if (i % 64 == 0) check_books(&user);
    }
    struct pinned_statistics now = pinned_statistics(user.pool);
    figure("%ld operations: at most %.1f MiB asked for, %.1f MiB pinned, in %lld calls", count,
           (double)now.requested_peak / MIB, (double)now.held_peak / MIB, (long long)now.pins);
    if (SHARES) {
        assert_true(now.held_peak < 3 * now.requested_peak);
        assert_true(now.pins < 100);
    }
    assert_int_equal(user.refused + user.ordinary, 0);
    give_all(&user);
    close_both(&sim, user.pool);
}

static void test_random_operations_under_a_cap(void **state)
{
    long count = rounds(5000, 300000);
    struct sim sim = {0};
    struct caught caught;
    struct user user = user_open(&sim, 2, 4 * MIB);
    caught_begin(&caught);
    for (long i = 0; i < count; i++) act(&user);
    caught_end(&caught);
    text_free(&caught.words);
    check_books(&user);
    assert_int_equal(user.refused, 0);
    assert_true(user.ordinary > 0);
    give_all(&user);
    close_both(&sim, user.pool);
}

/* Whoever gives a block back too early is found out, here; where nothing is shared, its memory is gone
 * then. */
static void test_a_planted_fault_is_seen(void **state)
{
    if (!SHARES) skip();
    struct sim sim = {0};
    struct user user = user_open(&sim, 3, 0);
    user.hasty = true;
    for (int i = 0; i < 3000; i++) act(&user);
    sim_finish(&sim);
    assert_true(sim.wrong > 0);
    sim.wrong = 0;
    give_all(&user);
    close_both(&sim, user.pool);
}

/* The device says no at the k-th call, once or from then on. */
static int64_t run_failing(int64_t at, int64_t count)
{
    struct sim sim = {.fail_at = at, .fail_count = count};
    struct caught caught;
    struct user user = user_open(&sim, 4, 0);
    caught_begin(&caught);
    for (int i = 0; i < 600; i++) act(&user);
    caught_end(&caught);
    check_books(&user);
    sim_finish(&sim);
    int64_t pins = sim.pins;
    int warnings = count_words(caught.words.data, "no pinned host memory");
    assert_int_equal(warnings, user.ordinary);
    if (at == 0) assert_int_equal(user.refused + user.ordinary, 0);
    if (at == 1 && count > 1000) assert_int_equal(pinned_statistics(user.pool).held, 0);
    give_all(&user);
    close_both(&sim, user.pool);
    text_free(&caught.words);
    return pins;
}

static void test_failures_at_every_call(void **state)
{
    int64_t pins = run_failing(0, 0), step = SHARES ? 1 : 10;
    assert_true(pins > 5);
    for (int64_t k = 1; k <= pins; k += step) {
        run_failing(k, 1);
        run_failing(k, 2);
        run_failing(k, 1000000);
    }
}

/* Allocations of a run: batches, labels, what steps exchange; again and again. */
static void test_the_blocks_of_runs(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 0);
    static const size_t bytes[] = {9633792, 19267584, 2408448, 9633792};
    int64_t pins = 0;
    for (int run = 0; run < 4; run++) {
        void *memory[30];
        int count = 0;
        for (int i = 0; i < 5; i++) memory[count++] = pinned_allocate(pool, bytes[run], "batches", NULL);
        for (int i = 0; i < 5; i++)
            memory[count++] = pinned_allocate(pool, bytes[run] / 37632, "labels", NULL);
        for (int i = 0; i < 4; i++) memory[count++] = pinned_allocate(pool, 300, "results", NULL);
        struct pinned_statistics now = pinned_statistics(pool);
        figure("run %d: %.1f MiB asked for, %.1f MiB pinned, in %lld calls", run, (double)now.requested / MIB,
               (double)now.held / MIB, (long long)now.pins);
        if (run == 0) assert_true(now.held < now.requested + now.requested / 4);
        if (SHARES && run > 1) assert_int_equal(now.pins, pins);
        pins = now.pins;
        while (count > 0) pinned_free(pool, memory[--count]);
    }
    close_both(&sim, pool);
}

/* Threads take turns. */

struct work_of_thread {
    struct pinned *pool;
    uint32_t seed;
    int wrong;
};

static void *worker(void *context)
{
    struct work_of_thread *work = context;
    uint8_t *memory[16] = {NULL};
    size_t bytes[16];
    struct random random = random_open(work->seed, PURPOSE_TEST, 3, 0);
    for (int i = 0; i < 3000; i++) {
        uint32_t at = random_below(&random, 16);
        bool pinned;
        if (memory[at]) work->wrong += !has_stamp(memory[at], bytes[at], work->seed);
        pinned_free(work->pool, memory[at]);
        bytes[at] = 1 + random_below(&random, 100000);
        memory[at] = pinned_allocate(work->pool, bytes[at], "worker", &pinned);
        stamp(memory[at], bytes[at], work->seed);
    }
    for (int i = 0; i < 16; i++) pinned_free(work->pool, memory[i]);
    return NULL;
}

static void test_threads(void **state)
{
    struct sim sim = {0};
    struct pinned *pool = open_pool(&sim, 0);
    pthread_t threads[4];
    struct work_of_thread work[4];
    for (uint32_t i = 0; i < 4; i++) {
        work[i] = (struct work_of_thread){.pool = pool, .seed = i};
        assert_int_equal(pthread_create(&threads[i], NULL, worker, &work[i]), 0);
    }
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 4; i++) assert_int_equal(work[i].wrong, 0);
    close_both(&sim, pool);
}

/* Pools come and go; jemalloc has room for some thousands of arenas, ever. */
static void test_many_pools(void **state)
{
    for (int i = 0; i < 5000; i++) {
        struct sim sim = {0};
        struct pinned *pool = open_pool(&sim, 0);
        void *memory = pinned_allocate(pool, 5000, "x", NULL);
        assert_non_null(memory);
        if (SHARES) assert_int_equal(sim.held, 256 * KIB);
        pinned_free(pool, memory);
        close_both(&sim, pool);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_blocks_lie_apart_and_come_again),
        cmocka_unit_test(test_large_blocks_are_exact),
        cmocka_unit_test(test_blocks_come_again_when_their_copy_is_done),
        cmocka_unit_test(test_a_cap),
        cmocka_unit_test(test_waiting_is_better_than_ordinary_memory),
        cmocka_unit_test(test_blocks_larger_than_memory),
#ifdef HAVE_JEMALLOC
        cmocka_unit_test(test_jemalloc_that_is_refused),
#endif
        cmocka_unit_test(test_random_operations),
        cmocka_unit_test(test_random_operations_under_a_cap),
        cmocka_unit_test(test_a_planted_fault_is_seen),
        cmocka_unit_test(test_failures_at_every_call),
        cmocka_unit_test(test_the_blocks_of_runs),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_many_pools),
    };
    return cmocka_run_group_tests_name("pinned", tests, NULL, NULL);
}
