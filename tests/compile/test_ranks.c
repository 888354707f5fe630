/* Ranks that share a batch, each a process with a program of its own, exchange their gradients and end with
 * the bits of one program that has all the micro-batches. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/memory.h"
#include "comm/shared.h"
#include "comm/shared_block.h"
#include "compile/ir/program_parts.h"
#include "compile/parallel/buckets.h"
#include "exec/exec_checks.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

#define BATCH 24
#define STEPS 4
#define RANKS_MAX 8

/* How a batch is shared, and what is trained. */
struct sharing {
    const char *network;             /* NULL: a network's batch norm is that of all ranks */
    int ranks, micro_batches;        /* in all */
    struct bucket_options buckets;
    struct net_options options;
    bool lost;                       /* an image of the last rank's is not finite in the second step */
    bool twice;                      /* the last step is run twice and compared */
};

static void exchange_in_buckets(struct program *program, void *options)
{
    if (program->sync_bn) sync_statistics(program);
    buckets(program, options);
    if (!program->sync_bn) rank_statistics(program);
}

/* A rank's part of the batch of all: consecutive micro-batches, or with sync_bn a part of each. */
static void take_share(const struct net *whole, struct net *part, int rank)
{
    const struct program *program = &part->program;
    int count = program->micro_batches, ranks = program->all_micro_batches / count;
    size_t images = (size_t)(program->batch / count), bytes = (size_t)(program->images_bytes / count);
    for (int own = 0; own < count; own++) {
        size_t from = (size_t)(program->sync_bn ? own * ranks + rank : rank * count + own);
        memcpy((char *)part->images + (size_t)own * bytes, (char *)whole->images + from * bytes, bytes);
        memcpy(part->labels + (size_t)own * images, whole->labels + from * images,
               images * sizeof *part->labels);
    }
}

static bool same_parameters(const struct net *a, const struct net *b)
{
    bool same = memcmp(exec_state(a->exec), exec_state(b->exec), sizeof(struct optimizer_state)) == 0;
    for (int p = 0; p < a->graph->param_count; p++) {
        const struct op_param *spec = &a->graph->params[p].spec;
        for (enum store_part part = STORE_MASTER; part <= STORE_SLOT2; part++) {
            if (!store_has(a->store, p, part)) continue;
            size_t bytes = (size_t)shape_count(spec->shape) * dtype_bytes(spec->dtype);
            void *of_a = memory_new(1, bytes), *of_b = memory_new(1, bytes);
            same = same && store_read(a->store, p, part, of_a) == OK &&
                   store_read(b->store, p, part, of_b) == OK && memcmp(of_a, of_b, bytes) == 0;
            free(of_a);
            free(of_b);
        }
    }
    return same;
}

static bool same_gradients(const struct net *a, const struct net *b)
{
    bool same = true;
    for (int p = 0; p < a->graph->param_count; p++) {
        float *of_a = net_gradient(a, p), *of_b = net_gradient(b, p);
        size_t bytes = (size_t)shape_count(a->graph->params[p].spec.shape) * sizeof *of_a;
        same = same && (!of_a || memcmp(of_a, of_b, bytes) == 0);
        free(of_a);
        free(of_b);
    }
    return same;
}

/* One step of both, which fails where a rank was not there. */
static bool step_is_same(const struct sharing *sharing, struct net *whole, struct net *part, int rank,
                         int step)
{
    net_batch(whole, (uint64_t)step);
    if (sharing->lost && step == 1)
        dtype_set(whole->program.storage, whole->images, whole->image_elements - 1, (double)INFINITY);
    take_share(whole, part, rank);
    if (net_run(whole, 0.05) != OK) return false;
    const struct exec_batch batch = {.images = part->images, .labels = part->labels};
    const struct update_rates rates = {.lr = {0.05, 0.05}, .momentum = {0.9, 0.9},
                                       .updates = exec_state(part->exec)->updates};
    bool twice = sharing->twice && step == STEPS - 1;
    if (!twice && net_run(part, 0.05) != OK) return false;
    if (twice && (exec_start_redundant(part->exec, &batch, &rates) != OK || exec_collect(part->exec) != OK))
        return false;
    return same_gradients(whole, part);
}

