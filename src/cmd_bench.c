#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "cmd.h"
#include "train/clock.h"
#include "train/step.h"

/* A measurement under way. */
struct bench {
    struct setup setup;
    struct store store;
    struct step step;
    struct loader *loader;       /* NULL: one made-up batch, again and again */
    struct exec_batch batch;
    void *images;
    void *labels;
    int64_t epoch;
    double *milliseconds;        /* of the measured steps */
    int steps;
    double start_seconds, loss, first_loss;
    struct batch *flights[2];    /* of the steps queued and not collected, the oldest first */
    int flying;
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
    const struct program *program = &bench->step.program;
    struct random random = random_open(0, PURPOSE_SYNTHETIC, 0, 0);
    int64_t elements = program->images_bytes / (int64_t)dtype_bytes(program->storage);
    bench->images = memory_try((size_t)program->images_bytes + 64, 1);
    if (!bench->images) return fail(FAILED, "no memory for a batch of %d images", program->batch);
    bench->labels = memory_new((size_t)program->targets_bytes, 1);
    for (int64_t i = 0; i < elements; i++)
        dtype_set(program->storage, bench->images, i, 2 * random_uniform(&random) - 1);
    for (int i = 0; i < program->batch; i++)
        set_label(program, bench->labels, i, (int64_t)random_below(&random, (uint32_t)bench->setup.classes));
    bench->batch = (struct exec_batch){bench->images, bench->labels, true};
    return OK;
}

static enum status next_batch(struct bench *bench, struct batch **batch)
{
    TRY(loader_next(bench->loader, batch, NULL));
    if (*batch) return OK;
    TRY(loader_start(bench->loader, ++bench->epoch, 0));
    TRY(loader_next(bench->loader, batch, NULL));
    return *batch ? OK : fail(BAD_DATA, "bench: the data have no whole batch");
}

static void keep_loss(struct bench *bench)
{
    const float *losses = exec_losses(bench->step.exec);
    double sum = 0;
    for (int i = 0; i < bench->setup.batch; i++) sum += losses[i];
    bench->loss = sum / bench->setup.batch;
}

static enum status launch(struct bench *bench)
{
    struct update_rates rates = step_rates(&bench->setup, exec_state(bench->step.exec)->updates);
    struct batch *batch = NULL;
    if (bench->loader) {
        TRY(next_batch(bench, &batch));
        bench->batch = (struct exec_batch){.images = batch->images, .labels = batch_targets(batch)};
    }
    bench->flights[bench->flying++] = batch;
    return exec_start(bench->step.exec, &bench->batch, &rates);
}

static enum status collect(struct bench *bench)
{
    TRY(exec_collect(bench->step.exec));
    if (bench->flights[0]) loader_return(bench->loader, bench->flights[0]);
    bench->flights[0] = bench->flights[1];
    bench->flying--;
    keep_loss(bench);
    return OK;
}

/* Steps follow each other as in training; one's time is from the end of the one before it to its own. */
static enum status measure(struct bench *bench, int warmup)
{
    int all = warmup + bench->steps, launched = 0;
    double before = clock_seconds();
    for (int i = 0; i < all; i++) {
        while (launched < all && bench->flying < exec_depth(bench->step.exec)) {
            TRY(launch(bench));
            launched++;
        }
        TRY(collect(bench));
        double now = clock_seconds();
        if (i == 0) bench->start_seconds = clock_since_start();
        if (i == 0) bench->first_loss = bench->loss;
        if (i >= warmup) bench->milliseconds[i - warmup] = 1e3 * (now - before);
        before = now;
    }
    return OK;
}

static enum status bench_open(struct cmd *cmd, struct bench *bench)
{
    bool real = cmd_value(cmd, "data") != NULL;
    TRY(cmd_setup(cmd, real ? DATA_TRAIN : DATA_TRAIN | DATA_OPTIONAL, NULL, &bench->setup));
    TRY(setup_device(&bench->setup));
    TRY(setup_store(&bench->setup, true, &bench->store));
    TRY(step_open(&bench->setup, STEP_TRAINING, &bench->store, NULL, &bench->step));
    struct step_bytes bytes =
        step_bytes(&bench->setup, &bench->step.program, exec_plan(bench->step.exec), bench->store.layout.bytes);
    TRY(step_check_limit(&bench->setup, &bytes));
    if (!real) return make_batch(bench);
    TRY(setup_loader(&bench->setup, &bench->setup.train, true, &bench->loader));
    return loader_start(bench->loader, 0, 0);
}

