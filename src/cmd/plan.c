#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "alloc/check.h"
#include "alloc/pack.h"
#include "base/clock.h"
#include "base/directory.h"
#include "base/host.h"
#include "base/log.h"
#include "base/members.h"
#include "base/memory.h"
#include "base/watch.h"
#include "cmd/cmd.h"
#include "compile/ir/dump.h"
#include "compile/pass_text.h"
#include "compile/rewrite/rule.h"
#include "forecast/forecast_print.h"
#include "forecast/memory_map.h"
#include "input/data_summary.h"
#include "input/mask_summary.h"
#include "input/usable_classes.h"
#include "session/plausible.h"
#include "session/session_store.h"
#include "session/step_fit.h"
#include "session/tiles.h"
#include "train/folder.h"
#include "train/progress.h"

#define SPANS_SECONDS 50   /* time limit of packing a table */

static enum status draw_map(const struct session *session, const struct forecast *forecast, const char *name,
                            const struct directory *folder)
{
    struct memory_map map = memory_map_make(forecast);
    enum status status = memory_map_draw(session, &map, name, folder);
    if (status == OK) log_info("memory map written to %s/%s", folder->path, name);
    memory_map_free(&map);
    return status;
}

static enum status draw_stages(const struct session *session, const struct forecast *forecast,
                               const struct directory *folder)
{
    enum status status = OK;
    for (int s = 0; status == OK && s < forecast->cluster.stages; s++) {
        const struct forecast_stage *stage = &forecast->stages[s];
        const struct forecast one = {.compiled = stage->compiled, .bytes = stage->bytes};
        char *name = text_format("memory-stage%d.svg", s);
        status = draw_map(session, &one, name, folder);
        free(name);
    }
    return status;
}

static enum status draw(const struct session *session, const struct forecast *forecast, const char *path)
{
    struct directory folder;
    TRY(folder_make(path));
    TRY(directory_open(path, &folder));
    enum status status = folder_check_files(&folder, FOLDER_PLAN);
    if (status == OK) status = draw_map(session, forecast, MEMORY_MAP_FILE, &folder);
    if (forecast->cluster.stages > 1 && status == OK) status = draw_stages(session, forecast, &folder);
    directory_close(&folder);
    return status;
}

/* The free memory of a GPU is only known after opening it. */
static enum status check_auto(struct settings *settings)
{
    const struct session session = {.settings = settings};
    if (settings->train.batch > 0 || settings->memory.limit > 0) return OK;
    if (session_device_kind(&session) == DEVICE_CPU) return OK;
    return fail(USAGE, "%s: train.batch: planning for auto needs memory.limit=SIZE",
                settings_where(settings, "train", "batch"));
}

static void warn_of_device(const struct session *session)
{
    if (session_requests_cuda(session) && session_device_kind(session) != DEVICE_CUDA)
        log_warning("run.device: this program was built without CUDA; planning for the CPU");
}

static enum status plan_open(struct cmd *cmd, unsigned what, struct session *session)
{
    TRY(check_auto(&cmd->settings));
    TRY(cmd_session(cmd, what, NULL, session));
    warn_of_device(session);
    return OK;
}

#define LINK_EFFICIENCY 0.8    /* fraction of the network's bandwidth for gradients */

/* "8x400Gb": the number of links of a host, and gigabits per second of each. */
static enum status parse_link(const char *text, double *bytes_per_second)
{
    int count = 1, used = 0;
    double gigabits = 0;
    if (sscanf(text, "%dx%lfGb%n", &count, &gigabits, &used) != 2 || used == 0) {
        count = 1;
        if (sscanf(text, "%lfGb%n", &gigabits, &used) != 1) used = 0;
    }
    if (used == 0 || text[used] != '\0' || count < 1 || !(gigabits > 0 && gigabits < 1e6))
        return fail(USAGE, "plan: --link must be a rate such as 400Gb or 8x400Gb, not '%s'", text);
    *bytes_per_second = count * gigabits * 1e9 / 8 * LINK_EFFICIENCY;
    return OK;
}