/* True if this rank ends with what one program for all has in the end. */
static bool rank_is_whole(const struct sharing *sharing, struct comm *comm)
{
    struct graph graph = net_graph(sharing->network, true);
    struct net_options options = sharing->options;
    struct net whole, part;
    options.training = true;
    if (device_open("cpu", 1, &options.device) != OK) return false;
    options.batch = BATCH;
    options.micro_batches = sharing->micro_batches;
    net_open(&whole, &graph, &options);
    struct bucket_options how = sharing->buckets;
    options.batch /= sharing->ranks;
    options.micro_batches /= sharing->ranks;
    options.all_micro_batches = sharing->micro_batches;
    options.first_micro_batch = comm->rank * options.micro_batches;
    options.pass = exchange_in_buckets;
    options.pass_context = &how;
    options.comm = comm;
    net_open(&part, &graph, &options);
    bool same = true;
    for (int step = 0; same && step < STEPS; step++)
        same = step_is_same(sharing, &whole, &part, comm->rank, step);
    same = same && same_parameters(&whole, &part);
    same = same && exec_state(part.exec)->skipped_steps == sharing->lost;
    net_close(&whole);
    net_close(&part);
    device_close(options.device);
    graph_free(&graph);
    return same;
}

/* Batch norm over all ranks. */

static const char network[] =
    "[input]\nchannels = 3\nsize = 8\n[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "relu1 = relu bn1\n"
    "conv2 = conv relu1 filters=8 kernel=3 pad=1 bias=no\n"
    "bn2 = batchnorm conv2 affine=no\n"
    "add = add bn2 relu1\n"
    "relu2 = relu add\n"
    "pool = globalavgpool relu2\n"
    "fc = linear pool units=$classes\n";

static bool close_to(const float *a, const float *b, int64_t count, double error)
{
    double most = 0, off = 0;
    for (int64_t i = 0; i < count; i++) {
        if (fabs((double)a[i]) > most) most = fabs((double)a[i]);
        if (!(fabs((double)a[i] - b[i]) <= off)) off = fabs((double)a[i] - b[i]);
    }
    return off <= error * (most + 1e-3);
}

static bool parameters_are_close(const struct net *a, const struct net *b, double error)
{
    bool close = true;
    for (int p = 0; p < a->graph->param_count; p++) {
        const struct op_param *spec = &a->graph->params[p].spec;
        int64_t count = shape_count(spec->shape);
        float *of_a = memory_new((size_t)count, 8), *of_b = memory_new((size_t)count, 8);
        close = close && store_read(a->store, p, STORE_MASTER, of_a) == OK &&
                store_read(b->store, p, STORE_MASTER, of_b) == OK &&
                (spec->dtype == F32 ? close_to(of_a, of_b, count, error)
                                    : memcmp(of_a, of_b, (size_t)count * 8) == 0);
        free(of_a);
        free(of_b);
    }
    return close;
}

static bool gradients_are_close(const struct net *a, const struct net *b, double error)
{
    bool close = true;
    for (int p = 0; p < a->graph->param_count; p++) {
        float *of_a = net_gradient(a, p), *of_b = net_gradient(b, p);
        close = close && (!of_a || close_to(of_a, of_b, shape_count(a->graph->params[p].spec.shape), error));
        free(of_a);
        free(of_b);
    }
    return close;
}

/* True if this rank goes the way of a program whose micro-batches are as large as all ranks' together:
 * parameters and running statistics, but for the order of sums. */
static bool rank_is_close(const struct sharing *sharing, struct comm *comm)
{
    struct graph graph = net_graph(network, true);
    struct net_options options = sharing->options;
    struct net whole, part;
    struct bucket_options how = sharing->buckets;
    double error = options.storage == F32 ? 2e-4 : 0.05;
    options.training = true;
    if (device_open("cpu", 1, &options.device) != OK) return false;
    options.batch = BATCH;
    options.micro_batches = sharing->micro_batches / sharing->ranks;
    net_open(&whole, &graph, &options);
    options.batch /= sharing->ranks;
    options.all_micro_batches = sharing->micro_batches;
    options.first_micro_batch = comm->rank * options.micro_batches;
    options.sync_bn = true;
    options.pass = exchange_in_buckets;
    options.pass_context = &how;
    options.comm = comm;
    net_open(&part, &graph, &options);
    bool close = true;
    for (int step = 0; close && step < STEPS; step++) {
        net_batch(&whole, (uint64_t)step);
        take_share(&whole, &part, comm->rank);
        close = net_run(&whole, 0.05) == OK && net_run(&part, 0.05) == OK &&
                gradients_are_close(&whole, &part, error) && parameters_are_close(&whole, &part, error);
    }
    net_close(&whole);
    net_close(&part);
    device_close(options.device);
    graph_free(&graph);
    return close;
}

static void begin_rank(const struct sharing *sharing, int descriptor, int rank)
{
    struct comm *comm;
    alarm(60);
    if (shared_open(dup(descriptor), rank, 30, &comm) != OK) _exit(2);
    bool same = sharing->network ? rank_is_whole(sharing, comm) : rank_is_close(sharing, comm);
    comm_close(comm);
    _exit(same ? 0 : 1);
}

