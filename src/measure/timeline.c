#include "measure/timeline.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

#define STEPS 6
#define KNOWN_LEAST 0.9      /* minimum fraction of the time that must be attributed to instructions */
#define CAPTURING 2          /* of those, in which steps are captured */

static int by_begin(const void *a, const void *b)
{
    const struct device_activity *x = a, *y = b;
    return x->begin != y->begin ? (x->begin > y->begin) - (x->begin < y->begin)
                                : (x->end < y->end) - (x->end > y->end);
}

static void find_runs(struct timeline *timeline)
{
    for (int i = 0; i < timeline->count; i++) {
        const struct device_activity *at = &timeline->activities[i];
        bool known = at->tag < 0;
        for (int k = timeline->run_count - 1; k >= 0 && !known; k--) known = timeline->runs[k] == at->run;
        if (!known) *array_push(timeline->runs, timeline->run_count) = at->run;
    }
}

/* Discards the first steps, with everything before the others. */
static void discard_steps(struct timeline *timeline, int steps)
{
    int kept = 0, from = 0;
    if (timeline->run_count <= steps) return;
    uint32_t first = timeline->runs[steps];
    while (timeline->activities[from].tag < 0 || timeline->activities[from].run != first) from++;
    for (int i = 0; i < timeline->count; i++) {
        if (i < from) free(timeline->activities[i].name);
        else timeline->activities[kept++] = timeline->activities[i];
    }
    timeline->count = kept;
    timeline->run_count -= steps;
    memmove(timeline->runs, timeline->runs + steps, (size_t)timeline->run_count * sizeof *timeline->runs);
}

/* The fraction of the steps' time that is attributed to instructions. */
static double known_share(const struct timeline *timeline)
{
    double known = 0, all = 0;
    for (int i = 0; i < timeline->count; i++) {
        const struct device_activity *at = &timeline->activities[i];
        if (at->copy) continue;
        all += (double)(at->end - at->begin);
        if (at->tag >= 0) known += (double)(at->end - at->begin);
    }
    return timeline->run_count > 0 && all > 0 ? known / all : 0;
}

static void observe(struct bench *bench, struct timeline *timeline, bool on)
{
    bench->spans = on ? &timeline->host : NULL;
    if (bench->loader) loader_observe(bench->loader, on ? &timeline->workers : NULL);
}

static enum status take_steps(struct bench *bench)
{
    int steps = bench->steps;
    bench->steps = STEPS;
    exec_measure(bench->step.exec, false);
    exec_capture_anew(bench->step.exec);
    enum status status = bench_measure(bench, 0);
    bench->steps = steps;
    return status;
}

static enum status take_measured(struct bench *bench, const struct device_timeline *device,
                                 struct timeline *timeline)
{
    observe(bench, timeline, true);
    enum status status = take_steps(bench);
    observe(bench, timeline, false);
    device->end(bench->session.device, &timeline->activities, &timeline->count);
    qsort(timeline->activities, (size_t)timeline->count, sizeof *timeline->activities, by_begin);
    find_runs(timeline);
    discard_steps(timeline, CAPTURING);
    double known = known_share(timeline);
    log_detail("profile: %d activities of the GPU in %d steps, %.1f %% of their time in known instructions",
               timeline->count, timeline->run_count, 100 * known);
    timeline->measured = known > KNOWN_LEAST;
    if (!timeline->measured)
        log_info("profile: kernels are not shown, and times are the host's: CUPTI does not attribute kernels "
                 "to instructions");
    return status;
}

/* Serialised instructions, by the host's clock. */
static enum status run_timed(struct bench *bench, struct timeline *timeline)
{
    const struct program *program = &bench->step.compiled.program;
    for (int run = 0; run < STEPS - CAPTURING; run++) {
        TRY(bench_step(bench, NULL));
        const int64_t *begins = exec_begins(bench->step.exec), *times = exec_times(bench->step.exec);
        for (int i = 0; i < program->count; i++)
            *array_push(timeline->activities, timeline->count) = (struct device_activity){
                .name = text_copy(program->instructions[i].name), .tag = i, .run = (uint32_t)run,
                .begin = begins[i], .end = begins[i] + times[i],
            };
        *array_push(timeline->runs, timeline->run_count) = (uint32_t)run;
    }
    return OK;
}

static enum status take_timed(struct bench *bench, struct timeline *timeline)
{
    exec_measure(bench->step.exec, true);
    observe(bench, timeline, true);
    enum status status = run_timed(bench, timeline);
    observe(bench, timeline, false);
    return status;
}

/* Only the first rank is measured; the others run the same steps. */
static enum status take_together(struct bench *bench, const struct device_timeline *device,
                                 struct timeline *timeline)
{
    struct comm *comm = bench->session.comm;
    struct reason why;
    bool is_first = comm_rank(comm) == 0, begun = is_first && device->begin(bench->session.device, &why);
    if (is_first && !begun)
        log_info("profile: kernels are not shown, and times are the host's: %s", why.text);
    TRY(comm_broadcast(comm, 0, &begun, sizeof begun));
    if (begun) TRY(is_first ? take_measured(bench, device, timeline) : take_steps(bench));
    return comm_broadcast(comm, 0, &timeline->measured, sizeof timeline->measured);
}

enum status timeline_record(struct bench *bench, struct timeline *timeline)
{
    const struct device_timeline *device = bench->session.device->backend->timeline;
    *timeline = (struct timeline){.measured = false};
    if (device) TRY(take_together(bench, device, timeline));
    if (timeline->measured) return OK;
    timeline_free(timeline);
    return take_timed(bench, timeline);
}

void timeline_free(struct timeline *timeline)
{
    for (int i = 0; i < timeline->count; i++) free(timeline->activities[i].name);
    free(timeline->activities);
    free(timeline->runs);
    free(timeline->host.at);
    free(timeline->workers.at);
    *timeline = (struct timeline){0};
}

double timeline_ms(const struct timeline *timeline, int instruction)
{
    int64_t sum = 0, until = INT64_MIN;
    for (int i = 0; i < timeline->count; i++) {
        const struct device_activity *at = &timeline->activities[i];
        if (at->tag != instruction || at->end <= until) continue;
        sum += at->end - (at->begin > until ? at->begin : until);
        until = at->end;
    }
    return 1e-6 * (double)sum / timeline->run_count;
}