static enum status parse_hosts(const struct cmd *cmd, struct forecast_options *options)
{
    long hosts;
    int64_t ranks = cmd->settings.parallel.gpus;
    const char *link = cmd_value(cmd, "link");
    TRY(cmd_number(cmd, "hosts", 1, 1, &hosts));
    if (hosts > ranks || ranks % hosts != 0)
        return fail(USAGE, "plan: --hosts %ld does not divide parallel.gpus = %" PRId64, hosts, ranks);
    if ((hosts > 1) != (link != NULL)) return fail(USAGE, "plan: --hosts and --link go together");
    options->hosts = (int)hosts;
    return link ? parse_link(link, &options->link_bytes_per_second) : OK;
}

static enum status plan_forecast(const struct cmd *cmd, const struct session *session,
                                 struct forecast *forecast)
{
    const char *path = cmd_value(cmd, "times");
    struct forecast_options options = {.hosts = 1, .compares = true};
    struct measured_times *times = NULL;
    TRY(parse_hosts(cmd, &options));
    if (path) TRY(measured_times_open(path, &times));
    options.times = times;
    enum status status = forecast_make(session, &options, forecast);
    measured_times_close(times);
    return status;
}

static void add_size(const struct session *session, int64_t bytes, struct text *out)
{
    char needed[TEXT_BYTES], room[TEXT_BYTES];
    size_t left = 0, total;
    int64_t limit = session_limit(session);
    if (limit == 0 && session_device_kind(session) == DEVICE_CPU) host_memory(&left, &total);
    int64_t most = limit > 0 ? limit : (int64_t)left;
    text_add(out, "memory      %s", text_bytes((uint64_t)bytes, needed));
    if (most > 0)
        text_add(out, " of the %s %s: %s", text_bytes((uint64_t)most, room),
                 limit > 0 ? "of memory.limit" : "that are available",
                 bytes <= most ? "it fits" : "it does not fit");
    text_add(out, "\n");
}

/* The answer that --check is asked for, before the plan. */
static void print_answer(const struct session *session, const struct forecast *forecast)
{
    const struct data *data = &session->data;
    const struct hyperparameters *hyper = &session->hyper;
    char time[PROGRESS_TIME];
    struct text out = {0};
    int64_t epochs = session->settings->train.epochs, steps = epochs * hyper->steps_per_epoch;
    text_add(&out, "network     %s, %" PRId64 " parameters, in %s\n", session->graphs.training.arch,
             graph_param_elements(&session->graphs.training), hyper->precision->name);
    text_add(&out, "images      %" PRId64 " of %d classes for training, %" PRId64 " for validation\n",
             data->train.count, data->classes, data->val.count);
    text_add(&out, "training    %" PRId64 " epoch%s, %" PRId64 " steps of %d images\n", epochs,
             epochs == 1 ? "" : "s", steps, hyper->batch);
    text_add(&out, "time        %s, estimated, without reading images and validation\n",
             progress_time(1e-3 * forecast->time.ms * (double)steps, time));
    add_size(session, forecast->bytes.total, &out);
    printf("%s\n", out.data);
    text_free(&out);
}

/* Training finds them by and by. */
static void warn_of_unusable(const struct data *data)
{
    struct watch *watch = watch_begin(WATCH_SECONDS, "reading an image of each class");
    usable_classes_try(data);
    watch_end(watch);
    char *missing = usable_classes_missing(data);
    if (missing) log_warning("classes without usable images: %s", missing);
    free(missing);
}

