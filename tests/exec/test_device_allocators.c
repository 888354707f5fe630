/* Devices whose memory comes from a cache, and pinned host memory from a pool: one made up of the CPU, and
 * every real one that can. */
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#include "base/memory.h"
#include "exec/device_allocators.h"
#include "tests/support/caught.h"
#include "tests/support/net.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#include "tests/support/devices.h"   /* its checks are cmocka's */

#define GRANULARITY ((size_t)64 << 10)

/* The CPU with ranges of addresses that memory is mapped into, `left` pieces at most. */
struct ranged {
    struct device device;
    struct device_backend backend;
    int left;
    size_t mapped;
};

static void *ranged_reserve(void *context, size_t bytes)
{
    void *range = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return range == MAP_FAILED ? NULL : range;
}

static void ranged_unreserve(void *context, void *range, size_t bytes)
{
    munmap(range, bytes);
}

static void *ranged_map(void *context, void *at, size_t bytes)
{
    struct ranged *ranged = context;
    if (ranged->left == 0 || mprotect(at, bytes, PROT_READ | PROT_WRITE) != 0) return NULL;
    ranged->left--;
    ranged->mapped += bytes;
    return at;
}

static void ranged_unmap(void *context, void *at, size_t bytes)
{
    struct ranged *ranged = context;
    ranged->left++;
    ranged->mapped -= bytes;
    mprotect(at, bytes, PROT_NONE);
}

static size_t ranged_free_bytes(void *context)
{
    return 0;
}

static bool ranged_finish(void *context)
{
    return true;
}

static void ranged_physical(struct device *device, struct physical *physical)
{
    *physical = (struct physical){
        .context = device,
        .granularity = GRANULARITY,
        .reserve = ranged_reserve,
        .unreserve = ranged_unreserve,
        .map = ranged_map,
        .unmap = ranged_unmap,
        .free_bytes = ranged_free_bytes,
        .synchronize = ranged_finish,
    };
}

static void ranged_memory_info(struct device *device, size_t *free_bytes, size_t *total_bytes)
{
    (void)device;
    *free_bytes = *total_bytes = (size_t)1 << 30;
}

static void ranged_open(struct ranged *ranged)
{
    struct device *cpu;
    assert_int_equal(device_open("cpu", 1, &cpu), OK);
    *ranged = (struct ranged){.device = *cpu, .backend = *cpu->backend, .left = 100};
    ranged->backend.memory.physical = ranged_physical;
    ranged->backend.memory.info = ranged_memory_info;
    ranged->device.backend = &ranged->backend;
    device_close(cpu);
}

/* A pattern that goes up must come down, also where pieces meet. */
static void check_memory(struct device *device, void *memory, size_t bytes, unsigned seed)
{
    const struct device_backend *backend = device->backend;
    uint32_t *up = backend->memory.host_allocate(device, bytes);
    uint32_t *down = backend->memory.host_allocate(device, bytes);
    assert_non_null(up);
    assert_non_null(down);
    for (size_t i = 0; i < bytes / 4; i++) up[i] = (uint32_t)i * 2654435761u + seed;
    assert_int_equal(backend->transfers.upload(device, 0, memory, up, bytes), OK);
    assert_int_equal(backend->transfers.download(device, 0, down, memory, bytes), OK);
    assert_int_equal(backend->synchronize(device), OK);
    assert_memory_equal(up, down, bytes);
    assert_int_equal(backend->transfers.fill_zero(device, 0, memory, bytes), OK);
    assert_int_equal(backend->transfers.download(device, 0, down, memory, bytes), OK);
    assert_int_equal(backend->synchronize(device), OK);
    memset(up, 0, bytes);
    assert_memory_equal(up, down, bytes);
    backend->memory.host_free(device, up, bytes);
    backend->memory.host_free(device, down, bytes);
}

