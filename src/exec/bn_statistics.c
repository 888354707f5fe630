/* A step makes momentum x those of the batch + (1 - momentum) x those before it, which are set to zero. */
#include "exec/bn_statistics.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/norm/batchnorm.h"

static void add_running(struct bn_statistics *s, const struct graph *graph, int param, double momentum)
{
    size_t count = (size_t)shape_count(graph->params[param].spec.shape);
    *array_push(s->list, s->count) = (struct running){
        param, momentum, count, memory_new(count, sizeof(double)), memory_new(count, sizeof(float))};
}

void bn_statistics_open(const struct graph *graph, struct bn_statistics *s)
{
    *s = (struct bn_statistics){0};
    for (int i = 1; i < graph->count; i++) {
        const struct node *node = &graph->nodes[i];
        if (strcmp(node->op->name, "batchnorm") != 0) continue;
        const struct batchnorm *settings = node->settings;
        struct batchnorm_statistics at = batchnorm_statistics(settings);
        if (settings->momentum == 0 || graph->params[node->param_first + at.mean].frozen) continue;
        add_running(s, graph, node->param_first + at.mean, settings->momentum);
        add_running(s, graph, node->param_first + at.variance, settings->momentum);
    }
}

void bn_statistics_close(struct bn_statistics *s)
{
    for (int i = 0; i < s->count; i++) {
        free(s->list[i].sum);
        free(s->list[i].values);
    }
    free(s->list);
    *s = (struct bn_statistics){0};
}

enum status bn_statistics_clear(struct bn_statistics *s, struct store *store)
{
    for (int i = 0; i < s->count; i++) {
        memset(s->list[i].values, 0, s->list[i].count * sizeof *s->list[i].values);
        TRY(store_write(store, s->list[i].param, STORE_MASTER, s->list[i].values));
    }
    return OK;
}

enum status bn_statistics_add(struct bn_statistics *s, const struct store *store)
{
    for (int i = 0; i < s->count; i++) {
        struct running *running = &s->list[i];
        TRY(store_read(store, running->param, STORE_MASTER, running->values));
        for (size_t k = 0; k < running->count; k++) running->sum[k] += running->values[k] / running->momentum;
    }
    s->batches++;
    return OK;
}

enum status bn_statistics_end(struct bn_statistics *s, struct store *store)
{
    for (int i = 0; i < s->count; i++) {
        struct running *running = &s->list[i];
        for (size_t k = 0; k < running->count; k++)
            running->values[k] = (float)(running->sum[k] / (double)s->batches);
        TRY(store_write(store, running->param, STORE_MASTER, running->values));
    }
    return OK;
}
