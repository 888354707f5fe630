/* A NaN or an Inf put into every tensor that an instruction of a training step of resnet20 writes, into every
 * parameter and into the batch, is found by exec_diagnose: by layer, tensor and image. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "exec/exec_checks.h"
#include "exec/exec_parts.h"
#include "tests/support/net.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

/* The number that an instruction is made to leave in a tensor that it wrote. */
struct injection {
    struct exec *exec;
    int at, value;
    int64_t element;
    double number;
    enum status (*run)(const struct call *call);
};
static struct injection injected;

static enum status run_and_inject(const struct call *call)
{
    const struct exec *exec = injected.exec;
    enum dtype dtype = exec->program->values[injected.value].dtype;
    TRY(injected.run(call));
    dtype_set(dtype, exec_address(exec, &exec->slots[0], injected.value), injected.element, injected.number);
    return OK;
}

static void inject(struct injection injection)
{
    struct exec_step *step = &injection.exec->steps[injection.at];
    injected = injection;
    injected.run = step->run;
    step->run = run_and_inject;
}

static void restore(void)
{
    injected.exec->steps[injected.at].run = injected.run;
}

static struct graph resnet20(bool fused)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options options = {.arch = "resnet20", .folders = folders, .size_h = 8, .size_w = 8,
                                          .classes = NET_CLASSES, .dropout = -1};
    struct graph graph;
    assert_int_equal(model_load(&options, &graph), OK);
    if (fused) assert_int_equal(fuse(&graph), OK);
    return graph;
}

static void found_is(const struct net *net, const char *words, int first, int last)
{
    struct exec_finding found;
    assert_int_equal(exec_diagnose(net->exec, &found), OK);
    assert_string_equal(found.what.text, words);
    assert_int_equal(found.first, first);
    assert_int_equal(found.last, last);
}

/* Where `number`, one for each case, goes: NaN and Inf in turn, at another image and element each time. */
struct place {
    int images;              /* of a micro-batch */
    int image;               /* in it */
    int64_t element;
    bool narrow;             /* the tensor has a part for each image */
    bool inf;
};

static struct place place_of(const struct net *net, const struct value *value, int number)
{
    struct place place = {.images = net->program.batch / net->program.micro_batches, .inf = number % 2};
    int64_t count = shape_count(value->shape), part = count / place.images, spread = 7919 * number;
    place.image = number % place.images;
    place.narrow = value->shape.rank == 4 && value->shape.n == place.images &&
                   value->kind != KIND_PARAM_GRADIENT;
    place.element = place.narrow ? part * place.image + spread % part : spread % count;
    return place;
}

static void params_are_finite(const struct net *net)
{
    for (int p = 0; p < net->graph->param_count; p++) {
        const struct op_param *spec = &net->graph->params[p].spec;
        int64_t count = shape_count(spec->shape);
        if (spec->dtype != F32) continue;
        float *numbers = memory_new((size_t)count, sizeof *numbers);
        assert_int_equal(store_read(net->store, p, STORE_MASTER, numbers), OK);
        for (int64_t i = 0; i < count; i++) assert_true(isfinite(numbers[i]));
        free(numbers);
    }
}

/* A batch's variance, and the moments of all micro-batches, are read by nothing but the running ones. Which
 * of these; NULL: another value. */
static const char *followed_by(const struct instruction *at, const struct value *value)
{
    bool joined = strcmp(at->op->name, "moments") == 0, saved = value->kind == KIND_SAVED || joined;
    if (saved && strstr(value->name, " variance")) return "running_var";
    return joined ? "running_mean" : NULL;
}

/* A step goes through if relu did not let the gradient by at that element; then nothing has come of it. */
static void inject_write(struct net *net, int i, const struct operand *o, int number)
{
    const struct instruction *at = &net->program.instructions[i];
    const struct value *value = &net->program.values[o->value];
    const char *output = at->phase == PHASE_FORWARD && o->role == OPERAND_Y ? "output" : value->name;
    const struct place place = place_of(net, value, number);
    const char *what = place.inf ? "Inf" : "NaN", *statistic = followed_by(at, value);
    void *before = net_store(net, net->store->layout.bytes);
    char words[256];
    snprintf(words, sizeof words, "%s: %s contains %s", at->name, output, what);
    inject((struct injection){.exec = net->exec, .at = i, .value = o->value, .element = place.element,
                              .number = place.inf ? INFINITY : NAN});
    assert_int_equal(net_run(net, 0.1), OK);
    int first = at->micro_batch * place.images, last = first + place.images - 1;
    if (value->home == HOME_RESULT)
        assert_false(isfinite(exec_losses(net->exec)[first + place.image]));
    if (place.narrow) first = last = first + place.image;
    if (statistic) {
        const char *layer = net->graph->nodes[value->node].name;
        snprintf(words, sizeof words, "parameter %s.%s contains %s", layer, statistic, what);
        first = 0;
        last = net->program.batch - 1;
    } else if (!exec_state(net->exec)->skipped) {
        params_are_finite(net);
    }
    found_is(net, words, first, last);
    restore();
    memcpy(net->store->memory, before, (size_t)net->store->layout.bytes);
    free(before);
}

