/* test_fold: a step whose expanding convolutions and max pooling are folded with their batch norms has the
 * gradients of one whose are not, as far as 16 bits tell; and the same bits whatever is masked, made again or
 * moved to the host. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/ir/program_parts.h"
#include "compile/memory/plan.h"
#include "compile/passes.h"
#include "tests/support/net.h"

/* Behind our headers: it has a macro called fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

/* A stem and two bottlenecks, the first with a projection: a pooling and three convolutions are folded. */
#define BOTTLENECKS(size, first) \
    "[input]\n" \
    "channels = 3\n" \
    "size = " size "\n" \
    "[layers]\n" \
    "conv1 = conv input " first " bias=no\n" \
    "bn1 = batchnorm conv1\n" \
    "relu1 = relu bn1\n" \
    "pool1 = maxpool relu1 kernel=3 stride=2 pad=1\n" \
    "down = conv pool1 filters=32 kernel=1 bias=no\n" \
    "downbn = batchnorm down\n" \
    "conv2 = conv pool1 filters=8 kernel=3 pad=1 bias=no\n" \
    "bn2 = batchnorm conv2\n" \
    "relu2 = relu bn2\n" \
    "conv3 = conv relu2 filters=32 kernel=1 bias=no\n" \
    "bn3 = batchnorm conv3\n" \
    "add3 = add bn3 downbn\n" \
    "relu3 = relu add3\n" \
    "conv4 = conv relu3 filters=16 kernel=1 bias=no\n" \
    "bn4 = batchnorm conv4\n" \
    "relu4 = relu bn4\n" \
    "conv5 = conv relu4 filters=32 kernel=1 bias=no\n" \
    "bn5 = batchnorm conv5\n" \
    "add5 = add bn5 relu3\n" \
    "relu5 = relu add5\n" \
    "pool = globalavgpool relu5\n" \
    "fc = linear pool units=5\n"
static const char bottlenecks[] = BOTTLENECKS("16", "filters=16 kernel=3 pad=1");
/* ResNet-50's stem, all of which becomes one op, comes first. */
static const char first_layers[] = BOTTLENECKS("32", "filters=64 kernel=7 stride=2 pad=3");
#define MICRO_BATCHES 2

/* The shortcut around the second block has a stride of 2. */
static const char strided[] =
    "[input]\n"
    "channels = 3\n"
    "size = 16\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=16 kernel=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "conv3 = conv relu1 filters=16 kernel=1 bias=no\n"
    "bn3 = batchnorm conv3\n"
    "add3 = add bn3 bn2\n"
    "relu3 = relu add3\n"
    "conv4 = conv relu3 filters=16 kernel=1 bias=no\n"
    "bn4 = batchnorm conv4\n"
    "relu4 = relu bn4\n"
    "conv5 = conv relu4 filters=16 kernel=3 stride=2 pad=1 bias=no\n"
    "bn5 = batchnorm conv5\n"
    "relu5 = relu bn5\n"
    "conv6 = conv relu5 filters=32 kernel=1 bias=no\n"
    "bn6 = batchnorm conv6\n"
    "down = conv relu3 filters=32 kernel=1 stride=2 bias=no\n"
    "downbn = batchnorm down\n"
    "add6 = add bn6 downbn\n"
    "relu6 = relu add6\n"
    "pool = globalavgpool relu6\n"
    "fc = linear pool units=5\n";

/* A block as wide as those in which a folded convolution leaves the sums of its input's gradient. */
static const char wide[] =
    "[input]\n"
    "channels = 3\n"
    "size = 16\n"
    "[layers]\n"
    "conv1 = conv input filters=128 kernel=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=64 kernel=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "relu2 = relu bn2\n"
    "conv3 = conv relu2 filters=128 kernel=1 bias=no\n"
    "bn3 = batchnorm conv3\n"
    "add3 = add bn3 relu1\n"
    "relu3 = relu add3\n"
    "pool = globalavgpool relu3\n"
    "fc = linear pool units=5\n";

