#include "compile/memory/minimum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/plan.h"
#include "compile/time/cost.h"

#define WORK 24000000        /* of recompute_choose ... */
#define TRIES 2              /* ... of which no try takes more than one part in so many */
#define MISSED 0.85          /* fraction of the smallest so far: a limit that cannot be met */
#define SECONDS 1.0          /* of recomputation per second of the step without it, at most: beyond that a
                              * larger batch gains nothing */
#define NEAR 1.02            /* ratio to the lower bound at which the search ends */
#define MICRO_BATCHES 2      /* examined: the others are like them */

struct minimum_search {
    const struct program *program;
    struct recompute_goal goal;
    enum recompute_mode *modes, *best;
    int64_t bytes;               /* of the smallest so far */
    int64_t work;
    double seconds_max;          /* of recomputation */
};

/* Chooses for a limit; whether it is met. Even if not, the choice may be the smallest so far. */
static bool choose_smaller(struct minimum_search *l, double limit)
{
    struct recompute_forecast forecast;
    l->goal.limit = (int64_t)limit;
    bool met = recompute_choose(l->program, &l->goal, l->modes, &forecast);
    l->work += forecast.work;
    if (forecast.seconds > l->seconds_max) return false;
    if (forecast.bytes >= l->bytes) return met;
    l->bytes = forecast.bytes;
    memcpy(l->best, l->modes, (size_t)l->program->count * sizeof *l->modes);
    return met;
}

/* Bisects between a lower bound and the smallest choice so far; then tries limits that cannot be met, as long
 * as they lead to smaller choices. */
static void choose_minimum(enum fit_mode fit, const struct program *program, struct minimum *minimum)
{
    struct recompute_forecast forecast;
    struct minimum_search l = {.program = program};
    l.goal = (struct recompute_goal){.light = fit == FIT_KEEP, .any = true,
                                     .work = WORK / TRIES};
    l.seconds_max = SECONDS * cost_program(program);
    l.modes = memory_new((size_t)program->count, sizeof *l.modes);
    l.best = memory_new((size_t)program->count, sizeof *l.best);      /* zero: RECOMPUTE_NEVER */
    recompute_measure(program, l.best, &forecast);
    l.bytes = forecast.bytes;
    double low = (double)plan_minimum_bytes(program);
    while ((double)l.bytes > NEAR * low && l.work < WORK) {
        double limit = sqrt(low * (double)l.bytes);
        if (!choose_smaller(&l, limit)) low = limit;
    }
    for (bool less = true; less && l.work < WORK;) {
        int64_t before = l.bytes;
        choose_smaller(&l, MISSED * (double)before);
        less = (double)l.bytes < 0.98 * (double)before;
    }
    minimum->modes = memory_new((size_t)program->count, sizeof *minimum->modes);
    minimum->count = recompute_fold(program, l.best, minimum->modes);
    free(l.modes);
    free(l.best);
}

int minimum_octave(const struct lower_options *options)
{
    int images = 1;
    while (images <= options->batch / options->micro_batches / 2) images *= 2;
    return images;
}

struct compile_options minimum_few(const struct compile_options *options, int most)
{
    struct compile_options few = *options;
    int all = options->lower.micro_batches, count = all < most ? all : most;
    few.lower.batch = options->lower.batch / all * count;
    few.lower.micro_batches = count;
    few.lower.first_micro_batch = options->lower.first_micro_batch / all * count;
    few.lower.all_micro_batches = options->lower.all_micro_batches / all * count;
    return few;
}

enum status minimum_find(const struct graph *graph, const struct compile_options *options,
                               struct minimum *minimum)
{
    struct compile_options like = minimum_few(options, MICRO_BATCHES);
    struct program program;
    like.lower.batch = like.lower.micro_batches * minimum_octave(&options->lower);
    like.after = NULL;
    TRY(passes_lower(graph, &like, &program));
    choose_minimum(options->fit, &program, minimum);
    program_free(&program);
    return OK;
}

void minimum_free(struct minimum *minimum)
{
    free(minimum->modes);
    *minimum = (struct minimum){0};
}
