#include "measure/profile.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "compile/time/cost.h"
#include "measure/timeline.h"

#define WARMUP 3

const char *const profile_stage_name[STAGES] = {
    [STAGE_READ] = "read", [STAGE_DECODE] = "decode", [STAGE_COPY] = "copy", [STAGE_FORWARD] = "forward",
    [STAGE_BACKWARD] = "backward", [STAGE_EXCHANGE] = "exchange", [STAGE_UPDATE] = "update",
};

static const char *const phase_names[PHASE_COUNT] = {
    [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward", [PHASE_BACKWARD_DATA] = "data gradient",
    [PHASE_BACKWARD_PARAMS] = "weight gradient", [PHASE_UPDATE] = "update", [PHASE_RECOMPUTE] = "recompute",
};

double profile_least_ms(const struct profile *profile, const struct profile_row *row)
{
    return 1e3 * fmax(row->flops / (1e12 * profile->peaks.tflops), row->bytes / (1e9 * profile->peaks.gbps));
}

bool profile_computes(const struct profile *profile, const struct profile_row *row)
{
    return row->flops / (1e12 * profile->peaks.tflops) > row->bytes / (1e9 * profile->peaks.gbps);
}

/* Sums of gradients, casts and others without a layer count to the surrounding stage. */
static int stage_of(const struct program *program, int i)
{
    const struct instruction *at = &program->instructions[i];
    while (at->kind == INSTRUCTION_OP && at->node < 0 && at->phase == PHASE_FORWARD &&
           at > program->instructions) at--;
    if (instruction_is_exchange(program, at)) return STAGE_EXCHANGE;
    if (at->kind == INSTRUCTION_UPDATE || at->phase == PHASE_UPDATE) return STAGE_UPDATE;
    return at->phase == PHASE_FORWARD ? STAGE_FORWARD : STAGE_BACKWARD;
}

static const struct timeline_stages stages = {profile_stage_name, stage_of};

/* Rows. */

static int64_t param_bytes(const struct program *program, const struct instruction *at)
{
    int64_t bytes = 0;
    FOR_OPERANDS(o, at)
        if (o->role == OPERAND_PARAM && at->op) bytes += program->values[o->value].bytes;
    return bytes;
}

static struct profile_row row_of(const struct bench *bench, const struct timed *timed)
{
    const struct program *program = &bench->step.compiled.program;
    const struct instruction *at = timed->at;
    int i = (int)(at - program->instructions);
    int y = operand_y(at), workspace = operand(at, OPERAND_WORKSPACE, 0);
    const char *algorithm = exec_algorithm(bench->step.exec, i);
    bool layer = at->node >= 0 && at->op, in_layer = at->node >= 0 && at->kind == INSTRUCTION_OP;
    return (struct profile_row){
        .name = layer ? program->graph->nodes[at->node].name : at->name,
        .op = at->op ? at->op->name : "",
        .phase = in_layer ? phase_names[at->phase] : profile_stage_name[stage_of(program, i)],
        .algorithm = algorithm ? algorithm : "",
        .ms = timed->milliseconds, .flops = cost_flops(program, at), .bytes = timed->bytes,
        .weight_bytes = param_bytes(program, at),
        .activation_bytes = layer && y >= 0 ? program->values[y].bytes : 0,
        .workspace_bytes = workspace >= 0 ? program->values[workspace].bytes : 0,
    };
}

/* Instructions of the same name, such as those of micro-batches, make one row. */
static void add_row(struct profile *profile, const struct profile_row *row)
{
    for (int i = 0; i < profile->count; i++) {
        struct profile_row *same = &profile->rows[i];
        if (strcmp(same->name, row->name) != 0 || strcmp(same->op, row->op) != 0 || same->phase != row->phase)
            continue;
        same->ms += row->ms;
        same->flops += row->flops;
        same->bytes += row->bytes;
        same->activation_bytes += row->activation_bytes;
        return;
    }
    *array_push(profile->rows, profile->count) = *row;
}

static int by_won(const void *a, const void *b)
{
    double x = ((const struct profile_row *)a)->won_ms, y = ((const struct profile_row *)b)->won_ms;
    return (x < y) - (x > y);
}

static void sort_rows(struct profile *profile)
{
    for (int i = 0; i < profile->count; i++) {
        struct profile_row *row = &profile->rows[i];
        row->won_ms = row->ms - profile_least_ms(profile, row);
    }
    qsort(profile->rows, (size_t)profile->count, sizeof *profile->rows, by_won);
    for (int i = 0; i < profile->count; i++) profile->rows[i].won_ms = fmax(0, profile->rows[i].won_ms);
}

/* Times rows by the device's clock if it has one: the host's includes the launch of each. */
static enum status time_rows(struct bench *bench, const struct timeline *timeline, struct timed *timed)
{
    const struct program *program = &bench->step.compiled.program;
    if (!timeline->measured) return bench_time_instructions(bench, timed);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        timed[i] = (struct timed){at, timeline_ms(timeline, i), cost_bytes(program, at)};
    }
    return OK;
}

static enum status measure_rows(struct bench *bench, const struct timeline *timeline, struct profile *profile)
{
    int count = bench->step.compiled.program.count;
    struct timed *timed = memory_new((size_t)count, sizeof *timed);
    enum status status = time_rows(bench, timeline, timed);
    for (int i = 0; i < count && status == OK; i++) {
        struct profile_row row = row_of(bench, &timed[i]);
        if (row.ms > 0) add_row(profile, &row);
        profile->serial_ms += timed[i].milliseconds;
        profile->stages[stage_of(&bench->step.compiled.program, i)].alone += timed[i].milliseconds;
    }
    free(timed);
    for (int i = 0; i < STAGES; i++) profile->stages[i].exposed = profile->stages[i].alone;
    if (timeline->measured)
        stage_times(timeline, &bench->step.compiled.program, &stages, STAGES, profile->stages);
    /* On a busy machine a layer may have been faster than the large product. */
    for (int i = 0; i < profile->count; i++) {
        double tflops = 1e-9 * profile->rows[i].flops / profile->rows[i].ms;
        profile->peaks.tflops = fmax(profile->peaks.tflops, tflops);
    }
    if (status == OK) sort_rows(profile);
    return status;
}