/* Blocks of one cache, smaller and larger than its pieces; all of it goes back. */
static void check_device(struct device *device)
{
    struct cache *cache = device_allocators_open(device, 0, false);
    assert_non_null(cache);
    struct physical physical;
    device->backend->memory.physical(device, &physical);
    static const size_t bytes[] = {4, 100000, (size_t)150 << 20, 1 << 20, (size_t)65 << 20};
    void *memory[5];
    for (unsigned round = 0; round < 2; round++) {
        for (int i = 0; i < 5; i++) {
            assert_non_null(memory[i] = device_allocate(device, bytes[i], "x"));
            assert_int_equal((uintptr_t)memory[i] % 4096, 0);
        }
        for (int i = 0; i < 5; i++) check_memory(device, memory[i], bytes[i], round + (unsigned)i);
        struct cache_statistics now = cache_statistics(cache);
        assert_true(now.reserved < now.allocated + physical.granularity);
        for (int i = 0; i < 5; i++) device_release(device, memory[i], bytes[i]);
        if (round == 0) cache_trim(cache, (size_t)70 << 20);
    }
    assert_null(device_allocate(device, (size_t)1 << 50, "far too much"));
    device_allocators_close(device, cache);
    assert_null(device->allocator.allocate);
}

static void test_made_up_device(void **state)
{
    struct ranged ranged;
    ranged_open(&ranged);
    check_device(&ranged.device);
    assert_int_equal(ranged.mapped, 0);
    assert_int_equal(ranged.left, 100);
}

static bool has_ranges(const struct device_backend *backend)
{
    return backend->memory.physical != NULL;
}

static void test_every_device_that_can(void **state)
{
    on_devices(has_ranges, check_device);
}

/* Memory in use counts. */
static void test_within_a_limit(void **state)
{
    struct ranged ranged;
    ranged_open(&ranged);
    struct cache *cache = device_allocators_open(&ranged.device, 0, false);
    void *memory = device_allocate(&ranged.device, 3 << 20, "parameters");
    ranged.device.memory_limit = 5 << 20;
    assert_null(device_allocate_within(&ranged.device, 3 << 20, "timing"));
    void *more = device_allocate_within(&ranged.device, 2 << 20, "timing");
    assert_non_null(more);
    device_release(&ranged.device, more, 2 << 20);
    ranged.device.memory_limit = 2 << 20;
    assert_null(device_allocate_within(&ranged.device, 1, "timing"));
    ranged.device.memory_limit = 0;
    assert_non_null(more = device_allocate_within(&ranged.device, 3 << 20, "timing"));
    device_release(&ranged.device, more, 3 << 20);
    device_release(&ranged.device, memory, 3 << 20);
    device_allocators_close(&ranged.device, cache);
}

static void test_devices_without_ranges_serve_themselves(void **state)
{
    struct device *device;
    struct text holdings = {0};
    assert_int_equal(device_open("cpu", 1, &device), OK);
    struct cache *cache = device_allocators_open(device, 0, false);
    assert_null(cache);
    void *memory = device_allocate(device, 5000, "x");
    assert_non_null(memory);
    memset(memory, 1, 5000);
    device_release(device, memory, 5000);
    device_memory_in_use(device, &holdings);
    assert_null(holdings.data);
    device_allocators_close(device, cache);
    device_close(device);
}

static void test_who_holds_what(void **state)
{
    struct ranged ranged;
    struct text holdings = {0};
    ranged_open(&ranged);
    ranged.left = 2;
    struct cache *cache = device_allocators_open(&ranged.device, 0, false);
    void *memory = device_allocate(&ranged.device, 3 << 20, "parameters");
    assert_null(device_allocate(&ranged.device, (size_t)129 << 20, "working memory"));
    device_memory_in_use(&ranged.device, &holdings);
    assert_non_null(strstr(holdings.data, "     3.0 MiB  parameters\n"));
    text_free(&holdings);
    device_release(&ranged.device, memory, 3 << 20);
    device_allocators_close(&ranged.device, cache);
    assert_int_equal(ranged.mapped, 0);
}

