#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/members.h"
#include "cmd/cmd.h"
#include "measure/libraries.h"
#include "measure/profile.h"
#include "session/session_open.h"
#include "train/folder.h"

#define STEPS 20
#define LISTED 40            /* number of rows printed; JSON has all */
#define BATCHES_MAX 16

/* Text. */

static const char *bound_of(const struct profile *profile, const struct profile_row *row)
{
    if (row->flops <= 0 && row->bytes <= 0) return "";
    return profile_computes(profile, row) ? "compute" : "memory";
}

static double share_of_peak(const struct profile *profile, const struct profile_row *row)
{
    return profile_least_ms(profile, row) / row->ms;
}

static double share_of_card(const struct profile *profile, const struct profile_row *row)
{
    return (double)(row->weight_bytes + row->activation_bytes + row->workspace_bytes) /
           (double)profile->card_bytes;
}

static bool has_stage(const struct profile *profile, int stage)
{
    return stage != STAGE_EXCHANGE || profile->ranks > 1;
}

static void print_stages(const struct profile *profile)
{
    printf("\n%-10s %12s %12s %9s\n", "stage", "alone, ms", "exposed, ms", "share");
    for (int i = 0; i < STAGES; i++)
        if (has_stage(profile, i))
            printf("%-10s %12.3f %12.3f %7.1f %%\n", profile_stage_name[i], profile->stages[i].alone,
                   profile->stages[i].exposed, 100 * profile->stages[i].exposed / profile->step_ms);
}

static void print_row(const struct profile *profile, const struct profile_row *row)
{
    char weights[TEXT_BYTES], activation[TEXT_BYTES], workspace[TEXT_BYTES], name[64];
    char intensity[TEXT_NUMBER] = "", rate[TEXT_NUMBER] = "";
    if (row->flops > 0) {
        snprintf(intensity, sizeof intensity, "%.1f", row->flops / row->bytes);
        snprintf(rate, sizeof rate, "%.3f", 1e-9 * row->flops / row->ms);
    }
    printf("%9.4f %9.4f %9s %8.1f %7.1f %9s %-8s %-28s %-15s %-14s %10s %10s %10s %8.2f  %.40s\n",
           row->ms, row->won_ms, rate, 1e-6 * row->bytes / row->ms, 100 * share_of_peak(profile, row),
           intensity, bound_of(profile, row), text_visible(row->name, name, sizeof name), row->phase, row->op,
           text_bytes((uint64_t)row->weight_bytes, weights),
           text_bytes((uint64_t)row->activation_bytes, activation),
           text_bytes((uint64_t)row->workspace_bytes, workspace), 100 * share_of_card(profile, row),
           row->algorithm);
}

static void print_profile(const struct profile *profile)
{
    char memory[TEXT_BYTES], card[TEXT_BYTES];
    printf("batch %d in %s on %s", profile->batch, profile->precision, profile->device);
    if (profile->ranks > 1) printf(", the first of %d ranks", profile->ranks);
    printf(": %.3f ms a step, %.1f images/s\n", profile->step_ms, 1e3 * profile->batch / profile->step_ms);
    const struct peaks *peaks = &profile->peaks;
    printf("measured peaks: %.3f TFLOP/s", peaks->tflops);
    if (peaks->tflops > profile->product_tflops)
        printf(" in a layer (%.3f in a large matrix product)", profile->product_tflops);
    printf(", %.1f GB/s; above %.1f operations a byte, compute-bound\n", peaks->gbps,
           1e3 * peaks->tflops / peaks->gbps);
    printf("memory: %s, %.1f %% of %s\n", text_bytes((uint64_t)profile->memory_bytes, memory),
           100 * (double)profile->memory_bytes / (double)profile->card_bytes,
           text_bytes((uint64_t)profile->card_bytes, card));
    print_stages(profile);
    printf("\n%9s %9s %9s %8s %7s %9s %-8s %-28s %-15s %-14s %10s %10s %10s %8s  %s\n", "ms", "gain",
           "TFLOP/s", "GB/s", "% peak", "op/byte", "bound", "layer", "phase", "op", "weights", "activation",
           "workspace", "% memory", "algorithm");
    for (int i = 0; i < profile->count && i < LISTED; i++) print_row(profile, &profile->rows[i]);
    if (profile->count > LISTED) printf("... %d more; --json has all\n", profile->count - LISTED);
}

