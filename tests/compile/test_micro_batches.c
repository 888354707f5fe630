/* R ranks are R micro-batches: programs that share the micro-batches of one, added up in the tree of ranks,
 * give every bit of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "kernels/norm/batchnorm.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

#define BATCH 24

/* Gives `part` the images and labels that rank `number` has of `whole`'s. */
static void share_batch(const struct net *whole, struct net *part, int number)
{
    memcpy(part->images, (char *)whole->images + number * part->program.images_bytes,
           (size_t)part->program.images_bytes);
    memcpy(part->labels, whole->labels + number * part->program.batch,
           (size_t)part->program.batch * sizeof *part->labels);
}

static int64_t gradient_count(const struct net *net, int param)
{
    return shape_count(net->graph->params[param].spec.shape);
}

/* Moments of what one batch norm saw. */
struct moments {
    float *mean, *variance;
    double count;
};

/* The results of a step: gradients by parameter, and moments by node; NULL for those that have none. */
struct made {
    float **gradients;
    struct moments *moments;
};

static float *value_of(const struct net *net, int value)
{
    float *host = memory_new((size_t)shape_count(net->program.values[value].shape), sizeof *host);
    assert_int_equal(exec_value(net->exec, value, host), OK);
    return host;
}

static struct made made_of(const struct net *net)
{
    const struct graph *graph = net->graph;
    struct made made = {memory_new((size_t)graph->param_count, sizeof *made.gradients),
                        memory_new((size_t)graph->count, sizeof *made.moments)};
    for (int p = 0; p < graph->param_count; p++) made.gradients[p] = net_gradient(net, p);
    for (int i = 0; i < net->program.count; i++) {
        const struct instruction *at = &net->program.instructions[i];
        if (!at->op || at->phase != PHASE_UPDATE) continue;
        assert_null(made.moments[at->node].mean);
        struct shape x = net->program.values[operand_x(at, 0)].shape;
        made.moments[at->node] = (struct moments){
            value_of(net, operand(at, OPERAND_SAVED, SAVED_MEAN)),
            value_of(net, operand(at, OPERAND_SAVED, SAVED_VARIANCE)),
            (double)(net->program.micro_batches * shape_count(x) / x.c)};
    }
    return made;
}

static void made_free(const struct net *net, struct made *made)
{
    for (int p = 0; p < net->graph->param_count; p++) free(made->gradients[p]);
    for (int node = 0; node < net->graph->count; node++) {
        free(made->moments[node].mean);
        free(made->moments[node].variance);
    }
    free(made->gradients);
    free(made->moments);
}

static void moments_join(struct moments *a, const struct moments *b, int64_t channels)
{
    double n = a->count + b->count;
    for (int64_t k = 0; k < channels; k++) {
        double d = (double)b->mean[k] - (double)a->mean[k];
        double squares = (a->count - 1) * a->variance[k] + (b->count - 1) * b->variance[k] +
                         d * d * (a->count * b->count / n);
        a->mean[k] = (float)(a->mean[k] + d * (b->count / n));
        a->variance[k] = (float)(squares / (n - 1));
    }
    a->count = n;
}

static void made_add(const struct net *net, struct made *to, struct made *from)
{
    const struct graph *graph = net->graph;
    for (int p = 0; p < graph->param_count; p++)
        for (int64_t i = 0; to->gradients[p] && i < gradient_count(net, p); i++)
            to->gradients[p][i] += from->gradients[p][i];
    for (int node = 0; node < graph->count; node++)
        if (to->moments[node].mean)
            moments_join(&to->moments[node], &from->moments[node], graph->nodes[node].shape.c);
    made_free(net, from);
}

static void assert_made(const struct net *whole, const struct made *sum)
{
    const struct graph *graph = whole->graph;
    struct made expected = made_of(whole);
    for (int p = 0; p < graph->param_count; p++)
        if (expected.gradients[p])
            assert_memory_equal(sum->gradients[p], expected.gradients[p],
                                (size_t)gradient_count(whole, p) * sizeof(float));
    for (int node = 0; node < graph->count; node++) {
        size_t bytes = (size_t)graph->nodes[node].shape.c * sizeof(float);
        if (!expected.moments[node].mean) continue;
        assert_memory_equal(sum->moments[node].mean, expected.moments[node].mean, bytes);
        assert_memory_equal(sum->moments[node].variance, expected.moments[node].variance, bytes);
        assert_true(sum->moments[node].count == expected.moments[node].count);
    }
    made_free(whole, &expected);
}