/* Blocks given back while they are copied, and taken again: nothing may come into them before. Gigabytes a
 * second. */
static double circle(struct device *device, void *memory, size_t bytes, int stream, int rounds_made)
{
    const struct device_backend *backend = device->backend;
    struct timespec begin, end;
    uint8_t *down = device_host_allocate(device, bytes, "down", NULL);
    assert_non_null(down);
    clock_gettime(CLOCK_MONOTONIC, &begin);
    for (int i = 0; i < rounds_made; i++) {
        bool pinned;
        uint8_t *up = device_host_allocate(device, bytes, "up", &pinned);
        assert_true(up && pinned);
        memset(up, i, 64);
        memset(up + bytes - 64, i, 64);
        assert_int_equal(backend->transfers.upload(device, stream, memory, up, bytes), OK);
        device_host_release_after(device, up, bytes, stream);
        assert_int_equal(backend->transfers.download(device, stream, down, memory, bytes), OK);
        if (i % 4 > 0) continue;
        assert_int_equal(backend->synchronize(device), OK);
        assert_int_equal(down[0], i);
        assert_int_equal(down[bytes - 1], i);
    }
    assert_int_equal(backend->synchronize(device), OK);
    clock_gettime(CLOCK_MONOTONIC, &end);
    device_host_release(device, down, bytes);
    double seconds = (double)(end.tv_sec - begin.tv_sec) + 1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
    return 2e-9 * (double)bytes * rounds_made / seconds;
}

/* Small blocks that share a slab, middling ones, and one that is pinned by itself. */
static void check_host(struct device *device)
{
    static const size_t bytes[] = {4096, (size_t)1 << 20, (size_t)9 << 20, (size_t)40 << 20};
    int count = (int)rounds(9, 101);
    struct pinned *pool = device_allocators_host_open(device);
    void *memory = device_allocate(device, bytes[3], "x");
    assert_non_null(memory);
    for (int i = 0; i < 4; i++) {
        double speed = circle(device, memory, bytes[i], device->copy_stream, count);
        struct pinned_statistics now = pinned_statistics(pool);
        figure("%s: blocks of %zu bytes up and down at %.1f GB/s; %lld pinned, %lld waits",
               device->backend->name, bytes[i], speed, (long long)now.pins, (long long)now.waits);
        assert_int_equal(now.fallbacks, 0);
    }
    check_memory(device, memory, bytes[1], 3);
    device_release(device, memory, bytes[3]);
    device_allocators_host_close(device, pool);
    assert_null(device->host.allocate);
}

static void test_pinned_memory_of_every_device(void **state)
{
    on_devices(NULL, check_host);
}

/* A device that the host must wait for has batches and results of its own too. */
static void waiting_open(struct ranged *ranged)
{
    ranged_open(ranged);
    ranged->device.waits = true;
}

/* Memory that comes from a cache or a pool, and is full of what others left there, changes nothing. */
static void test_training_from_a_cache(void **state)
{
    struct ranged ranged;
    waiting_open(&ranged);
    struct cache *cache = device_allocators_open(&ranged.device, 0, false);
    struct pinned *pool = device_allocators_host_open(&ranged.device);
    void *used = device_allocate(&ranged.device, 4 << 20, "used");
    memset(used, 0xff, 4 << 20);
    device_release(&ranged.device, used, 4 << 20);
    used = device_host_allocate(&ranged.device, 128 << 10, "used", NULL);
    memset(used, 0xff, 128 << 10);
    device_host_release(&ranged.device, used, 128 << 10);
    struct graph graph = net_graph(net_mixed, true);
    struct net_options options = {.batch = 4, .storage = F32, .training = true, .device = &ranged.device};
    struct net cached, plain;
    net_open(&cached, &graph, &options);
    assert_int_equal(ranged.mapped, 4 << 20);
    assert_int_equal(device_open("cpu", 1, &options.device), OK);
    net_open(&plain, &graph, &options);
    for (uint64_t step = 0; step < 4; step++) {
        struct exec_batch batch = {.images = cached.images, .labels = cached.labels};
        net_batch(&cached, step);
        assert_int_equal(exec_run(cached.exec, &batch, 0.1, 0.9), OK);
        assert_int_equal(exec_run(plain.exec, &batch, 0.1, 0.9), OK);
        assert_memory_equal(exec_losses(cached.exec), exec_losses(plain.exec), 4 * sizeof(float));
    }
    net_close(&plain);
    device_close(options.device);
    net_close(&cached);
    graph_free(&graph);
    assert_int_equal(cache_statistics(cache).allocated, 0);
    assert_int_equal(pinned_statistics(pool).requested, 0);
    assert_true(pinned_statistics(pool).allocations > 2);
    device_allocators_host_close(&ranged.device, pool);
    device_allocators_close(&ranged.device, cache);
    assert_int_equal(ranged.mapped, 0);
}

