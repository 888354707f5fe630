#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "bench_feed.h"
#include "cmd.h"
#include "compile/cost.h"
#include "session/gpu_preprocessing.h"
#include "session/preprocessing.h"
#include "session/session_loader.h"
#include "session/session_store.h"
#include "session/step_fit.h"
#include "session/step_queue.h"
#include "train/ranks.h"

/* A measurement under way. */
struct bench {
    struct session session;
    struct store store;
    struct step step;
    struct loader *loader;       /* NULL: the made-up batch, again and again */
    struct exec_batch batch;     /* that one */
    void *images;
    void *labels;
    int64_t epoch;               /* of the loader; -1: none yet */
    double wait_seconds;         /* for the loader, of the measured steps */
    struct feed feed;            /* with a loader */
    double *milliseconds;        /* of the measured steps */
    int steps;
    double start_seconds, loss, first_loss;
    struct step_queue queue;
};

static void set_label(const struct program *program, void *labels, int64_t image, int64_t label)
{
    const struct value *value = &program->values[program->labels];
    if (value->dtype == I32)
        ((int32_t *)labels)[image] = (int32_t)label;
    else
        ((float *)labels)[image * value->shape.c + label] = 1;
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
    for (int64_t i = 0; i < elements; i++)
        dtype_set(program->storage, bench->images, i, 2 * random_uniform(&random) - 1);
    for (int i = 0; i < program->batch; i++)
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

static enum status launch(struct bench *bench)
{
    int64_t updates = exec_state(bench->step.exec)->updates;
    struct queued_step next = {.rates = step_rates(&bench->session.hyper, updates)};
    struct exec_batch input = bench->batch;
    if (bench->loader) {
        TRY(feed_next(&bench->step, bench->loader, &bench->epoch, &next.batch, &bench->wait_seconds));
        input = gpu_preprocessing_batch(bench->session.gpu_preprocessing, next.batch);
    }
    return step_queue_start(&bench->queue, &next, &input);
}

static enum status collect(struct bench *bench)
{
    struct queued_step made;
    TRY(step_queue_collect(&bench->queue, &made));
    step_queue_return(&bench->queue, &made);
    keep_loss(bench);
    return OK;
}

/* Steps follow each other as in training; one's time is from the end of the one before it to its own. */
static enum status measure(struct bench *bench, int warmup)
{
    int all = warmup + bench->steps, launched = 0;
    double before = clock_seconds();
    for (int i = 0; i < all; i++) {
        if (i == warmup) bench->wait_seconds = 0;
        while (launched < all && !step_queue_full(&bench->queue)) {
            TRY(launch(bench));
            launched++;
        }
        TRY(collect(bench));
        double now = clock_seconds();
        if (bench->start_seconds == 0) {
            bench->start_seconds = clock_since_start();
            bench->first_loss = bench->loss;
        }
        if (i >= warmup) bench->milliseconds[i - warmup] = 1e3 * (now - before);
        before = now;
    }
    return OK;
}

static double images_per_second(const struct bench *bench)
{
    double milliseconds = 0;
    for (int i = 0; i < bench->steps; i++) milliseconds += bench->milliseconds[i];
    return 1e3 * bench->steps * bench->session.hyper.batch / milliseconds;
}

/* Measures the loader alone, the step alone, and last the combination, whose times are kept. */
static enum status measure_feed(struct bench *bench, int warmup)
{
    struct feed *feed = &bench->feed;
    struct loader *loader = bench->loader;
    bench->loader = NULL;
    enum status status = measure(bench, warmup);
    feed->compute = status == OK ? images_per_second(bench) : 0;
    bench->loader = loader;
    TRY(status);
    TRY(feed_measure_copy(&bench->session, &bench->step.compiled.program, loader, &bench->epoch, bench->steps,
                          &feed->copy));
    TRY(feed_measure_loader(&bench->session, loader, &bench->epoch, bench->steps, &feed->loader));
    /* Batches that the loader has prepared meanwhile are used up first. */
    TRY(measure(bench, warmup + (int)bench->session.settings->loader.prefetch));
    feed->together = images_per_second(bench);
    double images = (double)bench->steps * bench->session.hyper.batch;
    feed->wait_fraction = bench->wait_seconds * feed->together / images;
    return OK;
}

static struct step_bytes bench_bytes(const struct bench *bench)
{
    const struct compiled *compiled = &bench->step.compiled;
    return step_bytes(&bench->session, &compiled->program, &compiled->plan, bench->store.layout.bytes);
}

/* Asked for, or a kind of data other than made-up ones is named on the command line. */
static bool wants_data(const struct cmd *cmd)
{
    bool named = false;
    for (int i = 0; i < cmd->set_count; i++) {
        const char *value = strncmp(cmd->sets[i], "data.format=", 12) == 0 ? cmd->sets[i] + 12 : NULL;
        if (value) named = strcmp(value, "synthetic") != 0;
    }
    return named || cmd_value(cmd, "data");
}

static enum status bench_open(struct cmd *cmd, struct comm *comm, struct bench *bench)
{
    bool real = wants_data(cmd);
    TRY(cmd_session(cmd, real ? DATA_TRAIN : DATA_TRAIN | DATA_OPTIONAL, NULL, &bench->session));
    TRY(session_open_device(&bench->session));
    TRY(session_store_open(&bench->session, &bench->store));
    TRY(session_store_weights(&bench->session, &bench->store));
    if (real) TRY(preprocessing_open(&bench->session, true));
    TRY(ranks_take_algorithms(comm, bench->session.device));
    TRY(step_open(&bench->session, STEP_TRAINING, &bench->store, &bench->step));
    TRY(ranks_give_algorithms(comm, bench->session.device));
    struct step_bytes bytes = bench_bytes(bench);
    TRY(step_fit_check(&bench->session, &bytes));
    TRY(make_batch(bench));
    if (real) TRY(session_loader_open(&bench->session, &bench->session.data.train, true, &bench->loader));
    bench->queue =
        (struct step_queue){.device = bench->session.device, .step = &bench->step, .loader = bench->loader};
    return OK;
}

static void bench_close(struct bench *bench)
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

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double percentile(const struct bench *bench, double share)
{
    return bench->milliseconds[(int)(share * (bench->steps - 1) + 0.5)];
}

static void add_number(struct text *out, const char *key, double value)
{
    text_add(out, "\"%s\":", key);
    text_json_number(out, value);
    text_add(out, ",");
}

static void add_feed(const struct feed *feed, struct text *out)
{
    add_number(out, "loader_images_per_s", feed->loader);
    add_number(out, "copy_images_per_s", feed->copy > 0 ? feed->copy : NAN);
    add_number(out, "compute_images_per_s", feed->compute);
    add_number(out, "data_wait_fraction", feed->wait_fraction);
    text_add(out, "\"limit\":\"%s\",", feed_limit(feed));
}

/* The figures as members of a JSON object, whose end follows. */
static void add_figures(const struct bench *bench, struct text *out)
{
    const struct session *session = &bench->session;
    const struct hyperparameters *hyper = &session->hyper;
    struct step_bytes bytes = bench_bytes(bench);
    double median = percentile(bench, 0.5);
    struct text device = {0};
    session->device->backend->describe(session->device->index, &device);
    int64_t peak = bytes.total, reserved = bytes.total;
    if (session->cache) {
        struct cache_statistics statistics = cache_statistics(session->cache);
        peak = (int64_t)statistics.allocated_peak;
        reserved = (int64_t)statistics.reserved_peak;
    }
    text_add(out, "{");
    add_number(out, "images_per_s", bench->loader ? bench->feed.together : 1e3 * hyper->batch / median);
    add_number(out, "step_ms_median", median);
    add_number(out, "step_ms_p10", percentile(bench, 0.1));
    add_number(out, "step_ms_p90", percentile(bench, 0.9));
    text_add(out, "\"steps\":%d,\"batch\":%d,\"precision\":\"%s\",\"device\":", bench->steps, hyper->batch,
             hyper->precision->name);
    text_json_string(out, device.data);
    text_add(out,
             ",\"device_peak_bytes\":%" PRId64 ",\"arena_bytes\":%" PRId64 ",\"live_bytes_bound\":%" PRId64
             ",\"reserved_bytes\":%" PRId64 ",",
             peak, bytes.arena, bytes.live_bound, reserved);
    if (bench->loader) add_feed(&bench->feed, out);
    add_number(out, "first_loss", bench->first_loss);
    add_number(out, "loss", bench->loss);
    text_add(out, "\"start_seconds\":");
    text_json_number(out, bench->start_seconds);
    text_free(&device);
}

static void print_feed(const struct feed *feed)
{
    struct text sentence = {0};
    feed_explain(feed, &sentence);
    printf("images/s: loader alone %.1f, ", feed->loader);
    if (feed->copy > 0) printf("copy alone %.1f, ", feed->copy);
    printf("compute alone %.1f, combined %.1f, waiting for the loader %.1f %% of the time\n%s\n",
           feed->compute, feed->together, 100 * feed->wait_fraction, sentence.data);
    text_free(&sentence);
}

static void print_table(const struct bench *bench)
{
    double median = percentile(bench, 0.5);
    const struct hyperparameters *hyper = &bench->session.hyper;
    double rate = bench->loader ? bench->feed.together : 1e3 * hyper->batch / median;
    char loss[TEXT_NUMBER], first_loss[TEXT_NUMBER];
    printf("%.1f images/s: batch %d in %.3f ms (10 %% below %.3f, 90 %% below %.3f; %d steps), %s, "
           "loss %s after %s, first step after %.2f s\n",
           rate, hyper->batch, median, percentile(bench, 0.1), percentile(bench, 0.9), bench->steps,
           hyper->precision->name, text_number(bench->loss, 4, NULL, loss),
           text_number(bench->first_loss, 4, NULL, first_loss), bench->start_seconds);
    if (bench->loader) print_feed(&bench->feed);
}

/* Every instruction by itself. */

#define MEASURED_RUNS 5

struct timed {
    const struct instruction *at;
    double milliseconds;         /* the shortest of the runs */
    double bytes;                /* that it must read and write */
};

static int by_time(const void *a, const void *b)
{
    double x = ((const struct timed *)a)->milliseconds, y = ((const struct timed *)b)->milliseconds;
    return (x < y) - (x > y);
}

static enum status time_instructions(struct bench *bench, struct timed *rows)
{
    const struct program *program = &bench->step.compiled.program;
    exec_measure(bench->step.exec, true);
    for (int run = 0; run < MEASURED_RUNS; run++) {
        TRY(launch(bench));
        TRY(collect(bench));
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

static void print_rows(const struct timed *rows, int count)
{
    double sum = 0;
    for (int i = 0; i < count; i++) sum += rows[i].milliseconds;
    printf("\n%10s %7s %9s  instruction (%d, one after another: %.3f ms)\n", "ms", "share", "GB/s", count,
           sum);
    for (int i = 0; i < count; i++)
        printf("%10.4f %6.2f%% %9.1f  %s\n", rows[i].milliseconds, 100 * rows[i].milliseconds / sum,
               1e-6 * rows[i].bytes / rows[i].milliseconds, rows[i].at->name);
}

static void add_rows(const struct timed *rows, int count, struct text *out)
{
    text_add(out, ",\"layers\":[");
    for (int i = 0; i < count; i++) {
        text_add(out, "%s{\"name\":", i ? "," : "");
        text_json_string(out, rows[i].at->name);
        text_add(out, ",");
        add_number(out, "bytes", rows[i].bytes);
        text_add(out, "\"ms\":");
        text_json_number(out, rows[i].milliseconds);
        text_add(out, "}");
    }
    text_add(out, "]");
}

/* Adds them to the JSON object that `out` is, or prints a table. */
static enum status show_instructions(struct bench *bench, struct text *out)
{
    int count = bench->step.compiled.program.count;
    struct timed *rows = memory_new((size_t)count, sizeof *rows);
    enum status status = time_instructions(bench, rows);
    if (status == OK) {
        qsort(rows, (size_t)count, sizeof *rows, by_time);
        if (out->data)
            add_rows(rows, count, out);
        else
            print_rows(rows, count);
    }
    free(rows);
    return status;
}

static enum status show(const struct cmd *cmd, struct bench *bench)
{
    struct text json = {0};
    enum status status = OK;
    qsort(bench->milliseconds, (size_t)bench->steps, sizeof *bench->milliseconds, by_size);
    if (cmd_value(cmd, "json"))
        add_figures(bench, &json);
    else
        print_table(bench);
    if (cmd_value(cmd, "layers")) status = show_instructions(bench, &json);
    if (json.data && status == OK) printf("%s}\n", json.data);
    text_free(&json);
    return status;
}

/* Takes part in what the first rank shows. */
static enum status follow(const struct cmd *cmd, struct bench *bench)
{
    if (!cmd_value(cmd, "layers")) return OK;
    struct timed *rows = memory_new((size_t)bench->step.compiled.program.count, sizeof *rows);
    enum status status = time_instructions(bench, rows);
    free(rows);
    return status;
}

/* Of several ranks, the first one speaks. */
static enum status bench_rank(struct cmd *cmd, struct comm *comm)
{
    long steps, warmup;
    TRY(cmd_number(cmd, "steps", 1, 20, &steps));
    TRY(cmd_number(cmd, "warmup", 0, 3, &warmup));
    struct bench bench = {.steps = (int)steps, .epoch = -1};
    bench.milliseconds = memory_new((size_t)steps, sizeof *bench.milliseconds);
    enum status status = bench_open(cmd, comm, &bench);
    if (status == OK && bench.loader) status = measure_feed(&bench, (int)warmup);
    else if (status == OK) status = measure(&bench, (int)warmup);
    if (status == OK) status = comm_rank(comm) == 0 ? show(cmd, &bench) : follow(cmd, &bench);
    bench_close(&bench);
    return status;
}

static enum status run(struct cmd *cmd)
{
    return cmd_ranks(cmd, bench_rank);
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the results as JSON"},
    {"steps", "N", "number of measured steps (default: 20)"},
    {"warmup", "N", "number of warm-up steps (default: 3)"},
    {"layers", NULL, "also time each instruction by itself and list them, slowest first"},
    {"data", NULL, "train on the configured data, and also measure loader, copy and compute alone"},
    {0},
};

const struct command cmd_bench = {
    .name = "bench",
    .usage = "-c FILE [--json] [--steps N] [--warmup N] [--layers] [--data]",
    .help = "Measures training throughput and finds the bottleneck.",
    .takes = TAKES_CONFIG,
    .options = options,
    .run = run,
};
