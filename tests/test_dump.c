/* test_dump: each pass, shown on a network of a few layers as the program's text before and after it.
 *
 * dumps/NAME.txt has the network and both programs. Where the text is another one, it is written to
 * tests/NAME.dump in the build folder, to be compared and, if it is right, taken as the new expectation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/dump.h"
#include "compile/passes.h"
#include "net.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define INPUT \
    "[input]\n" \
    "channels = 3\n" \
    "size = 8\n" \
    "[layers]\n"
#define TWO_CONVOLUTIONS INPUT \
    "conv1 = conv input filters=8 kernel=3 pad=1\n" \
    "conv2 = conv conv1 filters=5 kernel=1\n" \
    "pool = globalavgpool conv2\n"
#define CONVOLUTIONS_WITH_RELU INPUT \
    "conv1 = conv input filters=8 kernel=3 pad=1\n" \
    "relu1 = relu conv1\n" \
    "conv2 = conv relu1 filters=8 kernel=3 pad=1\n" \
    "relu2 = relu conv2\n" \
    "pool2 = maxpool relu2 kernel=2\n" \
    "conv3 = conv pool2 filters=5 kernel=1\n" \
    "relu3 = relu conv3\n" \
    "add3 = add relu3 conv3\n" \
    "pool = globalavgpool add3\n"
#define WITH_LINEAR INPUT \
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n" \
    "conv2 = conv conv1 filters=8 kernel=1 bias=no\n" \
    "pool = globalavgpool conv2\n" \
    "fc = linear pool units=5\n"

static bool is_depthwise(const struct call *call)
{
    return call->d_params[0].shape.dim[1] == 1;
}

/* The capabilities of an op's CUDA code, which are all that the passes ask of it. */
static const struct op_code *code_of(const struct op *op)
{
    static const struct op_code conv = {.gives_sums = true, .applies_relu = true, .joins_gradients = true,
                                        .spares_bias = true, .backs_together = is_depthwise},
        maximum = {.sums_gradient = true}, first_layers = {.adds_gradients = true},
        batchnorm = {.takes_sums = true, .adds_gradients = true, .adds_flat = true,
                     .adds_first_channels = true, .keeps_mask = true},
        conv_batchnorm = {.adds_gradients = true, .keeps_mask = true, .takes_joined = true,
                          .clips_later = true};
    if (strcmp(op->name, "conv") == 0) return &conv;
    if (strcmp(op->name, "conv_batchnorm") == 0) return &conv_batchnorm;
    if (strcmp(op->name, "conv_batchnorm_maxpool") == 0) return &first_layers;
    if (strcmp(op->name, "relu") == 0 || strcmp(op->name, "maxpool_relu") == 0) return &maximum;
    return strcmp(op->name, "batchnorm") == 0 ? &batchnorm : NULL;
}

/* A pass shown on a network. */
struct dump_case {
    const char *name, *pass;
    const char *network;
    enum dtype storage;
    int micro_batches;
    const char *full;            /* a layer whose op wants fp32, as none that comes with the program does */
    bool recomputes, offloads;   /* batch norm's output is recomputed; what helps is moved to the host */
    int streams;
    int more_streams;            /* that the device has besides */
    enum stream_division division;
    int ranks;                   /* this is the first of them; 0: alone */
    bool sync_bn;
    enum dtype wire;
    struct cut_options cut;
    struct bucket_options buckets;
    bool fold;
};