static void bench_close(struct bench *bench)
{
    if (bench->flying > 0) bench->setup.device->backend->finish(bench->setup.device);
    if (bench->loader) loader_close(bench->loader);
    step_close(&bench->step);
    if (bench->store.memory) store_close(&bench->store);
    setup_close(&bench->setup);
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

static void print_json(const struct bench *bench)
{
    const struct setup *setup = &bench->setup;
    struct step_bytes bytes =
        step_bytes(&bench->setup, &bench->step.program, exec_plan(bench->step.exec), bench->store.layout.bytes);
    double median = percentile(bench, 0.5);
    struct text out = {0}, device = {0};
    setup->device->backend->describe(setup->device->index, &device);
    int64_t peak = bytes.total, reserved = bytes.total;
    if (setup->cache) {
        struct cache_statistics statistics = cache_statistics(setup->cache);
        peak = (int64_t)statistics.allocated_peak;
        reserved = (int64_t)statistics.reserved_peak;
    }
    text_add(&out, "{");
    add_number(&out, "images_per_s", 1e3 * setup->batch / median);
    add_number(&out, "step_ms_median", median);
    add_number(&out, "step_ms_p10", percentile(bench, 0.1));
    add_number(&out, "step_ms_p90", percentile(bench, 0.9));
    text_add(&out, "\"steps\":%d,\"batch\":%d,\"precision\":\"%s\",\"device\":", bench->steps, setup->batch,
             setup->precision->name);
    text_json_string(&out, device.data);
    text_add(&out,
             ",\"device_peak_bytes\":%" PRId64 ",\"arena_bytes\":%" PRId64 ",\"live_bytes_bound\":%" PRId64
             ",\"reserved_bytes\":%" PRId64 ",",
             peak, bytes.arena, bytes.live_bound, reserved);
    add_number(&out, "first_loss", bench->first_loss);
    add_number(&out, "loss", bench->loss);
    text_add(&out, "\"start_seconds\":");
    text_json_number(&out, bench->start_seconds);
    printf("%s}\n", out.data);
    text_free(&device);
    text_free(&out);
}

static void print_table(const struct bench *bench)
{
    double median = percentile(bench, 0.5);
    printf("%.1f images/s: batch %d in %.3f ms (10 %% below %.3f, 90 %% below %.3f; %d steps), %s, "
           "loss %.4f after %.4f, first step after %.2f s\n",
           1e3 * bench->setup.batch / median, bench->setup.batch, median, percentile(bench, 0.1),
           percentile(bench, 0.9), bench->steps, bench->setup.precision->name, bench->loss, bench->first_loss,
           bench->start_seconds);
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

static double bytes_of(const struct program *program, const int *ids, int count)
{
    double bytes = 0;
    for (int i = 0; i < count; i++)
        if (program->values[ids[i]].kind != KIND_WORKSPACE) bytes += (double)program->values[ids[i]].bytes;
    return bytes;
}

static enum status time_instructions(struct bench *bench, struct timed *rows)
{
    const struct program *program = &bench->step.program;
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
        const struct instruction *at = rows[i].at = &program->instructions[i];
        rows[i].bytes = bytes_of(program, at->reads, at->read_count) + bytes_of(program, at->writes, at->write_count);
    }
    return OK;
}

static enum status print_instructions(struct bench *bench)
{
    int count = bench->step.program.count;
    struct timed *rows = memory_new((size_t)count, sizeof *rows);
    enum status status = time_instructions(bench, rows);
    double sum = 0;
    qsort(rows, status == OK ? (size_t)count : 0, sizeof *rows, by_time);
    for (int i = 0; status == OK && i < count; i++) sum += rows[i].milliseconds;
    if (status == OK)
        printf("\n%10s %7s %9s  instruction (%d, one after another: %.3f ms)\n", "ms", "share", "GB/s", count,
               sum);
    for (int i = 0; status == OK && i < count; i++)
        printf("%10.4f %6.2f%% %9.1f  %s\n", rows[i].milliseconds, 100 * rows[i].milliseconds / sum,
               1e-6 * rows[i].bytes / rows[i].milliseconds, rows[i].at->name);
    free(rows);
    return status;
}

static enum status run(struct cmd *cmd)
{
    long steps, warmup;
    TRY(cmd_number(cmd, "steps", 1, 20, &steps));
    TRY(cmd_number(cmd, "warmup", 0, 3, &warmup));
    struct bench bench = {.steps = (int)steps};
    bench.milliseconds = memory_new((size_t)steps, sizeof *bench.milliseconds);
    enum status status = bench_open(cmd, &bench);
    if (status == OK) status = measure(&bench, (int)warmup);
    if (status == OK) {
        qsort(bench.milliseconds, (size_t)bench.steps, sizeof *bench.milliseconds, by_size);
        if (cmd_value(cmd, "json"))
            print_json(&bench);
        else
            print_table(&bench);
        if (cmd_value(cmd, "layers")) status = print_instructions(&bench);
    }
    bench_close(&bench);
    return status;
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the figures as JSON"},
    {"steps", "N", "measured steps; 20 when not given"},
    {"warmup", "N", "steps before them; 3 when not given"},
    {"layers", NULL, "then time every instruction by itself, and list them, the longest first"},
    {"data", NULL, "feed the configuration's images through the loader, not one made-up batch"},
    {0},
};

const struct command cmd_bench = {
    .name = "bench",
    .usage = "-c FILE [--json] [--steps N] [--warmup N] [--layers] [--data]",
    .help = "Measures the throughput of the real training step.",
    .takes = TAKES_CONFIG,
    .options = options,
    .run = run,
};
