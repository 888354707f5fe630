#include "net.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/offload.h"
#include "compile/memory/recompute.h"
#include "tests/support/unit.h"

const char net_mixed[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=8 kernel=3 pad=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "add = add bn2 relu1\n"
    "relu2 = relu add\n"
    "left = conv relu2 filters=4 kernel=1\n"
    "right = conv relu2 filters=6 kernel=3 pad=1\n"
    "cat = concat left right\n"
    "pool = maxpool cat kernel=2 stride=2\n"
    "silu = silu pool\n"
    "drop = dropout silu rate=0.3\n"
    "avg = globalavgpool drop\n"
    "fc = linear avg units=5\n";

const char net_plain[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=6 kernel=3 pad=1\n"
    "relu1 = relu conv1\n"
    "conv2 = conv relu1 filters=6 kernel=3 pad=1\n"
    "add = add conv2 relu1\n"
    "pool = avgpool add kernel=2 stride=2\n"
    "flat = flatten pool\n"
    "fc = linear flat units=5\n";

static void must(bool right, const char *what)
{
    if (right) return;
    fprintf(stderr, "test set-up failed: %s\n", what);
    exit(1);
}

struct graph net_graph(const char *text, bool fused)
{
    struct graph graph;
    struct model_options options = {.classes = NET_CLASSES, .dropout = -1};
    must(model_load_text(&options, "net", text, &graph) == OK, "model");
    if (fused) must(fuse(&graph) == OK, "fuse");
    return graph;
}

static void open_store(struct net *net, const struct net_options *options)
{
    struct store_options store = {.low = options->storage, .ema = options->ema};
    net->store = options->store ? options->store : &net->own;
    if (options->store) return;
    if (options->training) store.optimizer = optimizer_find(options->optimizer ? options->optimizer : "sgd");
    must(store_open(net->device, net->graph, &store, &net->own) == OK, "store");
    must(store_init(&net->own, 7) == OK, "initial values");
}

int64_t net_recompute_and_offload(struct program *program, uint64_t seed)
{
    struct offload_forecast forecast;
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < program->count; i++) modes[i] = (enum recompute_mode)random_below(&random, 3);
    recompute(program, modes);
    fuse_recompute(program, INT64_MAX);
    offload(program, &(struct offload_options){.limit = 0, .least = 1}, &forecast);
    free(modes);
    return forecast.moved;
}

const struct op_code *net_reference_of(const struct op *op)
{
    return op->reference;
}

static struct kernel_options kernels_of(const struct net *net, const struct net_options *options)
{
    return (struct kernel_options){
        .code_of = options->reference ? net_reference_of : kernel_plans_code(net->device->backend->kind),
        .device = net->device, .deterministic = !options->undetermined,
    };
}

/* Makes what is left to do of the program. */
static void net_compile(struct net *net, const struct net_options *options)
{
    struct compiled *compiled = &net->compiled;
    const struct kernel_options kernels = kernels_of(net, options);
    compiled->program = net->program;
    must(kernel_plans_prepare(&compiled->program, &kernels, &compiled->kernel_plans) == OK, "kernel plans");
    must(plan_make(&compiled->program, !options->separate, options->plan_seconds, &compiled->plan) == OK,
         "plan");
    if (options->planned) options->planned(&compiled->program, options->planned_context);
    net->program = compiled->program;
}

void net_rules(struct program *program, const char *pass, code_lookup *code_of)
{
    const struct kernel_options kernels = {.code_of = code_of};
    rules_apply(program, pass, &(struct rule_options){.kernels = &kernels});
}

void net_open(struct net *net, struct graph *graph, const struct net_options *options)
{
    *net = (struct net){.graph = graph};
    net->device = options->device;
    net->own_device = !options->device;
    if (net->own_device && options->reference) must(device_open("cpu", 0, &net->device) == OK, "device");
    else if (net->own_device) net->device = place_open(0);
    open_store(net, options);
    struct lower_options lowering = {.batch = options->batch, .micro_batches = options->micro_batches
                                     ? options->micro_batches : 1,
                                     .first_micro_batch = options->first_micro_batch,
                                     .all_micro_batches = options->all_micro_batches,
                                     .sync_bn = options->sync_bn, .wire = options->wire,
                                     .training = options->training, .storage = options->storage,
                                     .label_smoothing = 0.1, .fold_least = options->fold_least,
                                     .soft_targets = options->soft_targets,
                                     .pixel_loss = options->pixel_loss,
                                     .logits = options->logits};
    const struct kernel_options kernels = kernels_of(net, options);
    must(lower(graph, &lowering, &kernels, &net->program) == OK, "lower");
    if (options->merged) net_rules(&net->program, "fuse_gradient_sums", kernels.code_of);
    if (options->pass) options->pass(&net->program, options->pass_context);
    must(streams_within(&net->program, options->streams ? options->streams : 1, options->division,
                        options->stream_limit) == OK, "streams");
    struct exec_options exec = {.device = net->device, .store = net->store, .replicas = options->comm,
                                .seed = 3,
                                .stop_at = options->stop_at, .deterministic = !options->undetermined};
    exec.optimizer = optimizer_find(options->optimizer ? options->optimizer : "sgd");
    if (exec.optimizer) exec.optimizer_settings = exec.optimizer->initial;
    exec.optimizer_settings.ema = options->ema ? 0.5 : 0;
    exec.decay_norm_bias = options->decay_norm_bias;
    exec.scaling = (struct scaler_settings){.scale = options->scale > 0 ? options->scale : 1};
    net_compile(net, options);
    must(exec_open(&net->compiled, &exec, &net->exec) == OK, "exec");
    net->image_elements = net->program.images_bytes / (int64_t)dtype_bytes(options->storage);
    net->images = memory_new((size_t)net->program.images_bytes, 1);
    net->labels = memory_new((size_t)options->batch, sizeof *net->labels);
    if (options->soft_targets) net->targets = memory_new((size_t)net->program.targets_bytes, 1);
    net_batch(net, 1);
}

void net_close(struct net *net)
{
    exec_close(net->exec);
    compiled_free(&net->compiled);
    store_close(&net->own);
    if (net->own_device) device_close(net->device);
    free(net->images);
    free(net->labels);
    free(net->targets);
}

void net_batch(struct net *net, uint64_t seed)
{
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    for (int64_t i = 0; i < net->image_elements; i++)
        dtype_set(net->program.storage, net->images, i, random_normal(&random));
    for (int i = 0; i < net->program.batch; i++) net->labels[i] = (int32_t)random_below(&random, NET_CLASSES);
    for (int i = 0; net->targets && i < net->program.batch; i++) {
        float *target = net->targets + i * NET_TARGETS;
        for (int c = 0; c < NET_CLASSES; c++) target[c] = net->labels[i] == c;
        target[NET_CLASSES] = (float)net->labels[i];
    }
}

enum status net_run(struct net *net, double lr)
{
    place_poison(net->device, exec_arena(net->exec), (size_t)exec_plan(net->exec)->arena_bytes);
    struct exec_batch batch = {.images = net->images, .labels = net->labels};
    if (net->targets) batch.labels = net->targets;
    if (net->masks) batch.labels = net->masks;
    return exec_run(net->exec, &batch, lr, 0.9);
}

void *net_store(const struct net *net, int64_t bytes)
{
    return place_copy(net->device, net->store->memory, (size_t)bytes);
}

float *net_gradient(const struct net *net, int param)
{
    if (net->program.gradients[param] < 0) return NULL;
    int64_t count = shape_count(net->graph->params[param].spec.shape);
    float *gradient = memory_new((size_t)count, sizeof *gradient);
    must(exec_gradient(net->exec, param, gradient) == OK, "gradient");
    return gradient;
}

void net_assert_same_gradients(const struct net *a, const struct net *b)
{
    for (int p = 0; p < a->graph->param_count; p++) {
        float *of_a = net_gradient(a, p), *of_b = net_gradient(b, p);
        size_t bytes = (size_t)shape_count(a->graph->params[p].spec.shape) * sizeof *of_a;
        if (of_a) assert_memory_equal(of_a, of_b, bytes);
        free(of_a);
        free(of_b);
    }
}

static void net_pass_run(struct program *program, void *context)
{
    const struct net_pass *pass = context;
    net_rules(program, pass->name, pass->code_of);
    if (pass->others) assert_true(net_recompute_and_offload(program, pass->seed) > 0);
}

void net_pair_open(struct net_pair *pair, const char *text, const struct net_options *options,
                   struct net_pass pass)
{
    struct net_options changed = *options;
    *pair = (struct net_pair){.graph = net_graph(text, true), .pass = pass};
    net_open(&pair->plain, &pair->graph, options);
    pair->pass.code_of = options->reference ? net_reference_of
                                            : kernel_plans_code(pair->plain.device->backend->kind);
    changed.pass = net_pass_run;
    changed.pass_context = &pair->pass;
    net_open(&pair->changed, &pair->graph, &changed);
}

void net_pair_compare(struct net_pair *pair)
{
    struct reason reason = {0};
    bool valid = plan_verify(&pair->changed.program, exec_plan(pair->changed.exec), &reason);
    if (!valid) fail_msg("%s", reason.text);
    assert_int_equal(net_run(&pair->plain, 0.1), OK);
    assert_int_equal(net_run(&pair->changed, 0.1), OK);
    net_assert_same_gradients(&pair->plain, &pair->changed);
    net_close(&pair->plain);
    net_close(&pair->changed);
    graph_free(&pair->graph);
}
