/* Every back end of this build on every device there is: memory, copies, order between streams, and
 * what is said where there is no device. */
#include "base/host.h"
#include "base/log.h"
#include "device/built_for.h"
#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"

#include "tests/support/devices.h"   /* its checks are cmocka's */

#define BYTES (8u << 20)

static void quiet(void *context, enum log_level level, const char *line)
{
    (void)level;
    snprintf(context, 512, "%s", line);
}

static void test_built_for(void **state)
{
    assert_true(built_for("75 80 86 90", 75) && built_for("75 80 86 90", 89) && built_for("75 80 86 90", 90));
    assert_true(built_for("75 80 86 90", 100));      /* by PTX */
    assert_false(built_for("75 80 86 90", 70));
    assert_false(built_for("90", 89));
    assert_false(built_for("86 90", 80));            /* 8.6's code is not for 8.0 */
    assert_true(built_for("86 90", 89));
    assert_true(built_for("86", 120));
    assert_false(built_for("", 90));
}

/* A pattern goes up on one stream, is copied back on another that waits for it, and must be whole. */
static void round_trip(struct device *device)
{
    const struct device_backend *backend = device->backend;
    uint8_t *from = backend->memory.host_allocate(device, BYTES);
    uint8_t *to = backend->memory.host_allocate(device, BYTES);
    void *memory = backend->memory.allocate(device, BYTES);
    assert_non_null(from);
    assert_non_null(to);
    assert_non_null(memory);
    assert_int_equal((uintptr_t)memory % 256, 0);
    int last = device->streams - 1;
    for (unsigned round = 0; round < 8; round++) {
        for (size_t i = 0; i < BYTES; i++) from[i] = (uint8_t)(i * 31 + round + (i >> 8));
        memset(to, 0xee, BYTES);
        assert_int_equal(backend->transfers.upload(device, 0, memory, from, BYTES), OK);
        assert_int_equal(backend->events.record(device, 0, 0), OK);
        assert_int_equal(backend->events.stream_wait(device, last, 0), OK);
        assert_int_equal(backend->transfers.download(device, last, to, memory, BYTES), OK);
        assert_int_equal(backend->synchronize(device), OK);
        assert_memory_equal(from, to, BYTES);
    }
    assert_int_equal(backend->transfers.fill_zero(device, 0, memory, BYTES), OK);
    assert_int_equal(backend->transfers.download(device, 0, to, memory, BYTES), OK);
    assert_int_equal(backend->synchronize(device), OK);
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(to[i], 0);
    /* Given back without waiting for what a stream still does with it. */
    memset(from, 7, BYTES);
    assert_int_equal(backend->transfers.upload(device, last, memory, from, BYTES), OK);
    device_host_release_after(device, from, BYTES, last);
    assert_int_equal(backend->transfers.download(device, last, to, memory, BYTES), OK);
    assert_int_equal(backend->synchronize(device), OK);
    for (size_t i = 0; i < BYTES; i++) assert_int_equal(to[i], 7);
    backend->memory.free(device, memory, BYTES);
    backend->memory.host_free(device, to, BYTES);
}

/* Queues, or captures, what fills parts of the memory between copies to it and from it. */
static void queue_fills(struct device *device, uint8_t *memory, const uint8_t *from, uint8_t *to)
{
    static const struct { size_t at, bytes; } fills[] = {
        {512, 4}, {1024, 4096}, {8192, 3}, {9001, 1000},
        /* More words in a row than a kernel fills, and some twice. */
        {12288, 64}, {12320, 64}, {12800, 4}, {13312, 2048}, {16384, 12}, {17408, 4000},
        {24576, 8}, {25600, 1028}, {28672, 4}, {29696, 16}, {30720, 512}, {31744, 4},
    };
    const struct device_transfers *transfers = &device->backend->transfers;
    assert_int_equal(transfers->upload(device, 0, memory, from, BYTES), OK);
    for (size_t i = 0; i < sizeof fills / sizeof *fills; i++)
        assert_int_equal(transfers->fill_zero(device, 0, memory + fills[i].at, fills[i].bytes), OK);
    assert_int_equal(transfers->fill_zero(device, 0, memory + BYTES / 2, BYTES / 2), OK);
    assert_int_equal(transfers->download(device, 0, to, memory, BYTES), OK);
    /* Copies of what was filled, to places of what was not; and between places that take each other's. */
    assert_int_equal(transfers->download(device, 0, to, memory + 1024, 64), OK);
    assert_int_equal(transfers->download(device, 0, to + 64, memory, 400), OK);
    assert_int_equal(transfers->download(device, 0, to + 128, memory + 8192, 3), OK);
    assert_int_equal(transfers->download(device, 0, to + 256, memory + 1024, 4), OK);
    assert_int_equal(transfers->download(device, 0, to + 260, memory + 1024, 8), OK);
}

