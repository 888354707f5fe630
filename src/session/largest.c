#include "session/largest.h"

#include <stdlib.h>

#include "base/host.h"
#include "compile/plan.h"
#include "session/step.h"
#include "session/strategy.h"

#define BATCH_MOST 1048576       /* train.batch's */
#define LINES 12                 /* tries that follow a straight line before halves are tried */
#define INSTRUCTIONS_FEW 180     /* of a step that is planned in no time: to the last image */
#define GAIN 6                   /* as many times the images fit, most often, that fit when all is kept */
#define OCTAVES 4                /* looked at, at most */
#define SPARE_SHARE 32           /* of a GPU's free memory, one part is left for libraries ... */
#define HOST_SHARE 2             /* ... and of the host's for all else that runs there */

/* A search, in images a micro-batch. */
struct quest {
    struct setup setup;          /* for those being tried */
    struct settings settings;
    struct least least;          /* of one octave; zeroed: all is kept */
    int64_t limit;
    int most;
};

static enum status planned_bytes(struct quest *q, enum step_kind kind, struct step_bytes *bytes)
{
    struct program program;
    TRY(step_program(&q->setup, kind, &program));
    const struct engine_options options = {
        .code_of = engines_code(setup_device_kind(&q->setup)), .tf32 = q->setup.precision->tf32,
        .deterministic = q->settings.run.deterministic,
    };
    struct engines engines = {0};
    struct plan plan = {0};
    enum status status = engines_prepare(&program, &options, &engines);
    if (status == OK) status = plan_make(&program, true, 0, &plan);
    if (status == OK) *bytes = step_bytes(&q->setup, &program, &plan, step_store_bytes(&q->setup));
    plan_free(&plan);
    engines_release(&engines);
    program_free(&program);
    return status;
}

/* By the model, which knows live bytes only. */
static enum status modelled(struct quest *q, struct step_bytes *bytes)
{
    return strategy_least_bytes(&q->setup, &q->least, false, bytes);
}

/* The two programs share the larger one's arena. */
static enum status with_evaluation(struct quest *q, struct step_bytes *bytes)
{
    struct step_bytes evaluation;
    TRY(planned_bytes(q, STEP_EVALUATION, &evaluation));
    if (evaluation.arena <= bytes->arena) return OK;
    bytes->total += evaluation.arena - bytes->arena;
    bytes->arena = evaluation.arena;
    return OK;
}

/* Placed, with the choice that takes least. */
static enum status placed(struct quest *q, struct step_bytes *bytes)
{
    TRY(strategy_least_bytes(&q->setup, &q->least, true, bytes));
    return bytes->total > q->limit ? OK : with_evaluation(q, bytes);
}

/* As a run would make it, which may find a still smaller choice within just this limit. */
static enum status applied(struct quest *q, struct step_bytes *bytes)
{
    TRY(planned_bytes(q, STEP_TRAINING, bytes));
    return bytes->total > q->limit ? OK : with_evaluation(q, bytes);
}

/* What a run takes with so many images a micro-batch, by one of the above. */
typedef enum status measure(struct quest *q, struct step_bytes *bytes);

static enum status at(struct quest *q, measure *measure, int images, int64_t *total)
{
    struct step_bytes bytes;
    q->setup.batch = images * q->setup.slices;
    TRY(measure(q, &bytes));
    *total = bytes.total;
    return OK;
}

/* `low` images fit, `high` do not; their bytes lie nearly on a straight line. */
struct bracket {
    int low, high;
    int64_t low_bytes, high_bytes;
};

static enum status narrow(struct quest *q, measure *measure, struct bracket *b)
{
    for (int tries = 0; b->high - b->low > 1; tries++) {
        double share = (double)(q->limit - b->low_bytes) / (double)(b->high_bytes - b->low_bytes);
        int next = b->low + (int)((b->high - b->low) * (tries < LINES ? share : 0.5));
        if (next <= b->low) next = b->low + 1;
        if (next >= b->high) next = b->high - 1;
        int64_t bytes;
        TRY(at(q, measure, next, &bytes));
        if (bytes <= q->limit) b->low = next, b->low_bytes = bytes;
        else b->high = next, b->high_bytes = bytes;
    }
    return OK;
}

