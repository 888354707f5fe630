#include "compile/memory/fit_batch.h"

#include <limits.h>

#include "compile/compile.h"
#include "compile/memory/fit_memory.h"

#define LINES 12                 /* tries by linear interpolation before bisection */
#define ACTIVATIONS_FEW 50       /* steps with at most so many are planned quickly: search every batch */
#define GAIN 6                   /* how many times the images of "keep everything" usually fit */
#define OCTAVES 4                /* the maximum examined */
#define MODELLED 4               /* of more micro-batches, so many are modelled */
#define COARSE_FIRST 8           /* the first increment of a coarse search, as a fraction of the images */
#define COARSE 128               /* ... and the smallest one */
#define CLOSER 32                /* the decrement if the model was too optimistic, as such a fraction */

/* The state of a search, in images per micro-batch. */
struct batch_search {
    const struct fit_batch_options *options;
    int batch;                   /* being tried, in images per step */
    int few;                     /* the maximum of micro-batches to model instead of all */
    int64_t sums;                /* bytes of partial sums of gradients that only the whole step has */
    struct minimum minimum;      /* the choice of an octave; zeroed: everything is kept */
};

static struct compile_options options_of(const struct batch_search *q, bool training)
{
    return q->options->of_batch(q->options->context, q->batch, training);
}

static enum status planned(struct batch_search *q, bool training, struct budget *taken)
{
    struct compile_options options = options_of(q, training);
    struct compiled compiled;
    options.fit_any = true;
    TRY(compile_plan(training ? q->options->graph : q->options->val_graph, &options, &compiled));
    *taken = budget_taken(&options.budget, &compiled.program, compiled.plan.arena_bytes);
    compiled_free(&compiled);
    return OK;
}

static void grow_arena(struct budget *taken, int64_t bytes)
{
    taken->arena += bytes;
    taken->total += bytes;
}

/* Micro-batches share the arena; the step's images and results are those of all of them. */
static enum status minimum_taken(struct batch_search *q, bool packed, struct budget *taken)
{
    struct compile_options whole = options_of(q, true), few = minimum_few(&whole, q->few);
    TRY(fit_memory_minimum_taken(q->options->graph, &few, &q->minimum, packed, taken));
    int64_t all = taken->total - taken->arena - few.budget.store - few.budget.input - few.budget.exchange;
    int64_t one = all / few.lower.micro_batches;
    taken->total += one * whole.lower.micro_batches - all;
    grow_arena(taken, q->sums);
    return OK;
}

/* Estimated from live bytes, without placing tensors. */
static enum status modelled(struct batch_search *q, struct budget *taken)
{
    return minimum_taken(q, false, taken);
}

/* The two programs share the larger one's arena. */
static enum status with_evaluation(struct batch_search *q, struct budget *taken)
{
    struct budget evaluation;
    if (taken->total > q->options->limit) return OK;
    TRY(planned(q, false, &evaluation));
    if (evaluation.arena > taken->arena) grow_arena(taken, evaluation.arena - taken->arena);
    return OK;
}

/* Measures with tensors placed, by the minimum-memory choice. */
static enum status placed(struct batch_search *q, struct budget *taken)
{
    TRY(minimum_taken(q, true, taken));
    return with_evaluation(q, taken);
}

/* For this very limit, for which planning may find an even smaller choice. */
static enum status applied(struct batch_search *q, struct budget *taken)
{
    TRY(planned(q, true, taken));
    return with_evaluation(q, taken);
}

/* Bytes that a run takes with that many images per micro-batch, by one of the functions above. */
typedef enum status measure(struct batch_search *q, struct budget *taken);

static enum status at(struct batch_search *q, measure *measure, int images, int64_t *total)
{
    struct budget taken;
    q->batch = images * q->options->micro_batches;
    TRY(measure(q, &taken));
    *total = taken.total;
    return OK;
}

/* `low` images fit, `high` do not; memory grows almost linearly between them. */
struct bracket {
    int low, high;
    int64_t low_bytes, high_bytes;
};

static enum status bracket_narrow(struct batch_search *q, measure *measure, struct bracket *b)
{
    for (int tries = 0; b->high - b->low > 1; tries++) {
        double share = (double)(q->options->limit - b->low_bytes) / (double)(b->high_bytes - b->low_bytes);
        int next = b->low + (int)((b->high - b->low) * (tries < LINES ? share : 0.5));
        if (next <= b->low) next = b->low + 1;
        if (next >= b->high) next = b->high - 1;
        int64_t bytes;
        TRY(at(q, measure, next, &bytes));
        if (bytes <= q->options->limit) b->low = next, b->low_bytes = bytes;
        else b->high = next, b->high_bytes = bytes;
    }
    return OK;
}

/* Searches by the estimate, from one image upwards. */
static enum status search_model(struct batch_search *q, int *images)
{
    struct bracket b = {.high = 1};
    for (;;) {
        TRY(at(q, modelled, b.high, &b.high_bytes));
        if (b.high_bytes > q->options->limit) break;
        b.low = b.high;
        b.low_bytes = b.high_bytes;
        double next = b.low * (double)q->options->limit / (double)b.low_bytes;
        if (next < 2.0 * b.low) next = 2.0 * b.low;
        b.high = next < q->options->most ? (int)next : q->options->most;
        if (b.low == q->options->most) break;
    }
    if (b.low < q->options->most) TRY(bracket_narrow(q, modelled, &b));
    *images = b.low;
    return OK;
}