static enum status plan(struct cmd *cmd, unsigned what, bool json)
{
    struct session session;
    struct forecast forecast;
    TRY(plan_open(cmd, what, &session));
    enum status status = OK;
    if (cmd->check) {
        data_summary_log(session.settings, &session.data);
        warn_of_unusable(&session.data);
        plausible_warn(&session);
        status = mask_summary_log(&session.data);
        if (status == OK && !cmd->resume) status = session_store_weights(&session, NULL);
    } else {
        plausible_warn_of_statistics(&session);
    }
    if (status == OK && tiles_run(&session)) status = step_fit_tiles(&session, true);
    if (status == OK) status = plan_forecast(cmd, &session, &forecast);
    if (status == OK) {
        if (cmd->check) print_answer(&session, &forecast);
        if (json)
            forecast_print_json(&session, &forecast);
        else
            forecast_print(&session, &forecast, cmd->check && !cmd->verbose);
        if (cmd->check) {
            status = step_fit_check_bound(&session);
            if (status == OK) status = step_fit_check(&session, &forecast.bytes);
        } else if (cmd->output) {
            status = draw(&session, &forecast, cmd->output);
        }
        forecast_free(&forecast);
    }
    session_close(&session);
    return status;
}

enum status cmd_check(struct cmd *cmd)
{
    return plan(cmd, DATA_TRAIN | DATA_VAL, false);
}

/* A lifetime table and its packing. */
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
        text_add(&out, i ? ",{" : "{");
        member_string(&out, "id", table->ids[i]);
        text_add(&out, ",\"offset\":%" PRId64 "}", table->spans[i].offset);
    }
    text_add(&out, "]");
    member_integer(&out, "peak", table->peak);
    member_integer(&out, "live_bytes_bound", table->bound);
    member_number(&out, "seconds", table->seconds);
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
        return fail(FAILED, "plan: the placement is invalid: %s", reason.text);
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
    text_list_free(table.ids, (size_t)table.count);
    free(table.spans);
    return status;
}

#define EVERY_PASS "all"

static void dump_print(const struct program *program)
{
    struct text text = {0};
    program_dump(program, &text);
    fputs(text.data, stdout);
    text_free(&text);
}

/* The passes to print the program after. */
struct dumping {
    const char *pass;
    int printed;
};

static void dump_after(const char *pass, const struct program *program, void *context)
{
    struct dumping *dumping = context;
    if (strcmp(dumping->pass, EVERY_PASS) != 0 && strcmp(dumping->pass, pass) != 0) return;
    printf("%spass %s\n", dumping->printed++ ? "\n" : "", pass);
    dump_print(program);
}

static enum status dump_passes(const struct session *session, const char *pass)
{
    struct dumping dumping = {.pass = pass};
    struct compile_options options = step_options(session, STEP_TRAINING);
    struct program program;
    options.after = dump_after;
    options.context = &dumping;
    TRY(compile(step_graph(session, STEP_TRAINING), &options, &program));
    program_free(&program);
    if (dumping.printed == 0)
        return fail(USAGE, "plan: --dump: the pass %s does not run in this configuration", pass);
    return OK;
}

/* The final programs, including workspaces, by stage. */
static enum status dump_final(const struct session *session)
{
    struct compile_options options = step_options(session, STEP_TRAINING);
    for (int s = 0; s < session->hyper.stages; s++) {
        struct compiled compiled;
        options.cut.stage = s;
        TRY(compile_plan(step_graph(session, STEP_TRAINING), &options, &compiled));
        if (s > 0) printf("\n");
        dump_print(&compiled.program);
        compiled_free(&compiled);
    }
    return OK;
}

/* The names of all passes, and `other` or, where that is NULL, those of the rules. The caller frees the list,
 * but not the names. */
static const char **pass_names(const char *other, int *count)
{
    const char **names = NULL;
    int pass_count, rule_count;
    const struct pass *passes = passes_table(&pass_count);
    const struct rule *rules = rules_table(&rule_count);
    *count = 0;
    for (int i = 0; i < pass_count; i++) *array_push(names, *count) = passes[i].name;
    if (other) *array_push(names, *count) = other;
    for (int i = 0; !other && i < rule_count; i++)
        if (strcmp(rules[i].name, rules[i].pass) != 0) *array_push(names, *count) = rules[i].name;
    return names;
}