/* JSON. */

static void add_row(const struct profile *profile, const struct profile_row *row, struct text *out)
{
    text_add(out, "{");
    member_string(out, "name", row->name);
    member_string(out, "op", row->op);
    member_string(out, "phase", row->phase);
    member_number(out, "ms", row->ms);
    member_number(out, "won_ms", row->won_ms);
    member_number(out, "flops", row->flops);
    member_number(out, "bytes", row->bytes);
    member_number(out, "tflops", 1e-9 * row->flops / row->ms);
    member_number(out, "gbps", 1e-6 * row->bytes / row->ms);
    member_number(out, "share_of_peak", share_of_peak(profile, row));
    member_number(out, "intensity", row->bytes > 0 ? row->flops / row->bytes : NAN);
    member_string(out, "bound", bound_of(profile, row));
    member_string(out, "algorithm", row->algorithm);
    member_number(out, "share_of_card", share_of_card(profile, row));
    member_integer(out, "weight_bytes", row->weight_bytes);
    member_integer(out, "activation_bytes", row->activation_bytes);
    member_integer(out, "workspace_bytes", row->workspace_bytes);
    text_add(out, "}");
}

static void add_profile(const struct profile *profile, struct text *out)
{
    text_add(out, "{");
    member_number(out, "step_ms", profile->step_ms);
    member_number(out, "batch", profile->batch);
    member_number(out, "ranks", profile->ranks);
    member_string(out, "precision", profile->precision);
    member_string(out, "device", profile->device);
    member_number(out, "memory_bytes", (double)profile->memory_bytes);
    member_number(out, "card_bytes", (double)profile->card_bytes);
    member_number(out, "serial_ms", profile->serial_ms);
    text_add(out, ",\"peaks\":{\"tflops\":%.9g,\"gbps\":%.9g,\"product_tflops\":%.9g},\"stages\":[",
             profile->peaks.tflops, profile->peaks.gbps, profile->product_tflops);
    for (int i = 0; i < STAGES; i++)
        if (has_stage(profile, i))
            text_add(out, "%s{\"name\":\"%s\",\"alone_ms\":%.9g,\"exposed_ms\":%.9g,\"share\":%.9g}",
                     i ? "," : "", profile_stage_name[i], profile->stages[i].alone,
                     profile->stages[i].exposed, profile->stages[i].exposed / profile->step_ms);
    text_add(out, "],\"layers\":[");
    for (int i = 0; i < profile->count; i++) {
        text_add(out, i ? ",\n" : "");
        add_row(profile, &profile->rows[i], out);
    }
    text_add(out, "]}");
}

/* The command. */

/* Comma-separated numbers; none: the configuration's batch. */
static enum status parse_batches(const struct cmd *cmd, long batches[BATCHES_MAX], int *count)
{
    const char *list = cmd_value(cmd, "batch");
    for (char *end; list; list = *end == ',' ? end + 1 : NULL) {
        long batch = strtol(list, &end, 10);
        if (end == list || (*end != ',' && *end != '\0') || batch < 1 || *count == BATCHES_MAX)
            return fail(USAGE, "profile: --batch must be at most %d whole numbers above 0 with commas "
                        "between, not '%s'", BATCHES_MAX, cmd_value(cmd, "batch"));
        batches[(*count)++] = batch;
    }
    return OK;
}

/* Writes profile.json, which the report shows, and the timeline, of the first batch, into a folder. */
static enum status write_files(const char *path, const struct profile *profile)
{
    struct directory folder;
    struct text json = {0}, timeline = {0};
    TRY(directory_open(path, &folder));
    add_profile(profile, &json);
    text_add(&timeline, "{\"traceEvents\":[\n%s\n]}\n", profile->trace.data);
    enum status status = atomic_file_write(&folder, "profile.json", json.data, json.length);
    if (status == OK)
        status = atomic_file_write(&folder, "profile.trace.json", timeline.data, timeline.length);
    if (status == OK) log_info("%s/profile.json and profile.trace.json written", path);
    text_free(&json);
    text_free(&timeline);
    directory_close(&folder);
    return status;
}