static enum status open_and_close(struct device *device, struct graph *graph)
{
    struct store store = {0};
    struct compiled compiled = {0};
    struct exec *exec = NULL;
    const struct kernel_options kernels = {.code_of = kernel_plans_code(DEVICE_CPU), .device = device};
    const struct optimizer *optimizer = optimizer_find("sgd");
    TRY(store_open(device, graph, &(struct store_options){.low = F32, .optimizer = optimizer}, &store));
    enum status status = lower(graph, &(struct lower_options){.batch = 64, .micro_batches = 1,
                                                              .training = true,
                                                              .storage = F32},
                               &kernels, &compiled.program);
    if (status == OK) status = streams_assign(&compiled.program, 1, BY_MICRO_BATCH);
    if (status == OK)
        status = kernel_plans_prepare(&compiled.program, &kernels, &compiled.kernel_plans);
    if (status == OK) status = plan_make(&compiled.program, true, 0, &compiled.plan);
    struct exec_options options = {.device = device, .store = &store, .optimizer = optimizer,
                                   .optimizer_settings = optimizer->initial, .scaling = {.scale = 1}};
    if (status == OK) status = exec_open(&compiled, &options, &exec);
    exec_close(exec);
    compiled_free(&compiled);
    store_close(&store);
    return status;
}

/* The device says no at the k-th piece: exit 4 with a table, and nothing is left behind. */
static void test_failures_at_every_piece(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    enum status status = NO_DEVICE;
    int pieces;
    for (pieces = 0; status != OK && pieces < 100; pieces++) {
        struct ranged ranged;
        struct caught caught;
        waiting_open(&ranged);
        ranged.left = pieces;
        struct cache *cache = device_allocators_open(&ranged.device, 0, false);
        caught_begin(&caught);
        status = open_and_close(&ranged.device, &graph);
        caught_end(&caught);
        assert_true(status == OK || status == NO_DEVICE);
        assert_int_equal(caught.errors, status == OK ? 0 : 1);
        if (pieces > 1 && status != OK) assert_true(caught_has(&caught, "parameters and optimizer state\n"));
        assert_int_equal(cache_statistics(cache).allocated, 0);
        device_allocators_close(&ranged.device, cache);
        assert_int_equal(ranged.mapped, 0);
        assert_int_equal(ranged.left, pieces);
        text_free(&caught.words);
    }
    assert_int_equal(status, OK);
    assert_true(pieces > 2);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_made_up_device),
        cmocka_unit_test(test_every_device_that_can),
        cmocka_unit_test(test_within_a_limit),
        cmocka_unit_test(test_devices_without_ranges_serve_themselves),
        cmocka_unit_test(test_who_holds_what),
        cmocka_unit_test(test_pinned_memory_of_every_device),
        cmocka_unit_test(test_training_from_a_cache),
        cmocka_unit_test(test_failures_at_every_piece),
    };
    return cmocka_run_group_tests_name("supply", tests, NULL, NULL);
}
