#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/members.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "measure/bench.h"

/* True with --data, or if the command line names a format other than synthetic. */
static bool wants_data(const struct cmd *cmd)
{
    bool named = false;
    for (int i = 0; i < cmd->set_count; i++) {
        const char *value = strncmp(cmd->sets[i], "data.format=", 12) == 0 ? cmd->sets[i] + 12 : NULL;
        if (value) named = strcmp(value, "synthetic") != 0;
    }
    return named || cmd_value(cmd, "data");
}

static void add_feed(const struct feed *feed, struct text *out)
{
    member_number(out, "loader_images_per_s", feed->loader);
    member_number(out, "copy_images_per_s", feed->copy > 0 ? feed->copy : NAN);
    member_number(out, "compute_images_per_s", feed->compute);
    member_number(out, "data_wait_fraction", feed->wait_fraction);
    member_string(out, "limit", feed_limit(feed));
}

static double joules_per_image(const struct bench *bench)
{
    return bench->joules / ((double)bench->steps * bench->session.hyper.batch);
}

/* The figures as members of a JSON object, whose end follows. */
static void add_figures(const struct bench *bench, struct text *out)
{
    const struct session *session = &bench->session;
    const struct hyperparameters *hyper = &session->hyper;
    struct budget bytes = bench_bytes(bench);
    double median = bench_percentile(bench, 0.5);
    struct text device = {0};
    session->device->backend->describe(session->device->index, &device);
    int64_t peak = bytes.total, reserved = bytes.total;
    if (session->cache) {
        struct cache_statistics statistics = cache_statistics(session->cache);
        peak = (int64_t)statistics.allocated_peak;
        reserved = (int64_t)statistics.reserved_peak;
    }
    text_add(out, "{");
    member_number(out, "images_per_s", bench->loader ? bench->feed.together : 1e3 * hyper->batch / median);
    member_number(out, "step_ms_median", median);
    member_number(out, "step_ms_p10", bench_percentile(bench, 0.1));
    member_number(out, "step_ms_p90", bench_percentile(bench, 0.9));
    member_integer(out, "steps", bench->steps);
    if (isfinite(bench->joules)) member_number(out, "joules_per_image", joules_per_image(bench));
    member_integer(out, "batch", hyper->batch);
    member_string(out, "precision", hyper->precision->name);
    member_string(out, "device", device.data);
    member_integer(out, "device_peak_bytes", peak);
    member_integer(out, "arena_bytes", bytes.arena);
    member_integer(out, "live_bytes_bound", bench->step.compiled.plan.live_bytes_bound);
    member_integer(out, "reserved_bytes", reserved);
    if (bench->loader) add_feed(&bench->feed, out);
    member_number(out, "first_loss", bench->first_loss);
    member_number(out, "loss", bench->loss);
    member_number(out, "start_seconds", bench->start_seconds);
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
    double median = bench_percentile(bench, 0.5);
    const struct hyperparameters *hyper = &bench->session.hyper;
    double rate = bench->loader ? bench->feed.together : 1e3 * hyper->batch / median;
    char loss[TEXT_NUMBER], first_loss[TEXT_NUMBER];
    printf("%.1f images/s: batch %d in %.3f ms (10 %% below %.3f, 90 %% below %.3f; %d steps), %s, "
           "loss %s after %s, first step after %.2f s\n",
           rate, hyper->batch, median, bench_percentile(bench, 0.1), bench_percentile(bench, 0.9),
           bench->steps, hyper->precision->name, text_number(bench->loss, 4, NULL, loss),
           text_number(bench->first_loss, 4, NULL, first_loss), bench->start_seconds);
    if (isfinite(bench->joules)) printf("%.3g J an image\n", joules_per_image(bench));
    if (bench->loader) print_feed(&bench->feed);
}

/* Each instruction, serialised. */

static int by_time(const void *a, const void *b)
{
    double x = ((const struct timed *)a)->milliseconds, y = ((const struct timed *)b)->milliseconds;
    return (x < y) - (x > y);
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
        text_add(out, i ? ",{" : "{");
        member_string(out, "name", rows[i].at->name);
        member_number(out, "bytes", rows[i].bytes);
        member_number(out, "ms", rows[i].milliseconds);
        text_add(out, "}");
    }
    text_add(out, "]");
}

/* Adds them to the JSON object in `out`, or prints a table. */
static enum status show_instructions(struct bench *bench, struct text *out)
{
    int count = bench->step.compiled.program.count;
    struct timed *rows = memory_new((size_t)count, sizeof *rows);
    enum status status = bench_time_instructions(bench, rows);
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
    if (cmd_value(cmd, "json"))
        add_figures(bench, &json);
    else
        print_table(bench);
    if (cmd_value(cmd, "layers")) status = show_instructions(bench, &json);
    if (json.data && status == OK) printf("%s}\n", json.data);
    text_free(&json);
    return status;
}

/* Losses are known to the first pipeline's last stage, energy to each rank. */
static enum status share_figures(struct bench *bench)
{
    double losses[] = {bench->loss, bench->first_loss};
    TRY(comm_broadcast(bench->session.comm, bench->session.hyper.stages - 1, losses, sizeof losses));
    bench->loss = losses[0];
    bench->first_loss = losses[1];
    return comm_sum(bench->session.comm, &bench->joules, 1);
}

/* Other ranks take part in the measurement of the first. */
static enum status follow(const struct cmd *cmd, struct bench *bench)
{
    if (!cmd_value(cmd, "layers")) return OK;
    struct timed *rows = memory_new((size_t)bench->step.compiled.program.count, sizeof *rows);
    enum status status = bench_time_instructions(bench, rows);
    free(rows);
    return status;
}

/* Only the first rank prints. */
static enum status bench_rank(struct cmd *cmd, struct comm *comm)
{
    long steps, warmup;
    TRY(cmd_number(cmd, "steps", 1, 20, &steps));
    TRY(cmd_number(cmd, "warmup", 0, 3, &warmup));
    struct bench bench = {.steps = (int)steps};
    enum status status = cmd_session(cmd, bench_data(wants_data(cmd)), NULL, &bench.session);
    if (status == OK) status = bench_open(wants_data(cmd), &bench);
    if (status == OK && bench.loader) status = bench_measure_feed(&bench, (int)warmup);
    else if (status == OK) status = bench_measure(&bench, (int)warmup);
    if (status == OK) status = share_figures(&bench);
    if (status == OK) status = comm_rank(comm) == 0 ? show(cmd, &bench) : follow(cmd, &bench);
    bench_close(&bench);
    return status;
}

static enum status bench_run(struct cmd *cmd)
{
    return cmd_ranks(cmd, bench_rank);
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the results as JSON"},
    {"steps", "N", "number of measured steps (default: 20)"},
    {"warmup", "N", "number of warm-up steps (default: 3)"},
    {"layers", NULL, "also time each instruction, slowest first"},
    {"data", NULL, "train on real data, and measure loading alone"},
    {0},
};

const struct command cmd_bench = {
    .name = "bench",
    .usage = "-c FILE [--json] [--steps N] [--warmup N] [--layers] [--data]",
    .help = "Measures training throughput and finds the bottleneck.",
    .takes = TAKES_CONFIG,
    .options = options,
    .run = bench_run,
};
