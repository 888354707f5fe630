/* test_ahead: a host that runs ahead of its device: two steps under way end where one after the
 * other ends. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "exec/exec_checks.h"
#include "session/step_queue.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* A device that the host must wait for: batches are copied, results fetched. The CPU can pass as one. */
struct late {
    struct device *real, *device;
    struct device_backend backend;
    struct device cpu;
};

static void late_open(struct late *late)
{
    late->device = late->real = place_open(0);
    if (!place_is_cpu()) return;
    late->backend = *late->real->backend;
    late->cpu = *late->real;
    late->cpu.backend = &late->backend;
    late->cpu.waits = true;
    late->device = &late->cpu;
}

static struct exec_batch batch_of(const struct net *net)
{
    return (struct exec_batch){.images = net->images, .labels = net->labels};
}

static void assert_same_params(const struct net *a, const struct net *b)
{
    for (int p = 0; p < a->graph->param_count; p++) {
        size_t bytes = (size_t)shape_count(a->graph->params[p].spec.shape) *
                       dtype_bytes(a->graph->params[p].spec.dtype);
        void *left = malloc(bytes), *right = malloc(bytes);
        assert_int_equal(store_read(a->store, p, STORE_MASTER, left), OK);
        assert_int_equal(store_read(b->store, p, STORE_MASTER, right), OK);
        assert_memory_equal(left, right, bytes);
        free(left);
        free(right);
    }
}

/* Eight steps on two batches: one at a time, and with one always under way. */
static void test_two_under_way(void **state)
{
    struct late late;
    late_open(&late);
    struct graph graph = net_graph(net_mixed, true);
    struct net_options options = {.batch = 4, .storage = F32, .training = true};
    struct net now, ahead;
    net_open(&now, &graph, &options);
    options.device = late.device;
    net_open(&ahead, &graph, &options);
    if (place_is_cpu()) assert_int_equal(exec_depth(now.exec), 1);
    assert_int_equal(exec_depth(ahead.exec), 2);
    float losses[8][4];
    for (int i = 0; i < 8; i++) {
        net_batch(&now, (uint64_t)i);
        struct exec_batch batch = batch_of(&now);
        assert_int_equal(exec_run(now.exec, &batch, 0.1 / (i + 1), 0.9), OK);
        memcpy(losses[i], exec_losses(now.exec), sizeof losses[i]);
    }
    for (int i = 0; i <= 8; i++) {
        if (i < 8) {
            net_batch(&ahead, (uint64_t)i);
            struct exec_batch batch = batch_of(&ahead);
            struct update_rates rates = {.updates = exec_state(ahead.exec)->updates, .momentum = {0.9, 0.9}};
            for (int k = 0; k < 2; k++) rates.lr[k] = 0.1 / (double)(rates.updates + k + 1);
            assert_int_equal(exec_start(ahead.exec, &batch, &rates), OK);
        }
        if (i == 0) continue;
        assert_int_equal(exec_collect(ahead.exec), OK);
        assert_int_equal(exec_state(ahead.exec)->updates, i);
        assert_memory_equal(exec_losses(ahead.exec), losses[i - 1], sizeof losses[i - 1]);
    }
    assert_same_params(&now, &ahead);
    net_close(&now);
    net_close(&ahead);
    graph_free(&graph);
    device_close(late.real);
}

/* A step that is skipped: the one behind it takes the rates of the same update,
 * and changes what it would have. */
static void test_skipped_before(void **state)
{
    struct late late;
    late_open(&late);
    struct graph graph = net_graph(net_plain, true);
    struct net_options options = {.batch = 4, .storage = F32, .training = true};
    struct net now, ahead;
    net_open(&now, &graph, &options);
    options.device = late.device;
    net_open(&ahead, &graph, &options);
    struct exec_batch good = batch_of(&now);
    assert_int_equal(exec_run(now.exec, &good, 0.25, 0.9), OK);

    float *bad = malloc((size_t)ahead.program.images_bytes);
    memset(bad, 0xff, (size_t)ahead.program.images_bytes);
    struct exec_batch first = {.images = bad, .labels = ahead.labels}, second = batch_of(&ahead);
    struct update_rates rates = {.lr = {0.25, 100}, .momentum = {0.9, 0}};
    assert_int_equal(exec_start(ahead.exec, &first, &rates), OK);
    assert_int_equal(exec_start(ahead.exec, &second, &rates), OK);
    assert_int_equal(exec_collect(ahead.exec), OK);
    assert_int_equal(exec_state(ahead.exec)->skipped, 1);
    assert_int_equal(exec_collect(ahead.exec), OK);
    assert_int_equal(exec_state(ahead.exec)->skipped, 0);
    assert_int_equal(exec_state(ahead.exec)->updates, 1);
    assert_int_equal(exec_state(ahead.exec)->step, 2);
    assert_same_params(&now, &ahead);
    free(bad);
    net_close(&now);
    net_close(&ahead);
    graph_free(&graph);
    device_close(late.real);
}

/* The loader that batches of the queue go back to: which did, in order. */
struct loader {
    const struct batch *returned[4];
    int count;
};

void loader_return(struct loader *loader, struct batch *batch)
{
    assert_true(loader->count < 4);
    loader->returned[loader->count++] = batch;
}