/* Downwards from the estimate: placed tensors never need less. */
static enum status search_placed(struct batch_search *q, int *images)
{
    struct bracket b = {.high = *images};
    if (*images == 0) return OK;
    TRY(at(q, placed, b.high, &b.high_bytes));
    if (b.high_bytes <= q->options->limit) return OK;
    TRY(bracket_narrow(q, placed, &b));
    *images = b.low;
    return OK;
}

/* The largest number of images with the choice of one octave, even if they are of another octave. */
static enum status search_octave(struct batch_search *q, int octave, int *images)
{
    q->batch = octave * q->options->micro_batches;
    minimum_free(&q->minimum);
    struct compile_options options = options_of(q, true);
    TRY(minimum_find(q->options->graph, &options, &q->minimum));
    TRY(search_model(q, images));
    return search_placed(q, images);
}

static int octave_of(struct batch_search *q, int images)
{
    q->batch = images * q->options->micro_batches;
    struct compile_options options = options_of(q, true);
    return minimum_octave(&options.lower);
}

/* A run uses the choice of its own octave, so the result must lie in the octave whose choice gave it. If two
 * octaves lead to each other, the largest number of the lower one is the result. */
static enum status search_octaves(struct batch_search *q, int *images)
{
    int kept, came_from = 0;
    TRY(search_model(q, &kept));
    *images = kept;
    if (kept == q->options->most) TRY(search_placed(q, images));
    if (*images == q->options->most) return OK;
    double guess = (double)GAIN * kept;
    int octave = octave_of(q, guess < 1 ? 1 : guess < q->options->most ? (int)guess : q->options->most);
    for (int i = 0; i < OCTAVES; i++) {
        TRY(search_octave(q, octave, images));
        int next = octave_of(q, *images);
        if (*images == 0 || next == octave) return OK;
        if (next > octave) *images = 2 * octave - 1;
        if (next == came_from && next > octave) return OK;
        came_from = octave;
        octave = next;
    }
    return OK;
}

/* Upwards from a number that fits: increments grow from `step`, then halve down to `least`. */
static enum status search_applied(struct batch_search *q, int *images, int step, int least)
{
    int over = q->options->most + 1;
    for (bool grow = true; step >= least; step = grow ? 2 * step : step / 2) {
        int64_t bytes = INT64_MAX;
        if (*images + step < over) TRY(at(q, applied, *images + step, &bytes));
        if (bytes <= q->options->limit) *images += step;
        else grow = false;
    }
    return OK;
}

/* Searches above what an octave's choice allows: steps that are planned quickly to the last image, others
 * coarsely, since each try takes long. */
static enum status search_above(struct batch_search *q, int *images)
{
    int activations = q->minimum.count * q->options->micro_batches;
    if (activations == 0) return OK;
    if (activations <= ACTIVATIONS_FEW) return search_applied(q, images, 1, 1);
    if (q->few == MODELLED) return OK;
    return search_applied(q, images, *images / COARSE_FIRST, *images < COARSE ? 1 : *images / COARSE);
}

/* Models a few micro-batches from here on. They have fewer partial sums of gradients; the difference is
 * measured with one image. */
static enum status model_few(struct batch_search *q)
{
    int64_t all, few;
    TRY(at(q, modelled, 1, &all));
    if (options_of(q, true).lower.micro_batches <= MODELLED) return OK;
    q->few = MODELLED;
    TRY(at(q, modelled, 1, &few));
    q->sums = all - few;
    return OK;
}

/* Decreases the number found for a few micro-batches until all of them fit. */
static enum status check_all(struct batch_search *q, int *images)
{
    int64_t bytes = q->options->exact && q->few == MODELLED ? INT64_MAX : 0;
    while (*images > 0 && bytes > q->options->limit) {
        TRY(at(q, applied, *images, &bytes));
        if (bytes > q->options->limit) *images -= (*images + CLOSER - 1) / CLOSER;
    }
    return OK;
}

/* Sets *none to true if the largest instruction alone needs more, with one image per micro-batch. */
static enum status none_fits(struct batch_search *q, bool *none)
{
    int64_t bytes;
    q->batch = q->options->micro_batches;
    struct compile_options options = options_of(q, true);
    TRY(fit_memory_bound(q->options->graph, &options, &bytes));
    *none = bytes > q->options->limit;
    return OK;
}

enum status fit_batch(const struct fit_batch_options *options, int *batch)
{
    struct batch_search q = {.options = options, .few = INT_MAX};
    int images = 0;
    bool none = false;
    *batch = 0;
    if (options->most > 0) TRY(none_fits(&q, &none));
    if (none) return OK;
    enum status status = options->most > 0 ? model_few(&q) : OK;
    if (status == OK && options->most > 0) status = search_octaves(&q, &images);
    if (status == OK) status = check_all(&q, &images);
    if (status == OK) status = search_above(&q, &images);
    minimum_free(&q.minimum);
    if (status == OK) *batch = images * options->micro_batches;
    return status;
}