/* Up from nothing. */
static enum status search_model(struct quest *q, int *images)
{
    struct bracket b = {.high = 1};
    for (;;) {
        TRY(at(q, modelled, b.high, &b.high_bytes));
        if (b.high_bytes > q->limit) break;
        b.low = b.high;
        b.low_bytes = b.high_bytes;
        double next = b.low * (double)q->limit / (double)b.low_bytes;
        if (next < 2.0 * b.low) next = 2.0 * b.low;
        b.high = next < q->most ? (int)next : q->most;
        if (b.low == q->most) break;
    }
    if (b.low < q->most) TRY(narrow(q, modelled, &b));
    *images = b.low;
    return OK;
}

/* Down from what the model thinks: placed, it is never less. */
static enum status search_placed(struct quest *q, int *images)
{
    struct bracket b = {.high = *images};
    if (*images == 0) return OK;
    TRY(at(q, placed, b.high, &b.high_bytes));
    if (b.high_bytes <= q->limit) return OK;
    TRY(narrow(q, placed, &b));
    *images = b.low;
    return OK;
}

/* The most with the choice of one octave, however many octaves away that is. */
static enum status search_octave(struct quest *q, int octave, int *images)
{
    q->setup.batch = octave * q->setup.slices;
    strategy_forget(&q->least);
    TRY(strategy_least(&q->setup, &q->least));
    TRY(search_model(q, images));
    return search_placed(q, images);
}

static int octave_of(struct quest *q, int images)
{
    q->setup.batch = images * q->setup.slices;
    return strategy_octave(&q->setup);
}

/* A run will take its own octave's choice: so the octave that the answer lies in is asked for it. Of two that
 * each point at the other, the lower one's last number is the answer. */
static enum status search_octaves(struct quest *q, int *images)
{
    int kept, came_from = 0;
    TRY(search_model(q, &kept));
    *images = kept;
    if (kept == q->most) TRY(search_placed(q, images));
    if (*images == q->most) return OK;
    double guess = (double)GAIN * kept;
    int octave = octave_of(q, guess < 1 ? 1 : guess < q->most ? (int)guess : q->most);
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

/* Up from what surely fits, in growing steps and then back in halves:
 * for steps that are planned in no time. */
static enum status search_applied(struct quest *q, int *images)
{
    int over = q->most + 1;
    bool grow = true;
    for (int step = 1; step > 0; step = grow ? 2 * step : step / 2) {
        int64_t bytes = INT64_MAX;
        if (*images + step < over) TRY(at(q, applied, *images + step, &bytes));
        if (bytes <= q->limit) *images += step;
        else grow = false;
    }
    return OK;
}

enum status largest_batch(const struct setup *setup, int64_t limit, int *batch)
{
    struct quest q = {.setup = *setup, .settings = *setup->settings, .limit = limit};
    q.settings.memory.limit = limit;
    q.setup.settings = &q.settings;
    q.setup.device = NULL;
    q.setup.left = 0;
    q.most = BATCH_MOST / setup->slices;
    if (setup->train.dataset && setup->train.count / setup->slices < q.most)
        q.most = (int)(setup->train.count / setup->slices);
    int images = 0;
    enum status status = q.most > 0 ? search_octaves(&q, &images) : OK;
    bool few = q.least.count > 0 && q.least.count <= INSTRUCTIONS_FEW;
    if (status == OK && few) status = search_applied(&q, &images);
    strategy_forget(&q.least);
    if (status == OK) *batch = images * setup->slices;
    return status;
}

void largest_say(const struct setup *setup, int64_t limit, struct text *words)
{
    int batch;
    if (largest_batch(setup, limit, &batch) != OK) text_add(words, "a smaller train.batch needs less");
    else if (batch > 0) text_add(words, "the largest train.batch that fits is %d", batch);
    else text_add(words, "not even train.batch=%d fits", setup->slices);
}

enum status largest_limit(struct setup *setup, int64_t *limit)
{
    size_t left, total;
    if (setup_device_kind(setup) == DEVICE_CPU) {
        host_memory(&left, &total);
        *limit = (int64_t)left / HOST_SHARE;
        return OK;
    }
    if (!setup->device) TRY(setup_device(setup));
    setup->device->backend->memory_info(setup->device, &left, &total);
    *limit = (int64_t)(left - left / SPARE_SHARE);
    return OK;
}