/* A convolution to few filters, whose gradients are one instruction, leaves these sums, too. */
static const char thin[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=32 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=5 kernel=1\n"
    "pool = globalavgpool conv2\n"
    "fc = linear pool units=5\n";

/* A network with residuals, and how many folds, gradients joined by others and sums of products are expected
 * in it. */
static const struct residuals {
    const char *text;
    int folded, pooled, joined, picked, y_sums, products, gram, by_conv;
} residuals[] = {{bottlenecks, 3, 1, 1, 0, 2, 0, 0, 0}, {strided, 4, 0, 1, 1, 2, 0, 0, 0},
                 {first_layers, 2, 1, 1, 0, 2, 0, 0, 0}},
  block = {wide, 1, 0, 0, 0, 1, 1, 1, 0}, ending = {.text = thin, .by_conv = 1};
#define RESIDUALS (int)(sizeof residuals / sizeof residuals[0])

/* Two inverted residuals: two expanding convolutions are folded. */
static const char inverted[] =
    "[input]\n"
    "channels = 3\n"
    "size = 16\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu6 bn1\n"
    "conv2 = conv relu1 filters=32 kernel=1 bias=no\n"
    "bn2 = batchnorm conv2\n"
    "relu2 = relu6 bn2\n"
    "conv3 = conv relu2 filters=32 kernel=3 pad=1 groups=in bias=no\n"
    "bn3 = batchnorm conv3\n"
    "relu3 = relu6 bn3\n"
    "conv4 = conv relu3 filters=8 kernel=1 bias=no\n"
    "bn4 = batchnorm conv4\n"
    "add4 = add bn4 relu1\n"
    "conv5 = conv add4 filters=48 kernel=1 bias=no\n"
    "bn5 = batchnorm conv5\n"
    "relu5 = relu6 bn5\n"
    "conv6 = conv relu5 filters=48 kernel=3 stride=2 pad=1 groups=in bias=no\n"
    "pool = globalavgpool conv6\n"
    "fc = linear pool units=5\n";

/* Two transposed convolutions whose results are concatenated, as the second input and as the first, and a
 * concatenation that a convolution reads. */
static const char concatenated[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "conv2 = conv conv1 filters=128 kernel=2 stride=2\n"
    "up1 = conv_transpose conv2 filters=64 kernel=2 stride=2\n"
    "cat1 = concat conv1 up1\n"
    "relu1 = relu cat1\n"
    "up3 = conv_transpose conv2 filters=64 kernel=2 stride=2\n"
    "cat3 = concat relu1 up3\n"
    "conv3 = conv cat3 filters=128 kernel=4 stride=4 bias=no\n"
    "up2 = conv_transpose conv3 filters=64 kernel=2 stride=2 bias=no\n"
    "cat2 = concat up2 conv2\n"
    "pool = globalavgpool cat2\n"
    "fc = linear pool units=5\n";

static int count_folded(const struct program *program, const char *name)
{
    const struct op *op = op_find(name);
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        count += at->op == op && at->phase == PHASE_FORWARD;
    }
    return count;
}

/* A forecast's rows have the parameters of the convolutions that are no longer there. */
static int64_t count_params(const struct net *net)
{
    struct plan_layer *rows = memory_new((size_t)net->program.graph->count, sizeof *rows);
    int layers = plan_layers(&net->program, exec_plan(net->exec), rows);
    int64_t count = 0;
    for (int i = 0; i < layers; i++) count += rows[i].params;
    free(rows);
    return count;
}

static struct net_options options_of(enum dtype storage, bool fold)
{
    return (struct net_options){.batch = 16, .micro_batches = MICRO_BATCHES, .storage = storage,
                                .training = true, .streams = 2, .merged = true, .fold_least = fold};
}

/* The distance of a parameter's gradients, relative to b's. */
static double distance(const struct net *a, const struct net *b, int param)
{
    float *x = net_gradient(a, param), *y = net_gradient(b, param);
    double off = 0, size = 0;
    for (int64_t i = 0; x && i < shape_count(a->graph->params[param].spec.shape); i++) {
        off += ((double)x[i] - y[i]) * ((double)x[i] - y[i]);
        size += (double)y[i] * y[i];
    }
    free(x);
    free(y);
    return size > 0 ? sqrt(off / size) : 0;
}

/* State that a pass of the tests below knows. */
struct others {
    code_lookup *code_of;
    uint64_t seed;
    bool moves;                          /* recomputes and offloads */
};

static struct others others_of(const struct net_options *options, uint64_t seed)
{
    struct device *device = options->reference ? NULL : place_open(0);
    struct others others = {.code_of = net_reference_of, .seed = seed};
    if (device) others.code_of = kernel_plans_code(device->backend->kind);
    if (device) device_close(device);
    return others;
}

static bool has(const struct program *program, int i, enum operand_role role)
{
    return operand(&program->instructions[i], role, 0) >= 0;
}

static int count_joined(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) count += has(program, i, OPERAND_D_X_ADDEND);
    return count;
}

