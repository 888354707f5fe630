/* test_dump: each pass, shown on a network of a few layers as the program's text before and after it.
 *
 * dumps/PASS.txt has the network and both programs. Where the text is another one, it is written to
 * tests/PASS.dump in the build folder, to be compared and, if it is right, taken as the new expectation. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/dump.h"
#include "compile/offload.h"
#include "compile/recompute.h"
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
#define WITH_LINEAR INPUT \
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n" \
    "conv2 = conv conv1 filters=8 kernel=1 bias=no\n" \
    "pool = globalavgpool conv2\n" \
    "fc = linear pool units=5\n"

/* What CUDA's code of an op can do, which is all that the passes ask of it. */
static const struct op_code *code_of(const struct op *op)
{
    static const struct op_code conv = {.gives_sums = true},
        batchnorm = {.takes_sums = true, .adds_gradients = true, .keeps_mask = true};
    if (strcmp(op->name, "conv") == 0) return &conv;
    return strcmp(op->name, "batchnorm") == 0 ? &batchnorm : NULL;
}

static void pass_fuse_gradient_sums(struct program *program)
{
    assert_int_equal(merge(program, code_of), OK);
}

static void pass_relu_mask(struct program *program)
{
    mask(program, code_of);
}

/* What batch norm writes, for which its input and its statistics are kept. */
static void pass_recompute(struct program *program)
{
    enum remake *remake = memory_new((size_t)program->count, sizeof *remake);
    for (int i = 0; i < program->count; i++) {
        const struct op *op = program->instructions[i].op;
        bool batchnorm = op && strcmp(op->name, "batchnorm") == 0;
        remake[i] = batchnorm && program->instructions[i].phase == PHASE_FORWARD ? REMAKE_ONCE : REMAKE_NOT;
    }
    recompute(program, remake);
    free(remake);
}

/* All that helps. */
static void pass_offload(struct program *program)
{
    struct offload_forecast forecast;
    offload(program, &(struct offload_options){.limit = 0, .least = 1}, &forecast);
    assert_true(forecast.count > 0);
}

static void pass_streams(struct program *program)
{
    assert_int_equal(streams_assign(program, 2), OK);
}

struct dump_case {
    const char *name;
    const char *network;
    enum dtype storage;
    int micro_batches;
    void (*before)(struct program *program);   /* NULL: as lowered */
    void (*pass)(struct program *program);
};

static const struct dump_case cases[] = {
    {"fuse_gradient_sums",
     INPUT "conv1 = conv input filters=5 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=1 bias=no\n"
           "add = add conv2 bn1\n"
           "pool = globalavgpool add\n", F16, 1, NULL, pass_fuse_gradient_sums},
    {"relu_mask",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "add = add bn1 conv1\n"
           "relu = relu add\n"
           "conv2 = conv relu filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F16, 1, NULL, pass_relu_mask},
    {"recompute",
     INPUT "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
           "bn1 = batchnorm conv1 affine=no\n"
           "conv2 = conv bn1 filters=5 kernel=1 bias=no\n"
           "pool = globalavgpool conv2\n", F32, 1, NULL, pass_recompute},
    {"offload", WITH_LINEAR, F32, 1, NULL, pass_offload},
    {"streams", TWO_CONVOLUTIONS, F32, 1, NULL, pass_streams},
    {"streams_offload", WITH_LINEAR, F32, 1, pass_offload, pass_streams},
    {"streams_micro_batches",
     INPUT "conv = conv input filters=5 kernel=3 pad=1\n"
           "pool = globalavgpool conv\n", F32, 2, NULL, pass_streams},
};

/* The network, and its program before and after the pass. */
static void dump_make(const struct dump_case *one, struct text *text)
{
    struct graph graph = net_graph(one->network, true);
    struct lower_options options = {.batch = 4, .slices = one->micro_batches, .training = true,
                                    .storage = one->storage};
    struct program program;
    assert_int_equal(lower(&graph, &options, &program), OK);
    text_add(text, "network\n%s\nbefore\n", one->network);
    if (one->before) one->before(&program);
    program_dump(&program, text);
    one->pass(&program);
    text_add(text, "\nafter\n");
    program_dump(&program, text);
    program_free(&program);
    graph_free(&graph);
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