/* The oldest is collected first; what is dropped gives its batches back, and the next step can follow. */
static void test_queue(void **state)
{
    struct late late;
    late_open(&late);
    struct graph graph = net_graph(net_plain, true);
    struct net_options options = {.batch = 4, .storage = F32, .training = true, .device = late.device};
    struct net net;
    net_open(&net, &graph, &options);
    struct loader loader = {.count = 0};
    const struct step step = {.exec = net.exec};
    struct step_queue queue = {.device = late.device, .step = &step, .loader = &loader};
    struct batch batches[3];
    struct exec_batch input = batch_of(&net);
    struct queued_step made, next = {.rates = {.lr = {0.1, 0.1}}};
    for (int i = 0; i < 2; i++) {
        assert_false(step_queue_full(&queue));
        next.batch = &batches[i];
        assert_int_equal(step_queue_start(&queue, &next, &input), OK);
    }
    assert_true(step_queue_full(&queue));
    assert_int_equal(step_queue_collect(&queue, &made), OK);
    assert_ptr_equal(made.batch, &batches[0]);
    assert_int_equal(loader.count, 0);
    step_queue_return(&queue, &made);
    next.batch = &batches[2];
    assert_int_equal(step_queue_start(&queue, &next, &input), OK);
    step_queue_drop(&queue);
    assert_int_equal(loader.count, 3);
    for (int i = 0; i < 3; i++) assert_ptr_equal(loader.returned[i], &batches[i]);
    assert_int_equal(exec_state(net.exec)->step, 3);
    next.batch = NULL;
    assert_int_equal(step_queue_start(&queue, &next, &input), OK);
    step_queue_drop(&queue);
    assert_int_equal(loader.count, 3);
    assert_int_equal(exec_state(net.exec)->step, 4);
    net_close(&net);
    graph_free(&graph);
    device_close(late.real);
}

/* Once steps at the lowest scale overflow too often, what is queued behind changes nothing. */
static void test_stops(void **state)
{
    struct graph graph = net_graph(net_plain, true);
    struct net_options options = {.batch = 4, .storage = F32, .training = true, .stop_at = 1};
    struct net net, untouched;
    net_open(&net, &graph, &options);
    net_open(&untouched, &graph, &options);
    float *bad = malloc((size_t)net.program.images_bytes);
    memset(bad, 0xff, (size_t)net.program.images_bytes);
    struct exec_batch first = {.images = bad, .labels = net.labels}, second = batch_of(&net);
    assert_int_equal(exec_run(net.exec, &first, 0.1, 0.9), OK);
    assert_int_equal(exec_run(net.exec, &second, 0.1, 0.9), OK);
    assert_int_equal(exec_state(net.exec)->step, 1);
    assert_int_equal(exec_state(net.exec)->skipped, 1);
    assert_same_params(&net, &untouched);
    free(bad);
    net_close(&net);
    net_close(&untouched);
    graph_free(&graph);
}

static void fill_param(struct net *net, const char *name, float value)
{
    int param = graph_find_param(net->graph, name);
    int64_t count = shape_count(net->graph->params[param].spec.shape);
    float *values = malloc((size_t)count * sizeof *values);
    for (int64_t i = 0; i < count; i++) values[i] = value;
    assert_int_equal(store_write(net->store, param, STORE_MASTER, values), OK);
    free(values);
}

/* A glimpse is of its own run, though the one behind it has begun; a run that was not asked leaves none. */
static void test_glimpse(void **state)
{
    struct late late;
    late_open(&late);
    struct graph graph = net_graph(net_mixed, true);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .storage = F32, .training = true,
                                                 .device = late.device});
    int conv = graph_find_param(&graph, "conv1.weight"), fc = graph_find_param(&graph, "fc.weight");
    struct exec_batch batch = batch_of(&net);
    struct update_rates rates = {0};
    exec_glimpse_next(net.exec);
    assert_int_equal(exec_start(net.exec, &batch, &rates), OK);
    assert_int_equal(late.device->backend->synchronize(late.device), OK);
    fill_param(&net, "fc.weight", 0);
    fill_param(&net, "bn1.running_var", NAN);
    exec_glimpse_next(net.exec);
    assert_int_equal(exec_start(net.exec, &batch, &rates), OK);
    assert_int_equal(exec_collect(net.exec), OK);
    assert_true(exec_glimpsed(net.exec));
    assert_false(exec_glimpse_zero(net.exec, conv));
    assert_null(exec_glimpse_not_finite(net.exec));
    assert_int_equal(exec_start(net.exec, &batch, &rates), OK);
    assert_int_equal(exec_collect(net.exec), OK);
    assert_true(exec_glimpsed(net.exec));
    assert_true(exec_glimpse_zero(net.exec, conv));
    assert_false(exec_glimpse_zero(net.exec, fc));
    assert_string_equal(exec_glimpse_not_finite(net.exec), "bn1.running_var");
    assert_int_equal(exec_collect(net.exec), OK);
    assert_false(exec_glimpsed(net.exec));
    net_close(&net);
    graph_free(&graph);
    device_close(late.real);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_under_way),
        cmocka_unit_test(test_skipped_before),
        cmocka_unit_test(test_queue),
        cmocka_unit_test(test_stops),
        cmocka_unit_test(test_glimpse),
    };
    return cmocka_run_group_tests_name("ahead", tests, NULL, NULL);
}