static const struct dump_case cases[] = {
    {"lower", "lower",
     INPUT "conv = conv input filters=5 kernel=1\n"
           "pool = globalavgpool conv\n", F16, 2, .streams = 1},
    {"autocast", "autocast",
     INPUT "conv1 = conv input filters=8 kernel=1\n"
           "silu = silu conv1\n"
           "conv2 = conv silu filters=5 kernel=1\n"
           "pool = globalavgpool conv2\n", F16, 1, .full = "silu"},
    {"fold", "fold",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "conv2 = conv conv1 filters=16 kernel=1 bias=no\n"
           "bn2 = batchnorm conv2 affine=no\n"
           "conv3 = conv conv1 filters=16 kernel=1 bias=no\n"
           "bn3 = batchnorm conv3 affine=no\n"
           "add = add bn3 bn2\n"
           "relu = relu add\n"
           "conv4 = conv relu filters=5 kernel=1 bias=no\n"
           "bn4 = batchnorm conv4 affine=no\n"
           "pool = globalavgpool bn4\n", F16, 1, .streams = 1, .fold = true},
    {"fold_maxpool", "fold_maxpool",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "relu1 = relu bn1\n"
           "pool1 = maxpool relu1 kernel=3 stride=2 pad=1\n"
           "conv2 = conv pool1 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F16, 1, .streams = 1, .fold = true},
    {"fold_first", "fold_maxpool",
     INPUT "conv1 = conv input filters=8 kernel=7 stride=2 pad=3 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "relu1 = relu bn1\n"
           "pool1 = maxpool relu1 kernel=3 stride=2 pad=1\n"
           "conv2 = conv pool1 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F16, 1, .streams = 1, .fold = true},
    {"saved", "saved",
     INPUT "conv = conv input filters=5 kernel=1 bias=no\n"
           "bn = batchnorm conv affine=no\n"
           "drop = dropout bn\n"
           "pool = globalavgpool drop\n", F16, 1, .streams = 1},
    {"differentiate", "differentiate",
     INPUT "conv = conv input filters=5 kernel=3 pad=1\n"
           "relu = relu conv\n"
           "pool = globalavgpool relu\n", F32, 1, .streams = 1},
    {"running_statistics", "running_statistics",
     INPUT "conv = conv input filters=5 kernel=1 bias=no\n"
           "bn = batchnorm conv affine=no\n"
           "pool = globalavgpool bn\n", F32, 4, .streams = 1},
    {"fuse_gradient_sums", "fuse_gradient_sums",
     INPUT "conv1 = conv input filters=5 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=1 bias=no\n"
           "add = add conv2 bn1\n"
           "pool = globalavgpool add\n", F16, 1, .streams = 1},
    {"relu_mask", "relu_mask",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "add = add bn1 conv1\n"
           "relu = relu add\n"
           "conv2 = conv relu filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F16, 1, .streams = 1},
    {"cut", "cut", TWO_CONVOLUTIONS, F16, 2, .cut = {.stages = 2, .schedule = PIPELINE_1F1B}},
    {"cut_last", "cut", TWO_CONVOLUTIONS, F16, 2,
     .cut = {.stages = 2, .stage = 1, .schedule = PIPELINE_ZERO_BUBBLE}},
    {"cut_v", "cut",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1\n"
           "conv2 = conv conv1 filters=8 kernel=1\n"
           "conv3 = conv conv2 filters=5 kernel=1\n"
           "pool = globalavgpool conv3\n", F16, 2,
     .cut = {.stages = 2, .stage = 1, .schedule = PIPELINE_V}},
    {"stage_norm", "stage_norm", TWO_CONVOLUTIONS, F32, 1, .cut = {.stages = 2, .schedule = PIPELINE_GPIPE}},
    {"buckets", "buckets", TWO_CONVOLUTIONS, F32, 1, .ranks = 4, .buckets = {.bytes = 1024}},
    {"buckets_all_reduce", "buckets", TWO_CONVOLUTIONS, F32, 1, .ranks = 2,
     .buckets = {.bytes = INT64_MAX, .all_reduce_bytes = INT64_MAX}},
    {"buckets_rounded", "buckets", TWO_CONVOLUTIONS, F16, 2, .ranks = 2, .wire = F16,
     .buckets = {.bytes = INT64_MAX}},
    {"rank_statistics", "rank_statistics",
     INPUT "conv = conv input filters=5 kernel=3 pad=1 bias=no\n"
           "bn = batchnorm conv affine=no\n"
           "pool = globalavgpool bn\n", F32, 1, .ranks = 2, .buckets = {.all_reduce_bytes = INT64_MAX}},
    {"rank_statistics_groups", "rank_statistics",
     INPUT "bn1 = batchnorm input affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=3 stride=2 pad=1 bias=no\n"
           "bn2 = batchnorm conv2 affine=no\n"
           "conv3 = conv bn2 filters=5 kernel=1 bias=no\n"
           "bn3 = batchnorm conv3 affine=no\n"
           "pool = globalavgpool bn3\n", F32, 1, .ranks = 3, .buckets = {.all_reduce_bytes = INT64_MAX}},
    {"sync_statistics", "sync_statistics",
     INPUT "conv = conv input filters=5 kernel=1 bias=no\n"
           "bn = batchnorm conv affine=no\n"
           "pool = globalavgpool bn\n", F16, 1, .ranks = 2, .sync_bn = true,
     .buckets = {.all_reduce_bytes = INT64_MAX}},
    {"join_gradients", "join_gradients",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "conv2 = conv conv1 filters=16 kernel=1 bias=no\n"
           "bn2 = batchnorm conv2 affine=no\n"
           "conv3 = conv conv1 filters=16 kernel=1 bias=no\n"
           "bn3 = batchnorm conv3 affine=no\n"
           "add3 = add bn3 bn2\n"
           "relu3 = relu add3\n"
           "conv4 = conv relu3 filters=8 kernel=1 bias=no\n"
           "conv5 = conv conv4 filters=16 kernel=1 bias=no\n"
           "bn5 = batchnorm conv5 affine=no\n"
           "add5 = add bn5 relu3\n"
           "conv6 = conv add5 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv6\n", F16, 1, .streams = 1, .fold = true},
    {"merge_gradients", "merge_gradients",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "conv2 = conv conv1 filters=16 kernel=1 bias=no\n"
           "bn2 = batchnorm conv2 affine=no\n"
           "relu2 = relu6 bn2\n"
           "conv3 = conv relu2 filters=16 kernel=3 pad=1 groups=in bias=no\n"
           "conv4 = conv conv3 filters=16 kernel=3 pad=1 groups=in bias=no\n"
           "conv5 = conv conv4 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv5\n", F16, 1, .streams = 1, .fold = true},
    {"concat_gradients", "concat_gradients",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=16 kernel=3 pad=1 bias=no\n"
           "concat2 = concat conv1 conv2\n"
           "bn2 = batchnorm concat2 affine=no\n"
           "conv3 = conv bn2 filters=8 kernel=3 pad=1 bias=no\n"
           "concat3 = concat concat2 conv3\n"
           "conv4 = conv concat3 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv4\n", F16, 1, .streams = 1},
    {"fuse_relu", "fuse_relu", CONVOLUTIONS_WITH_RELU, F16, 1, .streams = 1},
    {"bias_gradients", "bias_gradients", CONVOLUTIONS_WITH_RELU, F16, 1, .streams = 1},
    {"recompute", "recompute",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F32, 1, .recomputes = true},
    {"fuse_recompute", "fuse_recompute",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F32, 1, .recomputes = true},
    {"offload", "offload", WITH_LINEAR, F32, 1, .offloads = true},
    {"streams", "streams", TWO_CONVOLUTIONS, F32, 1, .streams = 2},
    {"streams_offload", "streams", WITH_LINEAR, F32, 1, .offloads = true, .streams = 2},
    {"streams_offload_alone", "streams", WITH_LINEAR, F32, 1, .offloads = true, .streams = 1,
     .more_streams = 1},
    {"streams_micro_batches", "streams",
     INPUT "conv = conv input filters=5 kernel=3 pad=1\n"
           "pool = globalavgpool conv\n", F32, 2, .streams = 2},
    {"streams_of_micro_batches", "streams",
     INPUT "conv = conv input filters=5 kernel=3 pad=1\n"
           "pool = globalavgpool conv\n", F32, 2, .streams = 4},
    {"streams_of_layers", "streams", TWO_CONVOLUTIONS, F32, 2, .streams = 4, .division = BY_LAYER},
    {"streams_stages", "streams", TWO_CONVOLUTIONS, F32, 2, .streams = 2,
     .cut = {.stages = 2, .schedule = PIPELINE_1F1B}},
    {"streams_ranks", "streams", TWO_CONVOLUTIONS, F32, 1, .streams = 2, .ranks = 4,
     .buckets = {.bytes = 1024}},
    {"streams_sync_statistics", "streams",
     INPUT "conv = conv input filters=5 kernel=1\n"
           "bn = batchnorm conv affine=no\n"
           "pool = globalavgpool bn\n", F32, 1, .streams = 2, .ranks = 2, .sync_bn = true,
     .buckets = {.bytes = 1024}},
};

/* The dumps of the passes of a program. */
struct seen {
    const struct dump_case *one;
    struct text last;            /* the program before the next pass; empty before the first */
    struct text *text;           /* where it is shown before and after the case's */
};

static void see_pass(const char *pass, const struct program *program, void *context)
{
    struct seen *seen = context;
    struct text now = {0};
    program_dump(program, &now);
    if (strcmp(pass, seen->one->pass) == 0) {
        text_add(seen->text, "network\n%s\n", seen->one->network);
        if (seen->last.data) text_add(seen->text, "before %s\n%s\n", pass, seen->last.data);
        text_add(seen->text, "after %s\n%s", pass, now.data);
    }
    text_free(&seen->last);
    seen->last = now;
}

static struct graph graph_make(const struct dump_case *one, struct op *full)
{
    struct graph graph = net_graph(one->network, true);
    if (!one->full) return graph;
    struct node *node = &graph.nodes[graph_find(&graph, one->full)];
    *full = *node->op;
    full->precision = CLASS_FULL;
    node->op = full;
    return graph;
}

/* Batch norm's outputs in forward, for which its input and its statistics are kept. */
static enum recompute_mode *modes_make(const struct program *program)
{
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool batchnorm = at->op && strcmp(at->op->name, "batchnorm") == 0;
        modes[i] = batchnorm && at->phase == PHASE_FORWARD ? RECOMPUTE_ONCE : RECOMPUTE_NEVER;
    }
    return modes;
}

static void run_passes(const struct dump_case *one, struct seen *seen)
{
    struct op full;
    struct graph graph = graph_make(one, &full);
    const struct compile_options options = {
        .lower = {.batch = 4, .micro_batches = one->micro_batches, .training = true, .storage = one->storage,
                  .all_micro_batches = one->ranks * one->micro_batches, .sync_bn = one->sync_bn,
                  .wire = one->wire,
                  .fold_least = one->fold},
        .cut = one->cut, .buckets = one->buckets,
        .kernel_plans = {.code_of = code_of}, .stream_division = one->division, .verify_each = true,
        .streams = one->streams + one->more_streams,
        .after = see_pass, .context = seen,
    };
    struct program program;
    assert_int_equal(passes_lower(&graph, &options, &program), OK);
    struct memory_choice choice = {.fuse_limit = INT64_MAX, .offloads = one->offloads,
                                   .offload = {.limit = 0, .least = 1}, .streams = one->streams};
    if (one->recomputes) choice.modes = modes_make(&program);
    assert_int_equal(passes_memory(&options, &choice, &program), OK);
    free(choice.modes);
    program_free(&program);
    graph_free(&graph);
}

/* The network, and its program before and after the pass. */
static void dump_make(const struct dump_case *one, struct text *text)
{
    struct seen seen = {.one = one, .text = text};
    run_passes(one, &seen);
    text_free(&seen.last);
}

static char *dump_expected(const char *name)
{
    char *path = text_format(SOURCEDIR "/tests/dumps/%s.txt", name);
    struct text text = {0};
    char piece[4096];
    FILE *file = fopen(path, "r");
    while (file && fgets(piece, sizeof piece, file)) text_add(&text, "%s", piece);
    if (file) fclose(file);
    free(path);
    return text.data ? text.data : text_copy("");
}

static void dump_write(const char *name, const char *text)
{
    char *path = text_format("tests/%s.dump", name);
    FILE *file = fopen(path, "w");
    if (file) fputs(text, file);
    if (file) fclose(file);
    free(path);
}

static void test_pass(void **state)
{
    const struct dump_case *one = *state;
    struct text text = {0};
    dump_make(one, &text);
    char *expected = dump_expected(one->name);
    bool same = strcmp(text.data, expected) == 0;
    if (!same) dump_write(one->name, text.data);
    free(expected);
    text_free(&text);
    if (!same) fail_msg("diff tests/dumps/%s.txt tests/%s.dump", one->name, one->name);
}

int main(void)
{
    struct CMUnitTest tests[sizeof cases / sizeof *cases];
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
        tests[c] = (struct CMUnitTest){cases[c].name, test_pass, NULL, NULL, (void *)(uintptr_t)&cases[c]};
    return cmocka_run_group_tests_name("dump", tests, NULL, NULL);
}
