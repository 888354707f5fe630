#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/check.h"
#include "alloc/pack.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "compile/dump.h"
#include "forecast.h"
#include "memory_map.h"

#define SPANS_SECONDS 50   /* the most that packing a table may take */

static enum status draw(const struct setup *setup, const struct forecast *forecast, const char *folder)
{
    struct memory_map map = memory_map_make(forecast);
    enum status status = memory_map_draw(setup, &map, folder);
    memory_map_free(&map);
    return status;
}

static void dump_print(const struct program *program)
{
    struct text text = {0};
    program_dump(program, &text);
    fputs(text.data, stdout);
    text_free(&text);
}

/* Only by opening a GPU is it known what it has free. */
static enum status check_auto(struct settings *settings)
{
    const struct setup setup = {.settings = settings};
    if (settings->train.batch > 0 || settings->memory.limit > 0 || setup_device_kind(&setup) == DEVICE_CPU)
        return OK;
    return fail(USAGE, "%s: train.batch: to plan for auto, give memory.limit a size",
                settings_where(settings, "train", "batch"));
}

static void warn_of_device(const struct setup *setup)
{
    if (setup_asks_cuda(setup) && setup_device_kind(setup) != DEVICE_CUDA)
        log_warning("run.device: this program was built without CUDA: planned for the CPU");
}

/* How the forecast is printed. */
enum output { OUTPUT_TEXT, OUTPUT_JSON, OUTPUT_DUMP };

static void forecast_print_as(enum output output, const struct setup *setup, const struct forecast *forecast)
{
    switch (output) {
    case OUTPUT_TEXT: forecast_print(setup, forecast); break;
    case OUTPUT_JSON: forecast_print_json(setup, forecast); break;
    case OUTPUT_DUMP: dump_print(&forecast->program); break;
    }
}

static enum status plan(struct cmd *cmd, unsigned what, enum output output)
{
    struct setup setup;
    struct forecast forecast;
    TRY(check_auto(&cmd->settings));
    TRY(cmd_setup(cmd, what, NULL, &setup));
    warn_of_device(&setup);
    enum status status = forecast_make(&setup, &forecast);
    if (status == OK) {
        forecast_print_as(output, &setup, &forecast);
        if (cmd->check) status = step_check_limit(&setup, &forecast.bytes);
        else if (cmd->output) status = draw(&setup, &forecast, cmd->output);
        forecast_free(&forecast);
    }
    setup_close(&setup);
    return status;
}

enum status cmd_check(struct cmd *cmd)
{
    return plan(cmd, DATA_TRAIN | DATA_VAL, OUTPUT_TEXT);
}

/* A lifetime table and its answer. */
struct table {
    struct span *spans;
    char **ids;
    int count;
    int64_t peak, bound;
    double seconds;
};

static void print_table_json(const struct table *table)
{
    struct text out = {0};
    text_add(&out, "{\"spans\":[");
    for (int i = 0; i < table->count; i++) {
        text_add(&out, "%s{\"id\":", i ? "," : "");
        text_json_string(&out, table->ids[i]);
        text_add(&out, ",\"offset\":%" PRId64 "}", table->spans[i].offset);
    }
    text_add(&out, "],\"peak\":%" PRId64 ",\"live_bytes_bound\":%" PRId64 ",\"seconds\":", table->peak,
             table->bound);
    text_json_number(&out, table->seconds);
    printf("%s}\n", out.data);
    text_free(&out);
}

static void print_table(const struct table *table)
{
    for (int i = 0; i < table->count; i++) printf("%s,%" PRId64 "\n", table->ids[i], table->spans[i].offset);
    printf("peak %" PRId64 "\nlive-bytes bound %" PRId64 "\nseconds %.3f\n", table->peak, table->bound,
           table->seconds);
}

static enum status pack(struct table *table, int64_t capacity)
{
    double start = clock_seconds();
    table->peak = pack_spans(table->spans, table->count, 1, capacity, SPANS_SECONDS);
    table->bound = pack_bound(table->spans, table->count, 1);
    table->seconds = clock_seconds() - start;
    struct reason reason;
    if (!check_spans(table->spans, table->count, 1, table->peak, &reason))
        return fail(FAILED, "plan: the placement is wrong: %s", reason.text);
    return OK;
}

static enum status parse_capacity(const struct cmd *cmd, int64_t *capacity)
{
    const char *text = cmd_value(cmd, "capacity");
    static const struct field field = {.name = "capacity", .type = FIELD_SIZE, .min = 1, .max = 1e18};
    struct reason reason;
    *capacity = 0;
    if (text && !field_parse(&field, capacity, text, &reason))
        return fail(USAGE, "plan: --capacity %s", reason.text);
    return OK;
}

static enum status plan_spans(const struct cmd *cmd, const char *path, bool json)
{
    struct table table = {0};
    int64_t capacity;
    TRY(parse_capacity(cmd, &capacity));
    TRY(pack_read_csv(path, &table.spans, &table.ids, &table.count));
    enum status status = pack(&table, capacity);
    if (status == OK) {
        if (json)
            print_table_json(&table);
        else
            print_table(&table);
    }
    if (status == OK && capacity > 0 && table.peak > capacity)
        status = fail(NO_DEVICE, "%s: needs %" PRId64 " bytes, more than the capacity of %" PRId64, path,
                      table.peak, capacity);
    for (int i = 0; i < table.count; i++) free(table.ids[i]);
    free(table.ids);
    free(table.spans);
    return status;
}

static enum status run(struct cmd *cmd)
{
    const char *spans = cmd_value(cmd, "spans");
    bool json = cmd_value(cmd, "json") != NULL, dump = cmd_value(cmd, "dump") != NULL;
    if (dump && (spans || json || cmd->output))
        return fail(USAGE, "plan: --dump goes with --config alone, not with --spans, --json or --output");
    if (spans && cmd->output) return fail(USAGE, "plan: --output goes with --config, not with --spans");
    if (spans) return plan_spans(cmd, spans, json);
    if (cmd_value(cmd, "capacity")) return fail(USAGE, "plan: --capacity goes with --spans");
    return plan(cmd, DATA_TRAIN | DATA_OPTIONAL, dump ? OUTPUT_DUMP : json ? OUTPUT_JSON : OUTPUT_TEXT);
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the forecast as JSON"},
    {"dump", NULL, "print the training step's program instead, an instruction a line (amptrain-ir(7))"},
    {"spans", "FILE.csv", "pack a table of lifetimes (id,lower,upper,size) instead"},
    {"capacity", "BYTES", "with --spans: the most that may be used"},
    {0},
};

const struct command cmd_plan = {
    .name = "plan",
    .usage = "-c FILE [--json] [-o DIR] | -c FILE --dump | --spans FILE.csv [--capacity BYTES] [--json]",
    .help = "Forecasts memory and time of a training step, in words and as a picture; touches no device.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = run,
};