static void assert_ranks_are_whole(const struct sharing *sharing)
{
    int descriptor;
    pid_t pids[RANKS_MAX];
    assert_int_equal(shared_block_create(sharing->ranks, &descriptor), OK);
    fflush(NULL);
    for (int rank = 0; rank < sharing->ranks; rank++) {
        pids[rank] = fork();
        assert_true(pids[rank] >= 0);
        if (pids[rank] == 0) begin_rank(sharing, descriptor, rank);
    }
    close(descriptor);
    for (int rank = 0; rank < sharing->ranks; rank++) {
        int status;
        assert_int_equal(waitpid(pids[rank], &status, 0), pids[rank]);
        assert_int_equal(status, 0);
    }
}

static void test_one_micro_batch_each(void **state)
{
    static const enum dtype storages[] = {F32, F16, BF16};
    static const int ranks[] = {2, 3, 4, 6};
    for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
        for (size_t s = 0; s < sizeof storages / sizeof *storages; s++)
            assert_ranks_are_whole(&(struct sharing){
                .network = s % 2 ? net_plain : net_mixed, .ranks = ranks[r], .micro_batches = ranks[r],
                .options = {.storage = storages[s], .merged = true, .scale = 64, .streams = 1 + (int)s % 2}});
}

static void test_several_micro_batches_each(void **state)
{
    static const int counts[] = {4, 6, 12};
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
        for (int ranks = 2; ranks <= counts[c] && counts[c] / ranks > 1 && ranks <= 4; ranks += 2)
            if (counts[c] % ranks == 0)
                assert_ranks_are_whole(&(struct sharing){
                    .network = net_mixed, .ranks = ranks, .micro_batches = counts[c],
                    .options = {.storage = F16, .scale = 64, .streams = 2 * counts[c] / ranks,
                                .division = c % 2 ? BY_LAYER : BY_MICRO_BATCH}});
}

/* Gradients are rounded as they are exchanged, and where they are not, too. */
static void test_rounded(void **state)
{
    static const struct {
        int ranks, micro_batches;
        enum dtype wire;
        int64_t bucket;
    } of[] = {{2, 2, F16, 0}, {4, 4, BF16, 1}, {3, 3, F16, 1}, {2, 4, BF16, 2500}, {4, 8, F16, 0},
              {2, 6, BF16, INT64_MAX}, {6, 6, BF16, 0}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_ranks_are_whole(&(struct sharing){
            .network = net_mixed, .ranks = of[i].ranks, .micro_batches = of[i].micro_batches,
            .buckets.bytes = of[i].bucket,
            .options = {.storage = of[i].wire, .wire = of[i].wire, .scale = 64, .streams = 1 + (int)i % 2}});
}

/* One for each gradient, up to the most; of some size; all in one. */
static void test_buckets(void **state)
{
    static const int64_t bytes[] = {1, 2500, INT64_MAX};
    for (size_t b = 0; b < sizeof bytes / sizeof *bytes; b++)
        assert_ranks_are_whole(&(struct sharing){.network = net_mixed, .ranks = 2, .micro_batches = 2,
                                                 .buckets.bytes = bytes[b], .options.streams = 2});
}

/* Optimizers that look at all parameters together, and at each one's norm. */
static void test_optimizers(void **state)
{
    static const char *const optimizers[] = {"adamw", "lars", "lamb"};
    for (size_t o = 0; o < sizeof optimizers / sizeof *optimizers; o++)
        assert_ranks_are_whole(&(struct sharing){.network = net_plain, .ranks = 2, .micro_batches = 2,
                                                 .options.optimizer = optimizers[o]});
}

static void test_skipped_together(void **state)
{
    assert_ranks_are_whole(&(struct sharing){.network = net_plain, .ranks = 3, .micro_batches = 3,
                                             .lost = true, .options = {.storage = F16, .scale = 64}});
}

static void test_run_twice(void **state)
{
    assert_ranks_are_whole(&(struct sharing){.network = net_mixed, .ranks = 2, .micro_batches = 2,
                                             .twice = true, .options = {.storage = F16, .streams = 2}});
}

static void test_sync_bn(void **state)
{
    static const struct {
        int ranks, micro_batches;
        enum dtype storage;
    } of[] = {{2, 2, F32}, {3, 3, F32}, {4, 4, F32}, {2, 4, F32}, {2, 6, BF16}, {4, 4, F16}};
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        assert_ranks_are_whole(&(struct sharing){
            .ranks = of[i].ranks, .micro_batches = of[i].micro_batches,
            .options = {.storage = of[i].storage, .merged = i % 2,
                        .streams = i % 2 ? 2 * of[i].micro_batches / of[i].ranks : 1}});
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_micro_batch_each), cmocka_unit_test(test_several_micro_batches_each),
        cmocka_unit_test(test_buckets),              cmocka_unit_test(test_optimizers),
        cmocka_unit_test(test_skipped_together),     cmocka_unit_test(test_run_twice),
        cmocka_unit_test(test_sync_bn),              cmocka_unit_test(test_rounded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