/* Stages. */

#define READ_SECONDS 1.0     /* time limit of measuring reads */

/* Milliseconds for the workers to read a batch's files without decoding; 0 if images are not files. */
static double read_ms(const struct bench *bench)
{
    const struct images *images = &bench->session.data.train;
    const struct format *format = images->dataset->format;
    if (!format->read_file) return 0;
    double start = clock_seconds();
    int64_t read = 0, most = images->count < 256 ? images->count : 256;
    for (; read < most && clock_seconds() - start < READ_SECONDS; read++) {
        int64_t index = images_index(images, read * images->count / most);
        uint8_t *bytes;
        size_t count;
        int label;
        struct reason reason;
        if (format->read_file(images->dataset, index, &bytes, &count, &label, &reason)) free(bytes);
    }
    int64_t workers = bench->session.settings->loader.workers;
    double seconds = (clock_seconds() - start) / (double)(read > 0 ? read : 1);
    return 1e3 * seconds * bench->session.hyper.batch / (double)(workers > 0 ? workers : 1);
}

/* Divides a time in proportion to the stages' exposed times so far; if there are none, it goes to the last
 * one. */
static void expose(struct profile *profile, enum profile_stage_id from, enum profile_stage_id to, double ms)
{
    double all = 0;
    for (enum profile_stage_id i = from; i <= to; i++) all += profile->stages[i].exposed;
    for (enum profile_stage_id i = from; i <= to; i++)
        profile->stages[i].exposed = all > 0 ? ms * profile->stages[i].exposed / all : i == to ? ms : 0;
}

/* Serialised instructions take longer than in a step, where some overlap and none waits for the host; and a
 * measured step has longer gaps between kernels than one in training: the stages are scaled to the time of
 * computing alone. The rest of a step is waiting for data: up to the measured waiting for the loader, and
 * beyond that for copies. */
static void divide_step(const struct bench *bench, struct profile *profile)
{
    const struct feed *feed = &bench->feed;
    double batch = 1e3 * profile->batch, compute = bench->loader ? batch / feed->compute : profile->step_ms;
    double ran = 0;
    for (enum profile_stage_id i = STAGE_FORWARD; i <= STAGE_UPDATE; i++) ran += profile->stages[i].exposed;
    for (enum profile_stage_id i = STAGE_FORWARD; i <= STAGE_UPDATE; i++)
        profile->stages[i].alone *= compute / ran;
    if (bench->loader) {
        double loader = batch / feed->loader, read = fmin(loader, read_ms(bench));
        profile->stages[STAGE_READ] = (struct stage_time){read, read};
        profile->stages[STAGE_DECODE] = (struct stage_time){loader - read, loader - read};
        profile->stages[STAGE_COPY].alone = feed->copy > 0 ? batch / feed->copy : 0;
    }
    double beyond = fmax(0, profile->step_ms - compute);
    double waited = bench->loader ? fmin(beyond, feed->wait_fraction * profile->step_ms) : 0;
    if (!(profile->stages[STAGE_COPY].alone > 0)) waited = beyond;
    expose(profile, STAGE_READ, STAGE_DECODE, waited);
    profile->stages[STAGE_COPY].exposed = beyond - waited;
    expose(profile, STAGE_FORWARD, STAGE_UPDATE, profile->step_ms - beyond);
}

static enum status measure_step(struct bench *bench, struct profile *profile)
{
    if (bench->loader) {
        TRY(bench_measure_feed(bench, WARMUP));
        profile->step_ms = 1e3 * profile->batch / bench->feed.together;
        return OK;
    }
    TRY(bench_measure(bench, WARMUP));
    profile->step_ms = bench_percentile(bench, 0.5);
    return OK;
}

enum status profile_make(struct bench *bench, struct profile *profile)
{
    const struct session *session = &bench->session;
    struct text device = {0};
    size_t left, total;
    session->device->backend->describe(session->device->index, &device);
    session->device->backend->memory.info(session->device, &left, &total);
    *profile = (struct profile){
        .batch = session->hyper.batch, .ranks = comm_count(session->comm),
        .precision = session->hyper.precision->name, .device = device.data,
        .memory_bytes = bench_bytes(bench).total, .card_bytes = (int64_t)total,
    };
    if (comm_rank(session->comm) == 0) TRY(peaks_find(session, &profile->peaks));
    TRY(comm_broadcast(session->comm, 0, &profile->peaks, sizeof profile->peaks));
    profile->product_tflops = profile->peaks.tflops;
    TRY(measure_step(bench, profile));
    struct timeline timeline = {0};
    enum status status = timeline_record(bench, &timeline);
    if (exec_state(bench->step.exec)->skipped)
        log_warning("profile: gradients overflow, and a skipped update takes less time than one in training");
    if (status == OK) status = measure_rows(bench, &timeline, profile);
    if (status == OK) divide_step(bench, profile);
    timeline_print(&timeline, &bench->step.compiled.program, &stages, &profile->trace);
    timeline_free(&timeline);
    return status;
}

void profile_free(struct profile *profile)
{
    free(profile->device);
    free(profile->rows);
    text_free(&profile->trace);
    *profile = (struct profile){0};
}