/* A rank's program with its share of the whole's batch. */
static void open_rank(const struct net *whole, struct net_options options, int number, int ranks,
                      struct net *part)
{
    options.batch = BATCH / ranks;
    options.all_micro_batches = options.micro_batches;
    options.micro_batches /= ranks;
    options.first_micro_batch = number * options.micro_batches;
    net_open(part, whole->graph, &options);
    share_batch(whole, part, number);
}

/* One rank's step; its losses are those of the whole's, what it makes is returned. */
static struct made run_rank(const struct net *whole, struct net_options options, int number, int ranks)
{
    struct net part;
    open_rank(whole, options, number, ranks, &part);
    assert_int_equal(net_run(&part, 0.05), OK);
    assert_memory_equal(exec_losses(part.exec), exec_losses(whole->exec) + number * part.program.batch,
                        (size_t)part.program.batch * sizeof(float));
    struct made made = made_of(&part);
    net_close(&part);
    return made;
}

/* Halves as long as there are any, then one after another. */
static void add_tree(const struct net *net, struct made *ranks, int count)
{
    int half = count / 2;
    if (count % 2 == 0) {
        add_tree(net, ranks, half);
        add_tree(net, ranks + half, half);
        made_add(net, &ranks[0], &ranks[half]);
    }
    for (int i = 1; count % 2 && i < count; i++) made_add(net, &ranks[0], &ranks[i]);
}

static void ranks_are_whole(const char *text, struct net_options options, int ranks)
{
    struct graph graph = net_graph(text, true);
    struct net whole;
    options.training = true;
    options.batch = BATCH;
    net_open(&whole, &graph, &options);
    assert_int_equal(net_run(&whole, 0.05), OK);
    struct made *made = memory_new((size_t)ranks, sizeof *made);
    for (int i = 0; i < ranks; i++) made[i] = run_rank(&whole, options, i, ranks);
    add_tree(&whole, made, ranks);
    assert_made(&whole, &made[0]);
    made_free(&whole, &made[0]);
    free(made);
    net_close(&whole);
    graph_free(&graph);
}

/* Types of storage take turns: on a GPU the kernel plans of each of many programs take their time. */
static void test_ranks_are_whole(void **state)
{
    static const enum dtype storages[] = {F32, F16, BF16};
    static const int counts[] = {2, 3, 4, 6, 8};
    int turn = 0;
    for (int c = 0; c < 5; c++)
        for (int ranks = 2; ranks <= counts[c]; ranks++) {
            if (!sum_tree_divides(counts[c], ranks)) continue;
            struct net_options options = {.micro_batches = counts[c], .storage = storages[turn++ % 3],
                                          .merged = ranks == counts[c], .scale = 64, .device = *state,
                                          .separate = true};
            ranks_are_whole(net_mixed, options, ranks);
            options.storage = storages[turn % 3];
            ranks_are_whole(net_plain, options, ranks);
        }
}

static const char net_odd[] =
    "[input]\n"
    "channels = 3\n"
    "size = 9\n"
    "[layers]\n"
    "conv1 = conv input filters=8 kernel=3 pad=1 bias=no\n"
    "bn1 = batchnorm conv1\n"
    "flat = flatten bn1\n"
    "fc = linear flat units=5\n";

/* Images of 243 numbers, of which a micro-batch has 12: the second one begins at 8 bytes beyond 16. */
static void test_images_lie_anywhere(void **state)
{
    struct net_options options = {.micro_batches = 2, .storage = F16, .merged = true, .scale = 64,
                                  .device = *state, .separate = true, .training = true, .batch = BATCH};
    struct graph graph = net_graph(net_odd, true);
    struct net net;
    net_open(&net, &graph, &options);
    int unaligned = 0;
    for (int i = 0; i < net.program.count; i++) {
        const struct instruction *at = &net.program.instructions[i];
        for (int x = 0; at->op && x < operand_count(at, OPERAND_X); x++) {
            const struct value *value = &net.program.values[operand_x(at, x)];
            if (value->home != HOME_IMAGES || value->offset % 16 == 0) continue;
            assert_string_equal(at->op->name, "cast");
            unaligned++;
        }
    }
    assert_int_equal(unaligned, 1);
    net_close(&net);
    graph_free(&graph);
    ranks_are_whole(net_odd, options, 2);
}