/* The number of these that are joined by a gradient of every second pixel. */
static int count_picked(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int more = operand(at, OPERAND_D_X_ADDEND, 0), d_x = operand(at, OPERAND_D_X, 0);
        count += more >= 0 && program->values[more].bytes < program->values[d_x].bytes;
    }
    return count;
}

/* Batch norms that make the sums of what they write for the folded convolution behind them; `gram`: those of
 * products, too. */
static int count_y_sums(const struct program *program, bool gram)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        int sums = operand(&program->instructions[i], OPERAND_Y_SUMS, 0);
        count += sums >= 0 && (!gram || program->values[sums].shape.dim[0] > 1);
    }
    return count;
}

/* Batch norms that get the sums of their gradients from the convolution behind them. */
static int count_products(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) count += has(program, i, OPERAND_Y_PRODUCTS);
    return count;
}

static int count_clipped(const struct program *program)
{
    int count = 0;
    for (int i = 0; i < program->count; i++)
        for (int k = 0; k < program->instructions[i].epilogue_count; k++)
            count += program->instructions[i].epilogues[k].kind == EPILOGUE_D_RELU6;
    return count;
}

static void run_others(struct program *program, void *context)
{
    const struct others *others = context;
    net_rules(program, "relu_mask", others->code_of);
    fuse_data_and_weight_gradients(program, &(struct kernel_options){.code_of = others->code_of});
    net_rules(program, "join_residual_gradients", others->code_of);
    net_rules(program, "gradient_products", others->code_of);
    if (others->moves) net_recompute_and_offload(program, others->seed);
}

/* Most of a distance comes from elements that relu lets through in one precision and not in another. */
static void check_distances(const struct graph *graph, const struct net *exact, const struct net *apart,
                            const struct net *folded, double floor)
{
    for (int p = 0; p < graph->param_count; p++) {
        double a = distance(apart, exact, p), b = distance(folded, exact, p);
        print_message("  %-24s apart %.1e folded %.1e\n", graph->params[p].name, a, b);
        if (!(b <= 2 * a + floor)) fail_msg("%s: off by %.3g, not %.3g", graph->params[p].name, b, a);
    }
}

static void check_counts(const struct program *program, const struct residuals *of)
{
    assert_int_equal(count_folded(program, "conv_batchnorm"), of->folded * MICRO_BATCHES);
    assert_int_equal(count_folded(program, "batchnorm_maxpool"), of->pooled * MICRO_BATCHES);
}

/* A network in fp32 by plain loops, and as it is stored in 16 bits, both unfolded: they have run. */
struct unfolded {
    struct graph graph;
    struct net exact, apart;
    struct net_options options;          /* of `apart` */
};

static void open_exact(const char *text, struct unfolded *u)
{
    u->graph = net_graph(text, true);
    struct net_options options = options_of(F32, false);
    options.reference = true;
    net_open(&u->exact, &u->graph, &options);
    assert_int_equal(net_run(&u->exact, 0), OK);
}

static void close_exact(struct unfolded *u)
{
    net_close(&u->exact);
    graph_free(&u->graph);
}

