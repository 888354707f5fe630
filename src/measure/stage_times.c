#include "measure/stage_times.h"

#include <stdlib.h>

#include "base/memory.h"

/* A kernel's begin (change 1) or end (-1), nanoseconds. */
struct edge {
    int64_t at;
    int stage, change;
};

static int by_time(const void *a, const void *b)
{
    const struct edge *x = a, *y = b;
    return (x->at > y->at) - (x->at < y->at);
}

static struct edge *edges_of(const struct timeline *timeline, uint32_t run, const struct program *program,
                             const struct timeline_stages *stages, int *count)
{
    struct edge *edges = NULL;
    *count = 0;
    for (int i = 0; i < timeline->count; i++) {
        const struct device_activity *at = &timeline->activities[i];
        if (at->tag < 0 || at->run != run) continue;
        int stage = stages->stage_of(program, at->tag);
        *array_push(edges, *count) = (struct edge){at->begin, stage, 1};
        *array_push(edges, *count) = (struct edge){at->end, stage, -1};
    }
    if (*count > 0) qsort(edges, (size_t)*count, sizeof *edges, by_time);
    return edges;
}

static void add_run(const struct edge *edges, int edge_count, int count, struct stage_time *times)
{
    int *running = memory_new((size_t)count, sizeof *running);
    for (int e = 0; e + 1 < edge_count; e++) {
        double ms = 1e-6 * (double)(edges[e + 1].at - edges[e].at);
        bool hidden = false;
        running[edges[e].stage] += edges[e].change;
        for (int s = 0; s < count; s++) {
            if (running[s] <= 0) continue;
            times[s].alone += ms;
            if (!hidden) times[s].exposed += ms;
            hidden = true;
        }
    }
    free(running);
}

void stage_times(const struct timeline *timeline, const struct program *program,
                 const struct timeline_stages *stages, int count, struct stage_time *times)
{
    for (int s = 0; s < count; s++) times[s] = (struct stage_time){0};
    for (int r = 0; r < timeline->run_count; r++) {
        int edge_count;
        struct edge *edges = edges_of(timeline, timeline->runs[r], program, stages, &edge_count);
        add_run(edges, edge_count, count, times);
        free(edges);
    }
    for (int s = 0; s < count && timeline->run_count > 0; s++) {
        times[s].alone /= timeline->run_count;
        times[s].exposed /= timeline->run_count;
    }
}