static void evaluates_as_whole(const struct net *whole, struct net_options options, int number, int ranks)
{
    struct net part;
    open_rank(whole, options, number, ranks, &part);
    assert_int_equal(net_run(&part, 0), OK);
    int first = number * part.program.batch;
    size_t images = (size_t)part.program.batch;
    assert_memory_equal(exec_losses(part.exec), exec_losses(whole->exec) + first, images * sizeof(float));
    assert_memory_equal(exec_ranks(part.exec), exec_ranks(whole->exec) + first, images * sizeof(int32_t));
    assert_memory_equal(exec_logits(part.exec), exec_logits(whole->exec) + first * NET_CLASSES,
                        images * NET_CLASSES * sizeof(float));
    net_close(&part);
}

/* The last images of an evaluation leave places in their batch empty. */
static void test_ranks_evaluate_as_whole(void **state)
{
    struct graph graph = net_graph(net_mixed, true);
    struct net whole;
    for (enum dtype storage = F32; storage <= BF16; storage++) {
        const struct net_options options = {.batch = BATCH, .micro_batches = 4, .storage = storage,
                                            .logits = true, .device = *state};
        net_open(&whole, &graph, &options);
        for (int i = 11; i < BATCH; i++) whole.labels[i] = -1;
        assert_int_equal(net_run(&whole, 0), OK);
        for (int ranks = 2; ranks <= 4; ranks *= 2)
            for (int i = 0; i < ranks; i++) evaluates_as_whole(&whole, options, i, ranks);
        net_close(&whole);
    }
    graph_free(&graph);
}

static int64_t batches_tracked(const struct net *net)
{
    int param = graph_find_param(net->graph, "bn1.num_batches_tracked");
    char *store = net_store(net, net->store->layout.bytes);
    int64_t batches = *(int64_t *)(store + net->store->layout.params[param].master);
    free(store);
    return batches;
}

static void assert_near(const float *x, const float *expected, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        assert_true(fabsf(x[i] - expected[i]) <= 1e-5f * (1 + fabsf(expected[i])));
}

/* The first batch norm sees the same numbers however the batch is divided: running statistics follow once, by
 * the moments of all of them. */
static void test_statistics_follow_the_batch(void **state)
{
    static const int counts[] = {1, 2, 4, 6};
    struct graph graph = net_graph(net_mixed, true);
    int node = graph_find(&graph, "bn1");
    struct net nets[4];
    struct made made[4];
    for (int c = 0; c < 4; c++) {
        const struct net_options options = {.batch = BATCH, .micro_batches = counts[c], .training = true,
                                            .device = *state, .separate = true};
        net_open(&nets[c], &graph, &options);
        assert_int_equal(net_run(&nets[c], 0.05), OK);
        made[c] = made_of(&nets[c]);
        assert_int_equal(batches_tracked(&nets[c]), 1);
        const struct moments *of = &made[c].moments[node], *expected = &made[0].moments[node];
        assert_near(of->mean, expected->mean, graph.nodes[node].shape.c);
        assert_near(of->variance, expected->variance, graph.nodes[node].shape.c);
    }
    for (int c = 0; c < 4; c++) {
        made_free(&nets[c], &made[c]);
        net_close(&nets[c]);
    }
    graph_free(&graph);
}

static void test_who_has_a_subtree(void **state)
{
    assert_true(sum_tree_divides(1, 1) && sum_tree_divides(6, 1) && sum_tree_divides(6, 2) &&
                sum_tree_divides(6, 6) && sum_tree_divides(8, 4) && sum_tree_divides(24, 8));
    assert_false(sum_tree_divides(6, 3) || sum_tree_divides(12, 6) || sum_tree_divides(8, 3) ||
                 sum_tree_divides(4, 8) || sum_tree_divides(9, 3));
}

static int open_device(void **state)
{
    *state = place_open(1);
    return 0;
}

static int close_device(void **state)
{
    device_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ranks_are_whole),
        cmocka_unit_test(test_images_lie_anywhere),
        cmocka_unit_test(test_ranks_evaluate_as_whole),
        cmocka_unit_test(test_statistics_follow_the_batch),
        cmocka_unit_test(test_who_has_a_subtree),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
