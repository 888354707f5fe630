#include "measure/bench.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "compile/time/cost.h"
#include "evaluate/ranks.h"
#include "input/gpu_preprocessing.h"
#include "session/micro_batches.h"
#include "session/preprocessing.h"
#include "session/session_loader.h"
#include "session/session_store.h"
#include "session/step_fit.h"
#include "session/step_ranks.h"
#include "session/step_times.h"

#define STEPS_REMEMBERED 5           /* fewer do not tell how long a step takes */

static void set_label(const struct program *program, void *labels, int64_t image, int64_t label)
{
    const struct value *value = &program->values[program->labels];
    if (value->dtype == I32)
        ((int32_t *)labels)[image] = (int32_t)label;
    else
        ((float *)labels)[image * value->shape.c + label] = 1;
}

/* Fills with numbers from -1 to 1 and advances the random stream. */
static void make_images(enum dtype storage, struct random *random, void *images, int64_t elements)
{
#pragma omp parallel for schedule(static)
    for (int64_t draw = 0; draw < (elements + 3) / 4; draw++) {
        uint32_t words[4];
        random_words(random, (uint64_t)draw, words);
        for (int k = 0; k < 4 && 4 * draw + k < elements; k++)
            dtype_set(storage, images, 4 * draw + k, 2 * (words[k] * 0x1p-32) - 1);
    }
    random->next = (uint64_t)elements;
}

/* Patches of classes, as masks have them. */
#define PATCH 16

static void make_masks(const struct bench *bench, struct random *random)
{
    const struct program *program = &bench->step.compiled.program;
    struct shape labels = program->values[program->labels].shape;
    struct mask_targets targets = session_mask_targets(&bench->session);
    double *counts = memory_new((size_t)targets.outputs * (size_t)targets.classes, sizeof *counts);
    uint8_t *to = bench->labels;
    for (int64_t row = 0; row < labels.n * labels.h; row++, to += labels.w)
        for (int64_t x = 0; x < labels.w; x++) {
            bool above = row % labels.h % PATCH > 0, left = x % PATCH > 0;
            if (above || left) to[x] = above ? to[x - labels.w] : to[x - 1];
            else to[x] = (uint8_t)random_below(random, (uint32_t)targets.classes);
        }
    mask_targets_count(&targets, bench->labels, program->batch, counts);
    mask_targets_weigh(&targets, counts, program->batch, program->batch, bench->labels);
    free(counts);
}

static enum status make_batch(struct bench *bench)
{
    const struct program *program = &bench->step.compiled.program;
    struct random random = random_open(0, PURPOSE_SYNTHETIC, 0, 0);
    int64_t elements = program->images_bytes / (int64_t)dtype_bytes(program->storage);
    bench->images = memory_try((size_t)program->images_bytes + 64, 1);
    if (!bench->images) return fail(FAILED, "not enough memory for a batch of %d images", program->batch);
    bench->labels = memory_new((size_t)program->targets_bytes, 1);
    uint32_t classes = (uint32_t)bench->session.data.classes;
    make_images(program->storage, &random, bench->images, elements);
    bool masks = bench->session.data.target == TARGET_MASK;
    if (masks) make_masks(bench, &random);
    for (int i = 0; !masks && i < program->batch; i++)
        set_label(program, bench->labels, i, (int64_t)random_below(&random, classes));
    bench->batch = (struct exec_batch){.images = bench->images, .labels = bench->labels, .unchanged = true};
    return OK;
}

static void keep_loss(struct bench *bench)
{
    const float *losses = exec_losses(bench->step.exec);
    double sum = 0;
    int images = bench->step.compiled.program.batch;
    for (int i = 0; i < images; i++) sum += losses[i];
    bench->loss = sum / images;
}

static enum status bench_launch(struct bench *bench, const struct update_rates *rates)
{
    struct queued_step next = {.rates = *rates};
    struct exec_batch input = bench->batch;
    if (bench->loader) {
        int64_t waits = clock_nanoseconds();
        TRY(feed_next(&bench->session, &bench->step, bench->loader, &bench->epoch, &next.batch,
                      &bench->wait_seconds));
        time_spans_add(bench->spans, "take a batch", 0, waits);
        input = gpu_preprocessing_batch(bench->session.gpu_preprocessing, next.batch);
    }
    int64_t begin = clock_nanoseconds();
    TRY(step_queue_start(&bench->queue, &next, &input));
    time_spans_add(bench->spans, "start a step", 0, begin);
    return OK;
}

static enum status bench_collect(struct bench *bench)
{
    struct queued_step made;
    int64_t begin = clock_nanoseconds();
    TRY(step_queue_collect(&bench->queue, &made));
    time_spans_add(bench->spans, "wait for a step", 0, begin);
    step_queue_return(&bench->queue, &made);
    keep_loss(bench);
    return OK;
}

static struct update_rates bench_rates(const struct bench *bench)
{
    struct update_rates rates = step_rates(&bench->session.hyper, exec_state(bench->step.exec)->updates);
    if (bench->still) rates.lr[0] = rates.lr[1] = 0;
    return rates;
}