/* `pass`: a pass's name, or another word that the option knows. */
static enum status check_pass(const char *option, const char *pass, const char *other)
{
    int count;
    const char **names = pass_names(other, &count), *near = text_nearest(pass, names, count);
    struct text list = {0};
    bool known = false;
    for (int i = 0; i < count; i++) {
        known |= strcmp(pass, names[i]) == 0;
        text_add(&list, "%s%s", i > 0 ? ", " : "", names[i]);
    }
    if (!known)
        fail(USAGE, "plan: --%s: no such pass: %s%s%s%s (passes: %s)", option, pass,
             near ? "; did you mean " : "", near ? near : "", near ? "?" : "", list.data);
    free(names);
    text_free(&list);
    return known ? OK : USAGE;
}

static enum status plan_dump(struct cmd *cmd, const char *pass)
{
    struct session session;
    if (pass[0]) TRY(check_pass("dump", pass, EVERY_PASS));
    TRY(plan_open(cmd, DATA_TRAIN | DATA_OPTIONAL, &session));
    enum status status = pass[0] ? dump_passes(&session, pass) : dump_final(&session);
    session_close(&session);
    return status;
}

#define PROGRAM_BYTES_MAX (64 << 20)      /* of text */

/* One pass on a program in text. */
static enum status plan_program(const char *path, const char *pass)
{
    struct text out = {0};
    struct reason reason;
    char *text;
    size_t length;
    if (!pass) return fail(USAGE, "plan: --program needs --pass");
    TRY(check_pass("pass", pass, NULL));
    if (!directory_read(&directory_working, path, PROGRAM_BYTES_MAX, &text, &length, &reason))
        return fail(BAD_DATA, "%s: %s", path, reason.text);
    enum status status = pass_text(path, text, pass, NULL, &out);
    if (status == OK) fputs(out.data, stdout);
    text_free(&out);
    free(text);
    return status;
}

static enum status plan_run(struct cmd *cmd)
{
    const char *program = cmd_value(cmd, "program"), *pass = cmd_value(cmd, "pass");
    const char *spans = cmd_value(cmd, "spans"), *dump = cmd_value(cmd, "dump");
    bool json = cmd_value(cmd, "json") != NULL;
    if (dump && (spans || json || cmd->output))
        return fail(USAGE, "plan: --dump cannot be combined with --spans, --json or --output");
    if (program && (dump || spans || json || cmd->output))
        return fail(USAGE, "plan: --program cannot be combined with --dump, --spans, --json or --output");
    if (program) return plan_program(program, pass);
    if (pass) return fail(USAGE, "plan: --pass needs --program");
    if (dump) return plan_dump(cmd, dump);
    if (spans && cmd->output) return fail(USAGE, "plan: --output cannot be combined with --spans");
    if (spans) return plan_spans(cmd, spans, json);
    if (cmd_value(cmd, "capacity")) return fail(USAGE, "plan: --capacity needs --spans");
    return plan(cmd, DATA_TRAIN | DATA_OPTIONAL, json);
}

static const struct cmd_option options[] = {
    {"json", NULL, "print the forecast as JSON"},
    {"hosts", "N", "hosts that the GPUs of parallel.gpus are in"},
    {"link", "RATE", "with --hosts: the links of each, such as 8x400Gb"},
    {"times", "FILE", "times measured by 'bench --layers --json'"},
    {"dump", "[=PASS]", "print the program (after PASS; all: each pass)"},
    {"program", "FILE", "with --pass: read a program in text"},
    {"pass", "PASS", "with --program: print what this pass makes of it"},
    {"spans", "FILE.csv", "plan a table of buffers (id,lower,upper,size)"},
    {"capacity", "BYTES", "with --spans: fail if more is needed"},
    {0},
};

const struct command cmd_plan = {
    .name = "plan",
    .usage = "-c FILE [--json] [-o DIR] [--hosts N --link RATE] [--times FILE] | -c FILE --dump[=PASS] | "
             "--program FILE --pass PASS | --spans FILE.csv [--capacity BYTES] [--json]",
    .help = "Forecasts memory and time of a training step, without a device.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = plan_run,
};