static void open_apart(struct unfolded *u, enum dtype storage, bool reference, bool fold)
{
    u->options = options_of(storage, fold);
    u->options.reference = reference;
    net_open(&u->apart, &u->graph, &u->options);
    assert_int_equal(net_run(&u->apart, 0), OK);
}

/* Runs the network with other passes, and compares. */
static void check_against(const struct unfolded *u, struct net *net)
{
    assert_int_equal(net_run(net, 0), OK);
    check_distances(&u->graph, &u->exact, &u->apart, net, u->options.storage == F16 ? 0.01 : 0.08);
    net_close(net);
}

static void check_folded_gradients(struct unfolded *u, const struct residuals *of, bool joins)
{
    struct net folded;
    struct net_options options = u->options;
    options.fold_least = of->by_conv ? 0 : 1;        /* a folded one leaves no sums to the batch norm */
    struct others others = others_of(&options, 0);
    if (joins) {
        options.pass = run_others;
        options.pass_context = &others;
    }
    net_open(&folded, &u->graph, &options);
    bool can = others.code_of(op_find("conv"))->supports;
    assert_int_equal(count_joined(&folded.program), joins && can ? of->joined * MICRO_BATCHES : 0);
    assert_int_equal(count_picked(&folded.program), joins && can ? of->picked * MICRO_BATCHES : 0);
    bool sums = others.code_of(op_find("batchnorm"))->supports;
    assert_int_equal(count_y_sums(&folded.program, false), sums ? of->y_sums * MICRO_BATCHES : 0);
    assert_int_equal(count_y_sums(&folded.program, true), sums ? of->gram * MICRO_BATCHES : 0);
    bool products = joins && others.code_of(op_find("batchnorm"))->supports;
    assert_int_equal(count_products(&folded.program),
                     ((products ? of->products : 0) + (joins && can ? of->by_conv : 0)) * MICRO_BATCHES);
    assert_int_equal(count_folded(&u->apart.program, "conv_batchnorm"), 0);
    assert_int_equal(count_folded(&u->apart.program, "batchnorm_maxpool"), 0);
    check_counts(&folded.program, of);
    assert_int_equal(count_params(&u->apart), graph_param_elements(&u->graph));
    assert_int_equal(count_params(&folded), graph_param_elements(&u->graph));
    check_against(u, &folded);
}

/* Types and codes: sanitizers see the same lines in fewer. */
static int ways(void) { return getenv("AMPTRAIN_SANITIZED") ? 2 : 4; }

static void test_gradients(void **state)
{
    (void)state;
    struct unfolded u;
    for (int i = 0; i < RESIDUALS; i++) {
        open_exact(residuals[i].text, &u);
        for (int way = 0; way < ways(); way++) {
            open_apart(&u, way / 2 ? BF16 : F16, way % 2, false);
            check_folded_gradients(&u, &residuals[i], false);
            check_folded_gradients(&u, &residuals[i], true);
            net_close(&u.apart);
        }
        close_exact(&u);
    }
}

/* GPUs have code for larger convolutions only. */
static bool on_gpu(void)
{
    struct device *device = place_open(0);
    bool gpu = device && device->backend->kind == DEVICE_CUDA;
    if (device) device_close(device);
    return gpu;
}

static void test_concatenations(void **state)
{
    const enum dtype types[] = {F16, BF16};
    struct unfolded u;
    open_exact(concatenated, &u);
    for (int i = 0; i < 2; i++) {
        struct net folded;
        open_apart(&u, types[i], false, false);
        struct net_options options = u.options;
        options.fold_least = 1;
        net_open(&folded, &u.graph, &options);
        assert_int_equal(count_folded(&u.apart.program, "concat"), 3 * MICRO_BATCHES);
        assert_int_equal(count_folded(&folded.program, "concat"), 0);
        assert_int_equal(count_folded(&folded.program, "concat_conv"), on_gpu() ? 0 : MICRO_BATCHES);
        assert_int_equal(count_folded(&folded.program, "conv_transpose_concat"), 3 * MICRO_BATCHES);
        assert_int_equal(count_params(&folded), graph_param_elements(&u.graph));
        check_against(&u, &folded);
        net_close(&u.apart);
    }
    close_exact(&u);
}