enum status bench_step(struct bench *bench, const struct update_rates *rates)
{
    struct update_rates now = rates ? *rates : bench_rates(bench);
    TRY(bench_launch(bench, &now));
    return bench_collect(bench);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double bench_percentile(const struct bench *bench, double share)
{
    qsort(bench->milliseconds, (size_t)bench->steps, sizeof *bench->milliseconds, by_size);
    return bench->milliseconds[(int)(share * (bench->steps - 1) + 0.5)];
}

enum status bench_measure(struct bench *bench, int warmup)
{
    int all = warmup + bench->steps, launched = 0;
    double before = clock_seconds();
    for (int i = 0; i < all; i++) {
        if (i == warmup) {
            bench->wait_seconds = 0;
            bench->joules = session_joules(&bench->session);
        }
        while (launched < all && !step_queue_full(&bench->queue)) {
            struct update_rates rates = bench_rates(bench);
            TRY(bench_launch(bench, &rates));
            launched++;
        }
        TRY(bench_collect(bench));
        double now = clock_seconds();
        if (bench->start_seconds == 0) {
            bench->start_seconds = clock_since_start();
            bench->first_loss = bench->loss;
            session_joules(&bench->session);     /* the first time takes long */
        }
        if (i >= warmup) bench->milliseconds[i - warmup] = 1e3 * (now - before);
        before = now;
    }
    bench->joules = session_joules(&bench->session) - bench->joules;
    if (!bench->loader && warmup > 0 && bench->steps >= STEPS_REMEMBERED)
        step_times_note(&bench->session, &bench->step.compiled.program, 1e-3 * bench_percentile(bench, 0.5));
    return OK;
}

static double images_per_second(const struct bench *bench)
{
    double milliseconds = 0;
    for (int i = 0; i < bench->steps; i++) milliseconds += bench->milliseconds[i];
    return 1e3 * bench->steps * bench->session.hyper.batch / milliseconds;
}

enum status bench_measure_feed(struct bench *bench, int warmup)
{
    struct feed *feed = &bench->feed;
    struct loader *loader = bench->loader;
    bench->loader = NULL;
    enum status status = bench_measure(bench, warmup);
    feed->compute = status == OK ? images_per_second(bench) : 0;
    bench->loader = loader;
    TRY(status);
    TRY(feed_measure_copy(&bench->session, &bench->step.compiled.program, loader, &bench->epoch, bench->steps,
                          &feed->copy));
    TRY(feed_measure_loader(&bench->session, loader, &bench->epoch, bench->steps, &feed->loader));
    /* Batches that the loader has prefetched are consumed first. */
    TRY(bench_measure(bench, warmup + (int)bench->session.settings->loader.prefetch));
    feed->together = images_per_second(bench);
    double images = (double)bench->steps * bench->session.hyper.batch;
    feed->wait_fraction = bench->wait_seconds * feed->together / images;
    return OK;
}

struct budget bench_bytes(const struct bench *bench)
{
    const struct compiled *compiled = &bench->step.compiled;
    return step_taken(&bench->session, &compiled->program, compiled->plan.arena_bytes);
}

enum status bench_open(bool real, struct bench *bench)
{
    struct comm *comm = bench->session.comm;
    bench->epoch = -1;
    bench->milliseconds = memory_new((size_t)bench->steps, sizeof *bench->milliseconds);
    TRY(micro_batches_find(&bench->session));
    TRY(step_ranks_verify(&bench->session));
    TRY(session_open_device(&bench->session));
    TRY(step_fit_check_bound(&bench->session));
    TRY(session_store_open(&bench->session, &bench->store));
    TRY(session_store_weights(&bench->session, &bench->store));
    if (real) TRY(preprocessing_open(&bench->session, true));
    TRY(ranks_receive_algorithms(comm, bench->session.hyper.stages, bench->session.device));
    TRY(step_prepare(&bench->session, STEP_TRAINING, &bench->store, &bench->step));
    TRY(ranks_send_algorithms(comm, bench->session.hyper.stages, bench->session.device));
    struct budget bytes = bench_bytes(bench);
    TRY(step_fit_check(&bench->session, &bytes));
    TRY(exec_place(bench->step.exec, &(struct exec_memory){0}));
    TRY(make_batch(bench));
    if (real) TRY(session_loader_open(&bench->session, &bench->session.data.train, NULL,
                                      &bench->loader));
    bench->queue =
        (struct step_queue){.device = bench->session.device, .step = &bench->step, .loader = bench->loader};
    return OK;
}

void bench_close(struct bench *bench)
{
    step_queue_drop(&bench->queue);
    if (bench->loader) loader_close(bench->loader);
    step_close(&bench->step);
    if (bench->store.memory) store_close(&bench->store);
    session_close(&bench->session);
    free(bench->images);
    free(bench->labels);
    free(bench->milliseconds);
}

#define MEASURED_RUNS 5

enum status bench_time_instructions(struct bench *bench, struct timed *rows)
{
    const struct program *program = &bench->step.compiled.program;
    exec_measure(bench->step.exec, true);
    for (int run = 0; run < MEASURED_RUNS; run++) {
        TRY(bench_step(bench, NULL));
        for (int i = 0; i < program->count; i++) {
            double time = 1e-6 * (double)exec_times(bench->step.exec)[i];
            if (run == 0 || time < rows[i].milliseconds) rows[i].milliseconds = time;
        }
    }
    for (int i = 0; i < program->count; i++) {
        rows[i].at = &program->instructions[i];
        rows[i].bytes = cost_bytes(program, rows[i].at);
    }
    return OK;
}
