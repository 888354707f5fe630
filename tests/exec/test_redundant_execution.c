/* A step that is run twice comes to the same as one that is run once, with every optimizer and precision; and
 * a single bit that differs in one of the runs, in any tensor that is written, is found and named. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/exec_checks.h"
#include "exec/exec_parts.h"
#include "tests/support/caught.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* Takes the rates of net_run. */
static enum status run_twice(struct net *net, double lr)
{
    const double ema = net->exec->update.settings.ema;
    const struct exec_batch batch = {.images = net->images, .labels = net->labels};
    const struct update_rates rates = {.updates = exec_state(net->exec)->updates, .lr = {lr, lr},
                                       .momentum = {0.9, 0.9}, .ema = {ema, ema}};
    place_poison(net->device, exec_arena(net->exec), (size_t)exec_plan(net->exec)->arena_bytes);
    TRY(exec_start_redundant(net->exec, &batch, &rates));
    return exec_collect(net->exec);
}

static void once_is_twice(struct net_options options)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net once, twice;
    options.training = options.ema = true;
    options.batch = 6;
    net_open(&once, &graph, &options);
    net_open(&twice, &graph, &options);
    for (uint64_t step = 1; step <= 2; step++) {
        net_batch(&once, step);
        net_batch(&twice, step);
        assert_int_equal(net_run(&once, 0.05), OK);
        assert_int_equal(run_twice(&twice, 0.05), OK);
        assert_int_equal(exec_state(twice.exec)->step, step);
        assert_memory_equal(exec_losses(once.exec), exec_losses(twice.exec), 6 * sizeof(float));
    }
    void *from_once = net_store(&once, once.store->layout.bytes);
    void *from_twice = net_store(&twice, once.store->layout.bytes);
    assert_memory_equal(from_once, from_twice, (size_t)once.store->layout.bytes);
    free(from_once);
    free(from_twice);
    net_close(&once);
    net_close(&twice);
    graph_free(&graph);
}

static void test_once_is_twice(void **state)
{
    static const enum dtype storages[] = {F32, F16, BF16};
    for (const struct optimizer *const *o = optimizer_table; *o; o++)
        for (int s = 0; s < 3; s++)
            once_is_twice((struct net_options){.storage = storages[s], .micro_batches = 1 + s % 2,
                                               .optimizer = (*o)->name, .scale = 64});
}

/* A bit that turns over in the second run only. */
static struct {
    int calls;
    struct device *device;
    char *byte;                          /* device memory */
    enum status (*run)(const struct call *call);
    enum status (*apply)(const struct update *update);
} fault;

static void turn(void)
{
    if (++fault.calls != 2) return;
    const struct device_backend *backend = fault.device->backend;
    assert_int_equal(backend->synchronize(fault.device), OK);
    char *byte = place_copy(fault.device, fault.byte, 1);
    *byte ^= 16;
    assert_int_equal(backend->transfers.upload(fault.device, 0, fault.byte, byte, 1), OK);
    assert_int_equal(backend->synchronize(fault.device), OK);
    free(byte);
}

static enum status run_and_turn(const struct call *call)
{
    enum status status = fault.run(call);
    turn();
    return status;
}

static enum status apply_and_turn(const struct update *update)
{
    enum status status = fault.apply(update);
    turn();
    return status;
}

/* The fault is in place; the store stays as it was. */
static void is_found(struct net *net, const char *words)
{
    struct caught caught;
    void *before = net_store(net, net->store->layout.bytes);
    fault.device = net->device;
    caught_begin(&caught);
    enum status status = run_twice(net, 0.05);
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, words));
    void *after = net_store(net, net->store->layout.bytes);
    assert_memory_equal(before, after, (size_t)net->store->layout.bytes);
    assert_int_equal(caught.errors, 1);
    free(after);
    text_free(&caught.words);
    free(before);
}

static void turn_in_write(struct net *net, int i, const struct operand *o)
{
    struct exec_step *step = &net->exec->steps[i];
    const struct instruction *at = step->at;
    const struct value *value = &net->program.values[o->value];
    size_t bytes = (size_t)shape_count(value->shape) * dtype_bytes(value->dtype);
    char words[256];
    snprintf(words, sizeof words, "first in %s: %s: ", at->name,
             at->phase == PHASE_FORWARD && o->role == OPERAND_Y ? "output" : value->name);
    fault.calls = 0;
    char *data = exec_address(net->exec, &net->exec->slots[0], o->value);
    fault.byte = data + (131 * (unsigned)i + o->role) % bytes;
    fault.run = step->run;
    step->run = run_and_turn;
    is_found(net, words);
    step->run = fault.run;
}

static void test_tensors(void **state)
{
    struct graph graph = net_graph(net_mixed, false);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .micro_batches = 2, .training = true,
                                                 .ema = true});
    for (int i = 0; i < net.program.count; i++)
        FOR_WRITES(o, &net.program.instructions[i])
            if (net.program.instructions[i].op && o->role != OPERAND_WORKSPACE) turn_in_write(&net, i, o);
    assert_int_equal(run_twice(&net, 0.05), OK);
    net_close(&net);
    graph_free(&graph);
}

static void turn_in_store(struct net *net, int64_t at, const char *words)
{
    struct update_code code = *net->exec->update_code;
    const struct update_code *before = net->exec->update_code;
    fault.calls = 0;
    fault.byte = (char *)net->store->memory + at;
    fault.apply = code.apply;
    code.apply = apply_and_turn;
    net->exec->update_code = &code;
    is_found(net, words);
    net->exec->update_code = before;
}

static void test_store(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net net;
    net_open(&net, &graph, &(struct net_options){.batch = 4, .storage = BF16, .training = true, .ema = true,
                                                 .optimizer = "adam"});
    const struct store_layout *layout = &net.store->layout;
    const struct store_slot *slot = &layout->params[graph_find_param(&graph, "conv2.weight")];
    turn_in_store(&net, slot->master + 401, "first in conv2.weight: master: ");
    turn_in_store(&net, slot->low + 77, "first in update: conv2.weight: ");
    turn_in_store(&net, slot->slots[0] + 3, "first in conv2.weight: exp_avg: ");
    turn_in_store(&net, slot->slots[1] + 3, "first in conv2.weight: exp_avg_sq: ");
    turn_in_store(&net, slot->average + 5, "first in conv2.weight: average: ");
    turn_in_store(&net, layout->state + (int64_t)offsetof(struct optimizer_state, grad_norm),
                  "first in update: loss scale and counters: ");
    net_close(&net);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_is_twice),
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_store),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
