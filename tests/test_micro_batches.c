/* R ranks are R micro-batches: programs that share the micro-batches of one, added up in the tree of ranks,
 * give every bit of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/sum_tree.h"
#include "net.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

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

/* The gradients of all parameters, NULL for those that have none. */
static float **gradients_of(const struct net *net)
{
    float **gradients = memory_new((size_t)net->graph->param_count, sizeof *gradients);
    for (int p = 0; p < net->graph->param_count; p++) gradients[p] = net_gradient(net, p);
    return gradients;
}

static void gradients_free(const struct net *net, float **gradients)
{
    for (int p = 0; p < net->graph->param_count; p++) free(gradients[p]);
    free(gradients);
}

static void gradients_add(const struct net *net, float **to, float **from)
{
    for (int p = 0; p < net->graph->param_count; p++)
        for (int64_t i = 0; to[p] && i < gradient_count(net, p); i++) to[p][i] += from[p][i];
    gradients_free(net, from);
}

static void assert_gradients(const struct net *whole, float **sum)
{
    float **expected = gradients_of(whole);
    for (int p = 0; p < whole->graph->param_count; p++) {
        if (!expected[p]) continue;
        assert_memory_equal(sum[p], expected[p], (size_t)gradient_count(whole, p) * sizeof(float));
    }
    gradients_free(whole, expected);
}

/* One rank's program; its losses are those of the whole's, its gradients are returned. */
static float **run_rank(const struct net *whole, struct net_options options, int number, int ranks)
{
    struct net part;
    options.batch = BATCH / ranks;
    options.all_micro_batches = options.micro_batches;
    options.micro_batches /= ranks;
    options.first_micro_batch = number * options.micro_batches;
    net_open(&part, whole->graph, &options);
    share_batch(whole, &part, number);
    assert_int_equal(net_run(&part, 0.05), OK);
    assert_memory_equal(exec_losses(part.exec), exec_losses(whole->exec) + number * options.batch,
                        (size_t)options.batch * sizeof(float));
    float **gradients = gradients_of(&part);
    net_close(&part);
    return gradients;
}

/* Halves as long as there are any, then one after another. */
static void add_tree(const struct net *net, float ***ranks, int count)
{
    int half = count / 2;
    if (count % 2 == 0) {
        add_tree(net, ranks, half);
        add_tree(net, ranks + half, half);
        gradients_add(net, ranks[0], ranks[half]);
    }
    for (int i = 1; count % 2 && i < count; i++) gradients_add(net, ranks[0], ranks[i]);
}

static void ranks_are_whole(const char *text, struct net_options options, int ranks)
{
    struct graph graph = net_graph(text, true);
    struct net whole;
    options.training = true;
    options.batch = BATCH;
    net_open(&whole, &graph, &options);
    assert_int_equal(net_run(&whole, 0.05), OK);
    float ***gradients = memory_new((size_t)ranks, sizeof *gradients);
    for (int i = 0; i < ranks; i++) gradients[i] = run_rank(&whole, options, i, ranks);
    add_tree(&whole, gradients, ranks);
    assert_gradients(&whole, gradients[0]);
    gradients_free(&whole, gradients[0]);
    free(gradients);
    net_close(&whole);
    graph_free(&graph);
}

static void test_ranks_are_whole(void **state)
{
    static const enum dtype storages[] = {F32, F16, BF16};
    static const int counts[] = {2, 3, 4, 6, 8};
    for (int c = 0; c < 5; c++)
        for (int ranks = 2; ranks <= counts[c]; ranks++)
            for (int s = 0; sum_tree_divides(counts[c], ranks) && s < 3; s++) {
                const struct net_options options = {.micro_batches = counts[c], .storage = storages[s],
                                                    .merged = ranks == counts[c], .scale = 64,
                                                    .device = *state};
                ranks_are_whole(net_mixed, options, ranks);
                ranks_are_whole(net_plain, options, ranks);
            }
}

static void test_who_has_a_subtree(void **state)
{
    (void)state;
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
        cmocka_unit_test(test_who_has_a_subtree),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
