/* R ranks are R micro-batches: programs of one micro-batch each, added up as one program adds its
 * micro-batches, give every bit of it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "net.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define BATCH 24

/* Makes a program of its own what micro-batch `number` of `count` is in one. */
struct micro_batch {
    int number, count;
};

static void be_micro_batch(struct program *program, void *context)
{
    const struct micro_batch *micro_batch = context;
    for (int i = 0; i < program->count; i++) {
        program->instructions[i].micro_batch = micro_batch->number;
        program->instructions[i].loss_weight /= (float)micro_batch->count;
    }
}

/* Gives `part` the images and labels that micro-batch `number` of `whole` has. */
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

/* One micro-batch as a program; its losses are those of the whole's, its gradients are returned. */
static float **run_part(const struct net *whole, struct net_options options, int number, int count)
{
    struct micro_batch micro_batch = {number, count};
    struct net part;
    options.batch = BATCH / count;
    options.micro_batches = 1;
    options.pass = be_micro_batch;
    options.pass_context = &micro_batch;
    net_open(&part, whole->graph, &options);
    share_batch(whole, &part, number);
    assert_int_equal(net_run(&part, 0.05), OK);
    assert_memory_equal(exec_losses(part.exec), exec_losses(whole->exec) + number * options.batch,
                        (size_t)options.batch * sizeof(float));
    float **gradients = gradients_of(&part);
    net_close(&part);
    return gradients;
}

static void parts_are_whole(const char *text, struct net_options options, int count)
{
    struct graph graph = net_graph(text, true);
    struct net whole;
    options.training = true;
    options.batch = BATCH;
    options.micro_batches = count;
    net_open(&whole, &graph, &options);
    assert_int_equal(net_run(&whole, 0.05), OK);
    float **sum = run_part(&whole, options, 0, count);
    for (int i = 1; i < count; i++) gradients_add(&whole, sum, run_part(&whole, options, i, count));
    assert_gradients(&whole, sum);
    gradients_free(&whole, sum);
    net_close(&whole);
    graph_free(&graph);
}

static void test_parts_are_whole(void **state)
{
    (void)state;
    static const enum dtype storages[] = {F32, F16, BF16};
    static const int counts[] = {2, 3, 4, 6, 8};
    for (int c = 0; c < 5; c++)
        for (int s = 0; s < 3; s++)
            for (int merged = 0; merged < 2; merged++) {
                const struct net_options options = {.storage = storages[s], .merged = merged, .scale = 64};
                parts_are_whole(net_mixed, options, counts[c]);
                parts_are_whole(net_plain, options, counts[c]);
            }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parts_are_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