/* Plain loops have the same bits with the head and apart. */
static void test_head(void **state)
{
    (void)state;
    struct unfolded u;
    open_exact(thin, &u);
    for (int way = 0; way < ways(); way++) {
        struct net folded;
        open_apart(&u, way / 2 ? BF16 : F16, way % 2, false);
        struct net_options options = u.options;
        options.fold_least = 1;
        net_open(&folded, &u.graph, &options);
        assert_int_equal(count_folded(&u.apart.program, "batchnorm_conv"), 0);
        assert_int_equal(count_folded(&folded.program, "batchnorm_conv"), MICRO_BATCHES);
        assert_int_equal(count_params(&folded), graph_param_elements(&u.graph));
        if (options.reference) {
            assert_int_equal(net_run(&folded, 0), OK);
            net_assert_same_gradients(&u.apart, &folded);
            net_close(&folded);
        } else {
            check_against(&u, &folded);
        }
        net_close(&u.apart);
    }
    close_exact(&u);
}

static void test_products(void **state)
{
    (void)state;
    const struct residuals *all[] = {&block, &ending};
    for (int i = 0; i < 4; i++) {
        struct unfolded u;
        open_exact(all[i / 2]->text, &u);
        open_apart(&u, F16, i % 2, false);
        check_folded_gradients(&u, all[i / 2], true);
        net_close(&u.apart);
        close_exact(&u);
    }
}

/* relu6 moves into depthwise convolutions. One instruction makes their gradients, and those of a convolution
 * to few filters, where the code can. */
static void check_merged(struct unfolded *u)
{
    struct net merged;
    struct net_options options = u->options;
    struct others others = others_of(&options, 0);
    options.pass = run_others;
    options.pass_context = &others;
    net_open(&merged, &u->graph, &options);
    bool can = others.code_of(op_find("conv"))->supports;
    assert_int_equal(count_clipped(&merged.program), can ? 2 * MICRO_BATCHES : 0);
    if (can) assert_int_equal(merged.program.count, u->apart.program.count - 3 * MICRO_BATCHES);
    check_against(u, &merged);
}

static void test_merged(void **state)
{
    (void)state;
    struct unfolded u;
    open_exact(inverted, &u);
    for (int way = 0; way < ways(); way++) {
        open_apart(&u, way / 2 ? BF16 : F16, way % 2, true);
        check_merged(&u);
        net_close(&u.apart);
    }
    close_exact(&u);
}

static void check_others(const char *text, enum dtype storage, bool reference, uint64_t seed)
{
    struct graph graph = net_graph(text, true);
    struct net plain, changed;
    struct net_options options = options_of(storage, true);
    options.reference = reference;
    struct others joined = others_of(&options, seed), moved = joined;
    moved.moves = true;
    options.pass = run_others;
    options.pass_context = &joined;
    net_open(&plain, &graph, &options);
    options.pass_context = &moved;
    net_open(&changed, &graph, &options);
    assert_int_equal(net_run(&plain, 0.1), OK);
    assert_int_equal(net_run(&changed, 0.1), OK);
    net_assert_same_gradients(&plain, &changed);
    net_close(&plain);
    net_close(&changed);
    graph_free(&graph);
}

static void test_with_others(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 8; seed += 4 / (uint64_t)ways())
        check_others(seed < 4 ? residuals[seed / 2].text : inverted, seed % 2 ? F16 : BF16, seed % 4 < 2,
                     seed);
}

