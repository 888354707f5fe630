#include "session/micro_batches.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/crc32c.h"
#include "base/log.h"
#include "base/memory.h"
#include "graph/graph_text.h"
#include "session/session_store.h"
#include "session/step.h"

#define WARM_UP 3            /* steps that are not timed: the first is slow, the next are captured */
#define STEPS_MIN 5
#define STEPS_MAX 200
#define SECONDS 0.3          /* of timed steps, if these are enough */
#define GAIN 0.98            /* fraction of the time with fewer micro-batches that is a significant
                              * improvement */

/* The step that is timed. */
struct trial {
    const struct session *session;
    struct store store;
    struct step step;
    void *images, *labels;
};

static enum status run_steps(struct trial *trial, int count)
{
    const struct exec_batch batch = {.images = trial->images, .labels = trial->labels, .unchanged = true};
    for (int i = 0; i < count; i++) TRY(exec_run(trial->step.exec, &batch, 0, 0));
    return OK;
}

/* The shortest step. */
static enum status time_steps(struct trial *trial, double *seconds)
{
    double begin = clock_seconds(), now = begin, shortest = INFINITY;
    TRY(run_steps(trial, WARM_UP));
    begin = now = clock_seconds();
    for (int i = 0; i < STEPS_MAX && (i < STEPS_MIN || now < begin + SECONDS); i++) {
        double before = now;
        TRY(run_steps(trial, 1));
        now = clock_seconds();
        shortest = fmin(shortest, now - before);
    }
    *seconds = shortest;
    return OK;
}

/* Images and labels of zeros. */
static enum status run_trial(struct trial *trial, double *seconds)
{
    const struct program *program = &trial->step.compiled.program;
    trial->images = memory_new((size_t)program->images_bytes, 1);
    trial->labels = memory_new((size_t)program->targets_bytes, 1);
    enum status status = time_steps(trial, seconds);
    free(trial->images);
    free(trial->labels);
    return status;
}

/* Where timing must not affect results, a step is only planned. */
static bool is_timed(const struct session *session)
{
    return !session->settings->run.deterministic && session_device_kind(session) != DEVICE_CPU;
}

static bool is_within_limit(const struct trial *trial)
{
    const struct compiled *compiled = &trial->step.compiled;
    struct budget taken = step_taken(trial->session, &compiled->program, compiled->plan.arena_bytes);
    int64_t limit = session_limit(trial->session);
    return limit == 0 || taken.total <= limit;
}

/* *seconds is infinite where there is not enough memory; 0 if it is not timed. */
static enum status time_open_step(struct trial *trial, double *seconds)
{
    struct text shortage = {0};
    TRY(step_prepare(trial->session, STEP_TRAINING, &trial->store, &trial->step));
    bool within = is_within_limit(trial), timed = within && is_timed(trial->session);
    *seconds = within && !timed ? 0 : INFINITY;
    enum status status = OK;
    if (timed) status = exec_place(trial->step.exec, &(struct exec_memory){.shortage = &shortage});
    if (timed && status == OK) status = run_trial(trial, seconds);
    else if (status == NO_DEVICE && shortage.data) status = OK;
    text_free(&shortage);
    step_close(&trial->step);
    return status;
}

static enum status time_count(struct session *session, int count, double *seconds)
{
    struct settings settings = *session->settings, *own = session->settings;
    struct hyperparameters hyper = session->hyper;
    struct trial trial = {.session = session};
    settings.parallel.microbatches = count;
    session->settings = &settings;
    session->hyper.micro_batches = (int)settings_micro_batches(&settings);
    enum status status = session_store_open(session, &trial.store);
    if (status == OK) {
        status = time_open_step(&trial, seconds);
        store_close(&trial.store);
    }
    session->settings = own;
    session->hyper = hyper;
    return status;
}

static enum status find_fastest(struct session *session, int *fastest)
{
    double least = INFINITY;
    *fastest = 1;
    for (int count = 1; count <= 4; count *= 2) {
        double seconds;
        if (session->hyper.batch % (count * session->settings->train.accumulate) != 0) continue;
        TRY(time_count(session, count, &seconds));
        if (!is_timed(session) && seconds < INFINITY) {
            *fastest = count;
            return OK;
        }
        if (seconds < INFINITY) log_detail("parallel.microbatches=%d: %.3f ms a step", count, 1e3 * seconds);
        if (seconds >= GAIN * least) continue;
        least = seconds;
        *fastest = count;
    }
    return OK;
}

/* A key of everything that a step's time depends on; the caller frees it. */
static char *key_new(const struct session *session)
{
    const struct device *device = session->device;
    const struct settings *settings = session->settings;
    struct text key = {0}, graph = {0};
    graph_text(&session->graphs.training, &graph);
    text_add(&key, "microbatches of ");
    device->backend->describe(device->index, &key);
    text_add(&key, ", ");
    device->backend->libraries(&key);
    text_add(&key, ", network %08" PRIx32 " batch %d accumulate %" PRId64 " %s",
             crc32c(0, graph.data, graph.length), session->hyper.batch, settings->train.accumulate,
             session->hyper.precision->name);
    text_add(&key, " streams %d limit %" PRId64 " strategy %d", settings->parallel.streams,
             settings->memory.limit, settings->memory.strategy);
    text_add(&key, " %s", settings->run.conv_algorithm);
    text_free(&graph);
    return key.data;
}

static enum status find(struct session *session, int *count)
{
    TRY(session_open_device(session));
    const struct device_autotuner *autotuner = &session->device->backend->autotuner;
    if (!is_timed(session)) return find_fastest(session, count);
    char *key = key_new(session), *known = autotuner->find ? autotuner->find(session->device, key) : NULL;
    int number = known ? atoi(known) : 0;
    enum status status = OK;
    if (number != 1 && number != 2 && number != 4) {
        char choice[16];
        status = find_fastest(session, &number);
        snprintf(choice, sizeof choice, "%d", number);
        if (status == OK && autotuner->remember) autotuner->remember(session->device, key, choice);
    }
    *count = number;
    free(known);
    free(key);
    return status;
}

enum status micro_batches_find(struct session *session)
{
    int count = 1;
    if (session->settings->parallel.microbatches > 0) return OK;
    if (is_timed(session) || session_limit(session) > 0) TRY(find(session, &count));
    settings_derive_number(session->settings, "parallel", "microbatches", count);
    session->hyper.micro_batches = (int)settings_micro_batches(session->settings);
    log_info("parallel.microbatches: auto is %d", count);
    return OK;
}