static bool of_floats(const struct net *net, int value)
{
    const struct value *v = &net->program.values[value];
    return dtype_is_float(v->dtype) && v->kind != KIND_WORKSPACE;
}

/* Every `stride`-th tensor. */
static void inject_everywhere(struct net_options options, bool fused, int stride)
{
    struct graph graph = resnet20(fused);
    struct net net;
    options.training = true;
    net_open(&net, &graph, &options);
    int number = 0;
    for (int i = 0; i < net.program.count && net.program.instructions[i].phase != PHASE_UPDATE; i++)
        FOR_WRITES(o, &net.program.instructions[i])
            if (of_floats(&net, o->value) && number++ % stride == 0) inject_write(&net, i, o, number);
    assert_true(number > 150);
    found_is(&net, "", 0, -1);
    net_close(&net);
    graph_free(&graph);
}

static int needs_host_memory(void **state)
{
    if (!place_is_cpu()) skip();
    return 0;
}

static void test_tensors(void **state)
{
    needs_host_memory(state);
    inject_everywhere((struct net_options){.batch = 2}, true, getenv("AMPTRAIN_SANITIZED") ? 5 : 1);
}

static void test_tensors_of_micro_batches(void **state)
{
    needs_host_memory(state);
    struct net_options options = {.batch = 6, .micro_batches = 2, .storage = F16, .scale = 64,
                                  .merged = true};
    inject_everywhere(options, false, (int)rounds(29, 1));
}

static void test_tensors_low(void **state)
{
    needs_host_memory(state);
    inject_everywhere((struct net_options){.batch = 3, .storage = BF16, .merged = true}, true,
                      (int)rounds(23, 1));
}

/* Not a number in a parameter: in its master, or, where it is too large for a copy, in that. */
static void inject_param(struct net *net, struct net *evaluation, int p)
{
    const struct op_param *spec = &net->graph->params[p].spec;
    int64_t count = shape_count(spec->shape), at = 31 * p % count;
    float *numbers = memory_new((size_t)count, sizeof *numbers);
    assert_int_equal(store_read(net->store, p, STORE_MASTER, numbers), OK);
    float before = numbers[at];
    char words[256];
    snprintf(words, sizeof words, "parameter %s contains %s", net->graph->params[p].name,
                 p % 2 ? "Inf" : "NaN");
    numbers[at] = p % 2 ? INFINITY : NAN;
    assert_int_equal(store_write(net->store, p, STORE_MASTER, numbers), OK);
    assert_int_equal(net_run(net, 0.1), OK);
    if (p % 2 == 0) assert_int_equal(exec_state(net->exec)->skipped, spec->role != ROLE_STATISTIC);
    found_is(net, words, 0, net->program.batch - 1);
    assert_int_equal(net_run(evaluation, 0), OK);
    if (p % 2 == 0) assert_false(isfinite(exec_losses(evaluation->exec)[0]));
    found_is(evaluation, words, 0, net->program.batch - 1);
    numbers[at] = before;
    assert_int_equal(store_write(net->store, p, STORE_MASTER, numbers), OK);
    free(numbers);
}

static void test_params(void **state)
{
    struct graph graph = resnet20(true);
    struct net net, evaluation;
    net_open(&net, &graph, &(struct net_options){.batch = 2, .training = true});
    struct net_options options = {.batch = 2, .device = net.device, .store = net.store};
    net_open(&evaluation, &graph, &options);
    int tried = 0;
    for (int p = 0; p < graph.param_count; p++) {
        if (graph.params[p].spec.dtype != F32) continue;
        inject_param(&net, &evaluation, p);
        tried++;
    }
    assert_true(tried > 90);
    net_close(&evaluation);
    net_close(&net);
    graph_free(&graph);
}

static void test_batch(void **state)
{
    struct graph graph = resnet20(true);
    for (int image = 0; image < 4; image++) {
        struct net net;
        net_open(&net, &graph, &(struct net_options){.batch = 4, .micro_batches = 2, .training = true,
                                                     .soft_targets = true});
        net.targets[image * NET_TARGETS + 1] = NAN;
        assert_int_equal(net_run(&net, 0.1), OK);
        assert_int_equal(exec_state(net.exec)->skipped, 1);
        found_is(&net, "the targets hold NaN", image, image);
        dtype_set(F32, net.images, net.image_elements / 4 * image, -INFINITY);
        dtype_set(F32, net.images, net.image_elements - 1, INFINITY);
        assert_int_equal(net_run(&net, 0.1), OK);
        found_is(&net, "the images hold Inf", image, 3);
        net_close(&net);
    }
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tensors),
        cmocka_unit_test(test_tensors_of_micro_batches),
        cmocka_unit_test(test_tensors_low),
        cmocka_unit_test(test_params),
        cmocka_unit_test(test_batch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