/* A max pooling that goes in front of a relu changes no bit. */
static void test_pooling_first(void **state)
{
    (void)state;
    static const char text[] =
        "[input]\n"
        "channels = 3\n"
        "size = 8\n"
        "[layers]\n"
        "conv1 = conv input filters=8 kernel=3 pad=1\n"
        "relu1 = relu conv1\n"
        "pool1 = maxpool relu1 kernel=3 stride=2 pad=1\n"
        "conv2 = conv pool1 filters=8 kernel=3 pad=1\n"
        "relu2 = relu6 conv2\n"
        "pool2 = maxpool relu2 kernel=2\n"
        "pool = globalavgpool pool2\n"
        "fc = linear pool units=5\n";
    struct graph plain_graph = net_graph(text, false), graph = net_graph(text, true);
    struct net_options options = options_of(F16, false);
    struct net plain, swapped;
    net_open(&plain, &plain_graph, &options);
    net_open(&swapped, &graph, &options);
    assert_string_equal(swapped.graph->nodes[2].name, "pool1");
    assert_int_equal(net_run(&plain, 0.1), OK);
    assert_int_equal(net_run(&swapped, 0.1), OK);
    net_assert_same_gradients(&plain, &swapped);
    net_close(&plain);
    net_close(&swapped);
    graph_free(&plain_graph);
    graph_free(&graph);
}

/* Folded ops know relu, and none of the activations that need z itself or have a slope below 0. */
static void check_folded(const char *activation)
{
    char *text = text_format("[input]\nchannels = 3\nsize = 16\n[layers]\n"
                             "conv1 = conv input filters=8 kernel=3 pad=1\nbn1 = batchnorm conv1\n"
                             "act1 = %s bn1\npool1 = maxpool act1 kernel=3 stride=2 pad=1\n"
                             "conv2 = conv pool1 filters=32 kernel=1 bias=no\nbn2 = batchnorm conv2\n"
                             "act2 = %s bn2\npool = globalavgpool act2\nfc = linear pool units=5\n",
                             activation, activation);
    struct graph graph = net_graph(text, true);
    const struct compile_options options = {
        .lower = {.batch = 16, .micro_batches = 1, .training = true, .storage = F16, .fold_least = 1},
        .kernel_plans = {.code_of = net_reference_of}, .verify_each = true,
    };
    struct program program;
    assert_int_equal(passes_lower(&graph, &options, &program), OK);
    bool known = strcmp(activation, "relu") == 0;
    assert_int_equal(count_folded(&program, "batchnorm_maxpool"), known);
    assert_int_equal(count_folded(&program, "conv_batchnorm"), known);
    program_free(&program);
    graph_free(&graph);
    free(text);
}

static void test_activations(void **state)
{
    (void)state;
    check_folded("relu");
    check_folded("leaky_relu");
    check_folded("silu");
    check_folded("hardswish");
}

/* Products in fp32 are more exact than folded ones; those in tf32 are not. */
static void test_fp32(void **state)
{
    (void)state;
    struct graph graph = net_graph(bottlenecks, true);
    for (int tf32 = 0; tf32 < 2; tf32++) {
        const struct compile_options options = {
            .lower = {.batch = 16, .micro_batches = 1, .training = true, .storage = F32, .fold_least = 1},
            .kernel_plans = {.code_of = net_reference_of, .tf32 = tf32}, .verify_each = true,
        };
        struct program program;
        assert_int_equal(passes_lower(&graph, &options, &program), OK);
        assert_int_equal(count_folded(&program, "conv_batchnorm"), tf32 ? residuals[0].folded : 0);
        assert_int_equal(count_folded(&program, "batchnorm_maxpool"), 0);
        program_free(&program);
    }
    graph_free(&graph);
}

/* Masks are made again with what they are masks of, and a pooling from what it saved alone. */
static void check_recomputed(const struct program *program)
{
    struct value_uses *uses = value_uses(program);
    const struct op *pooling = op_find("batchnorm_maxpool");
    int masks = 0, pooled = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int mask = operand(at, OPERAND_MASK, 0);
        if (at->phase == PHASE_BACKWARD && mask >= 0) {
            assert_int_equal(program->instructions[uses[mask].writer].phase, PHASE_RECOMPUTE);
            masks++;
        }
        if (at->phase != PHASE_RECOMPUTE || at->op != pooling) continue;
        assert_false(instruction_reads(at, operand_x(at, 0)));
        pooled++;
    }
    assert_true(masks > 0 && pooled > 0);
    free(uses);
}