/* A captured step does what it does when queued, fills and copies of few bytes, odd ones and large ones
 * included. */
static void captured_fills(struct device *device)
{
    const struct device_backend *backend = device->backend;
    struct captured *captured;
    uint8_t *from = backend->memory.host_allocate(device, BYTES);
    uint8_t *queued = backend->memory.host_allocate(device, BYTES);
    uint8_t *to = backend->memory.host_allocate(device, BYTES);
    void *memory = backend->memory.allocate(device, BYTES);
    if (backend->capture.begin) {
        memset(from, 0xa5, BYTES);
        queue_fills(device, memory, from, queued);
        assert_int_equal(backend->synchronize(device), OK);
        assert_int_equal(backend->capture.begin(device), OK);
        queue_fills(device, memory, from, to);
        assert_int_equal(backend->capture.end(device, &captured), OK);
        for (int run = 0; run < 2; run++) {
            memset(to, 0, BYTES);
            assert_int_equal(backend->capture.launch(device, captured), OK);
            assert_int_equal(backend->synchronize(device), OK);
            assert_memory_equal(to, queued, BYTES);
        }
        backend->capture.free(captured);
    }
    backend->memory.free(device, memory, BYTES);
    backend->memory.host_free(device, to, BYTES);
    backend->memory.host_free(device, queued, BYTES);
    backend->memory.host_free(device, from, BYTES);
}

static void test_round_trips(void **state)
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        struct reason reason;
        int count = (*backend)->count(&reason);
        if (count == 0) print_message("%s: %s\n", (*backend)->name, reason.text);
        for (int index = 0; index < count; index++) {
            struct device *device;
            struct text text = {0};
            (*backend)->describe(index, &text);
            print_message("%s:%d: %s\n", (*backend)->name, index, text.data);
            assert_int_equal((*backend)->open(index, 1, &device), OK);
            round_trip(device);
            captured_fills(device);
            device_close(device);
            text_free(&text);
        }
    }
}

static void refuses_absurd_sizes(struct device *device)
{
    const struct device_backend *backend = device->backend;
    assert_null(backend->memory.allocate(device, (size_t)1 << 50));
    void *memory = backend->memory.allocate(device, 4096);
    assert_non_null(memory);
    backend->memory.free(device, memory, 4096);
    assert_int_equal(backend->synchronize(device), OK);
}

static void test_absurd_sizes_are_refused(void **state)
{
    on_devices(NULL, refuses_absurd_sizes);
}

/* A kernel would promise all of it all the same. */
static void test_all_of_the_memory_is_refused(void **state)
{
    struct device *device;
    size_t available, total;
    host_memory(&available, &total);
    if (available == 0 || total < (size_t)2 << 30) skip();
    assert_int_equal(device_open("cpu", 1, &device), OK);
    assert_null(device_allocate(device, total, "all"));
    void *some = device_allocate(device, (size_t)1 << 20, "some");
    assert_non_null(some);
    device_release(device, some, (size_t)1 << 20);
    device_close(device);
}

static void test_names(void **state)
{
    char said[512] = "";
    struct device *device;
    assert_int_equal(device_open("cpu", 1, &device), OK);
    assert_int_equal(device->backend->kind, DEVICE_CPU);
    device_close(device);
    log_set_sink((struct log_sink){quiet, said});
    log_set_level(LOG_ERROR);
    assert_int_equal(device_open("cuda:99", 1, &device), NO_DEVICE);
    assert_non_null(strstr(said, "cuda"));
    assert_int_equal(device_open("abacus", 1, &device), USAGE);
    assert_non_null(strstr(said, "abacus"));
    log_set_sink((struct log_sink){NULL, NULL});
    log_set_level(LOG_INFO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_round_trips),
        cmocka_unit_test(test_built_for),
        cmocka_unit_test(test_absurd_sizes_are_refused),
        cmocka_unit_test(test_all_of_the_memory_is_refused),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