/* Only the first rank prints. */
static enum status show(const struct cmd *cmd, bool first, const struct profile *profile, struct text *json)
{
    if (comm_rank(cmd->comm) > 0) return OK;
    if (cmd_value(cmd, "json")) {
        text_add(json, first ? "" : ",\n");
        add_profile(profile, json);
    } else {
        printf(first ? "" : "\n\n");
        print_profile(profile);
    }
    return first && cmd->output ? write_files(cmd->output, profile) : OK;
}

static enum status profile_batch(struct cmd *cmd, bool first, struct text *json)
{
    struct bench bench = {.steps = STEPS, .still = true};
    struct profile profile = {0};
    bool real = cmd->settings.data.format != NULL;
    enum status status = cmd_session(cmd, bench_data(real), NULL, &bench.session);
    if (status == OK) status = bench_open(real, &bench);
    if (status == OK) status = profile_make(&bench, &profile);
    if (status == OK) status = show(cmd, first, &profile, json);
    profile_free(&profile);
    bench_close(&bench);
    return status;
}

/* Times the layers alone, without memory for a whole step. */
static enum status compare_libraries(struct cmd *cmd, bool first, struct text *json)
{
    struct session session = {0};
    struct libraries libraries = {0};
    TRY(cmd_session(cmd, DATA_TRAIN | DATA_OPTIONAL, NULL, &session));
    enum status status = session_open_device(&session);
    if (status == OK) status = libraries_measure(&session, session.hyper.batch, &libraries);
    if (status == OK && cmd_value(cmd, "json")) {
        text_add(json, first ? "" : ",\n");
        libraries_json(&libraries, json);
    } else if (status == OK) {
        printf(first ? "" : "\n\n");
        libraries_print(&libraries);
    }
    libraries_free(&libraries);
    session_close(&session);
    return status;
}

static enum status each_batch(struct cmd *cmd, enum status (*one)(struct cmd *, bool, struct text *))
{
    long batches[BATCHES_MAX];
    int count = 0;
    struct text json = {0};
    TRY(parse_batches(cmd, batches, &count));
    enum status status = count == 0 ? one(cmd, true, &json) : OK;
    for (int i = 0; i < count && status == OK; i++) {
        char number[24];
        snprintf(number, sizeof number, "%ld", batches[i]);
        status = settings_take(&cmd->settings, "train", "batch", number, "profile: --batch");
        if (status == OK) status = one(cmd, i == 0, &json);
    }
    if (status == OK && json.data) printf(count > 1 ? "[%s]\n" : "%s\n", json.data);
    text_free(&json);
    return status;
}

static enum status profile_rank(struct cmd *cmd, struct comm *comm)
{
    (void)comm;
    return each_batch(cmd, profile_batch);
}

static enum status profile_run(struct cmd *cmd)
{
    long batches[BATCHES_MAX];
    int count = 0;
    TRY(parse_batches(cmd, batches, &count));
    if (cmd_value(cmd, "libraries")) {
        if (cmd->output)
            return fail(USAGE, "profile: --libraries writes no files: omit -o and use --json");
        session_any_batch(&cmd->settings);
        return each_batch(cmd, compare_libraries);
    }
    if (cmd->output) {
        TRY(folder_prepare(cmd->output, FOLDER_PROFILE));
        TRY(cmd_check_folder(cmd->output));
    }
    return cmd_ranks(cmd, profile_rank);
}

static const struct cmd_option options[] = {
    {"batch", "LIST", "batches to profile, such as 16,64,256"},
    {"libraries", NULL, "instead, compare the libraries' convolutions by layer"},
    {"json", NULL, "print the profile as JSON"},
    {0},
};

const struct command cmd_profile = {
    .name = "profile",
    .usage = "-c FILE [--batch LIST] [--libraries] [--json] [-o DIR]",
    .help = "Shows where a training step spends its time, by stage and layer.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = profile_run,
};