/* The forecast of a choice is what the program takes that is made so. */
static void check_forecast(const char *text)
{
    struct graph graph = net_graph(text, false);
    const struct compile_options options = {
        .lower = {.batch = 16, .micro_batches = 1, .training = true, .storage = F16, .fold_least = 1},
        .kernel_plans = {.code_of = net_reference_of}, .verify_each = true,
    };
    struct program program;
    assert_int_equal(passes_lower(&graph, &options, &program), OK);
    enum recompute_mode *modes = memory_new((size_t)program.count, sizeof *modes);
    for (uint64_t seed = 0; seed < 20; seed++) {
        struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
        struct recompute_forecast forecast;
        for (int i = 0; i < program.count; i++)
            modes[i] = seed == 0 ? RECOMPUTE_ONCE : (enum recompute_mode)random_below(&random, 3);
        recompute_measure(&program, modes, &forecast);
        struct program copy = program_copy(&program);
        recompute(&copy, modes);
        if (seed == 0) check_recomputed(&copy);
        assert_int_equal(plan_live_peak(&copy), forecast.bytes);
        program_free(&copy);
    }
    free(modes);
    program_free(&program);
    graph_free(&graph);
}

static void test_recomputed(void **state)
{
    (void)state;
    check_forecast(bottlenecks);
    check_forecast(first_layers);
}

/* The passes for several ranks take folded programs, too. */
static void check_ranks(const struct residuals *of)
{
    struct graph graph = net_graph(of->text, false);
    const struct compile_options options = {
        .lower = {.batch = 16, .micro_batches = MICRO_BATCHES, .all_micro_batches = 2 * MICRO_BATCHES,
                  .training = true, .storage = F16, .fold_least = 1},
        .buckets = {.bytes = 1024}, .kernel_plans = {.code_of = net_reference_of}, .verify_each = true,
    };
    struct program program;
    assert_int_equal(passes_lower(&graph, &options, &program), OK);
    check_counts(&program, of);
    program_free(&program);
    graph_free(&graph);
}

static void test_ranks(void **state)
{
    (void)state;
    for (int i = 0; i < RESIDUALS; i++) check_ranks(&residuals[i]);
}

/* A folded op has the parameters of two layers: both are in its stage. */
static int count_in_stage(const struct graph *graph, int stages, int stage)
{
    const struct compile_options options = {
        .lower = {.batch = 16, .micro_batches = MICRO_BATCHES, .training = true, .storage = F16,
                  .fold_least = 1},
        .cut = {.stages = stages, .stage = stage},
        .kernel_plans = {.code_of = net_reference_of}, .verify_each = true,
    };
    struct program program;
    assert_int_equal(passes_lower(graph, &options, &program), OK);
    for (int i = 0; i < program.count; i++) {
        const struct instruction *at = &program.instructions[i];
        for (int k = 0; at->node >= 0 && k < operand_count(at, OPERAND_PARAM); k++) {
            int param = program.values[operand(at, OPERAND_PARAM, k)].index;
            assert_int_equal(program.node_stages[program.graph->params[param].node], stage);
        }
    }
    int folded = count_folded(&program, "conv_batchnorm");
    program_free(&program);
    return folded;
}

static void test_stages(void **state)
{
    (void)state;
    for (int i = 0; i < RESIDUALS; i++) {
        struct graph graph = net_graph(residuals[i].text, false);
        for (int stages = 2; stages <= 6; stages++) {
            int folded = 0;
            for (int stage = 0; stage < stages; stage++) folded += count_in_stage(&graph, stages, stage);
            assert_int_equal(folded, residuals[i].folded * MICRO_BATCHES);
        }
        graph_free(&graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_head),
        cmocka_unit_test(test_gradients),
        cmocka_unit_test(test_concatenations),
        cmocka_unit_test(test_products),
        cmocka_unit_test(test_merged),
        cmocka_unit_test(test_with_others),
        cmocka_unit_test(test_pooling_first),
        cmocka_unit_test(test_activations),
        cmocka_unit_test(test_fp32),
        cmocka_unit_test(test_recomputed),
        cmocka_unit_test(test_ranks),
        cmocka_unit_test(test_stages),
    };
    return cmocka_run_group_tests_name("fold", tests, NULL, NULL);
}
