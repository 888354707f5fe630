#include "cmd/cmd.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signature.h"
#include "checkpoint/weights.h"
#include "cmd/launcher.h"
#include "session/session_open.h"

/* In the order of --help. */
#define COMMANDS(EACH)                                                                                 \
    EACH(train) EACH(eval) EACH(predict) EACH(embed) EACH(explain) EACH(pictures) EACH(plan)           \
    EACH(summary)                                                                                      \
    EACH(bench) EACH(pack) EACH(export) EACH(average) EACH(init) EACH(lr) EACH(sweep) EACH(report)     \
    EACH(compare) EACH(profile) EACH(ops) EACH(models) EACH(formats) EACH(devices)

#define DECLARE(name) extern const struct command cmd_##name;
#define ROW(name) &cmd_##name,

COMMANDS(DECLARE)
const struct command *const command_table[] = {COMMANDS(ROW) NULL};

const struct command *command_find(const char *name)
{
    for (int i = 0; command_table[i]; i++)
        if (strcmp(command_table[i]->name, name) == 0) return command_table[i];
    return NULL;
}

void cmd_free(struct cmd *cmd)
{
    free(cmd->sets);
    free(cmd->weights);
    free(cmd->recalled);
    text_list_free(cmd->expanded, (size_t)cmd->expanded_count);
    if (cmd->settings.origins) settings_free(&cmd->settings);
    *cmd = (struct cmd){0};
}

const char *cmd_value(const struct cmd *cmd, const char *option)
{
    const struct cmd_option *options = cmd->command->options;
    for (int i = 0; options && options[i].name; i++)
        if (strcmp(options[i].name, option) == 0) return cmd->values[i];
    return NULL;
}

struct cmd_spread cmd_spread(const double *values, int count)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < count; i++) sum += values[i];
    for (int i = 0; i < count; i++) squares += pow(values[i] - sum / count, 2);
    return (struct cmd_spread){sum / count, count > 1 ? sqrt(squares / (count - 1)) : NAN};
}

enum status cmd_number(const struct cmd *cmd, const char *option, long least, long otherwise, long *value)
{
    const char *text = cmd_value(cmd, option);
    char *end = NULL;
    long number = text ? strtol(text, &end, 10) : otherwise;
    if (text && (end == text || *end != '\0' || number < least || number > CMD_NUMBER_MAX))
        return fail(USAGE, "%s: --%s must be a whole number between %ld and %d, not '%s'", cmd->command->name,
                    option, least, CMD_NUMBER_MAX, text);
    *value = number;
    return OK;
}

enum status cmd_weights(struct cmd *cmd, const char **path)
{
    const char *named = cmd_value(cmd, "weights");
    if (!named)
        return fail(USAGE, "%s: --weights is missing; see `amptrain %s --help`", cmd->command->name,
                    cmd->command->name);
    if (!cmd->weights) TRY(weights_path(named, &cmd->weights));
    *path = cmd->weights;
    return OK;
}

void cmd_recall_config(struct cmd *cmd)
{
    char *path = cmd->output ? text_format("%s/config.ini", cmd->output) : NULL;
    if (path && access(path, F_OK) == 0) cmd->config = cmd->recalled = path;
    else free(path);
}

static enum status refuse_input(const char *path, const char *which)
{
    return fail(USAGE, "%s: is an input of this command (%s); write to another file", path, which);
}

static enum status check_folder(const char *folder, const char *named)
{
    if (access(folder, W_OK | X_OK) == 0) return OK;
    return fail(FAILED, "%s: cannot be written: %s", named, strerror(errno));
}

enum status cmd_check_folder(const char *path)
{
    return check_folder(path, path);
}

/* Files are written beside the name and renamed. */
static enum status check_parent(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *folder = !slash ? text_copy(".") : slash == path ? text_copy("/")
                                           : text_format("%.*s", (int)(slash - path), path);
    enum status status = check_folder(folder, path);
    free(folder);
    return status;
}

enum status cmd_check_output(const struct cmd *cmd, const char *path, const char *signature)
{
    const char *weights = cmd->weights;
    struct stat status;
    bool exists = stat(path, &status) == 0;
    if (exists && !S_ISREG(status.st_mode))
        return fail(USAGE, "%s: cannot be replaced: not a regular file", path);
    TRY(check_parent(path));
    if (!exists) return OK;
    if (cmd->config && file_same(cmd->config, path)) return refuse_input(path, "--config");
    if (weights && file_same(weights, path)) return refuse_input(path, "--weights");
    const struct option *option =
        cmd->settings.origins ? settings_find_file(&cmd->settings, cmd->config, path) : NULL;
    if (option) return refuse_input(path, option->field.name);
    if (!signature_matches(&directory_working, path, signature))
        return fail(USAGE, "%s: exists and is not a file as '%s' writes it; remove it, or write to another",
                    path, cmd->command->name);
    log_info("%s: exists and is overwritten", path);
    return OK;
}

enum status cmd_session(struct cmd *cmd, unsigned wanted, const struct data_hint *hint,
                        struct session *session)
{
    const struct data_options data = {.file = cmd->config, .wanted = wanted, .hint = hint};
    return session_open(&cmd->settings, &data, cmd->comm, session);
}

char *cmd_output(const struct cmd *cmd)
{
    if (cmd->output) return text_copy(cmd->output);
    const char *named = cmd->settings.run.output;
    return named && *named ? settings_path(&cmd->settings, cmd->config, named) : NULL;
}

static enum status launch_ranks(const struct cmd *cmd)
{
    const struct settings *settings = &cmd->settings;
    struct launcher_options options = {
        .ranks = (int)settings->parallel.gpus, .argv = cmd->argv, .timeout = settings->parallel.timeout,
    };
    if (strncmp(settings->run.device, "cuda:", 5) == 0)
        return settings_refuse(settings, "run", "device", "'%s' is one GPU; with parallel.gpus = %d, 'cuda' "
                               "gives each rank its own", settings->run.device, options.ranks);
    char *output = cmd_output(cmd), *log = output ? text_format("%s/log.txt", output) : NULL;
    options.log = log;
    enum status status = launcher_run(&options);
    free(log);
    free(output);
    return status;
}

/* The number of ranks that others started. */
static enum status take_count(struct cmd *cmd, const struct comm *comm)
{
    struct settings *settings = &cmd->settings;
    char count[16];
    if (!comm || settings->parallel.gpus == comm->count) return OK;
    if (settings_given(settings, "parallel", "gpus"))
        return settings_refuse(settings, "parallel", "gpus", "%d ranks were started", comm->count);
    snprintf(count, sizeof count, "%d", comm->count);
    return settings_take(settings, "parallel", "gpus", count, "ranks");
}

/* Ranks that are left share the micro-batches of all, so that results stay the same. */
static enum status take_fewer(struct cmd *cmd, int count, int absent)
{
    struct settings *settings = &cmd->settings;
    char gpus[16], accumulate[24];
    int64_t parts = settings->train.accumulate * (count + absent) / count;
    snprintf(gpus, sizeof gpus, "%d", count);
    snprintf(accumulate, sizeof accumulate, "%" PRId64, parts);
    TRY(settings_take(settings, "parallel", "gpus", gpus, "ranks"));
    return settings_take(settings, "train", "accumulate", accumulate, "ranks");
}

enum status cmd_ranks(struct cmd *cmd, enum status (*run)(struct cmd *cmd, struct comm *comm))
{
    struct comm *comm;
    int absent;
    const struct settings *settings = &cmd->settings;
    const struct tcp_ranks_options ranks = {
        .timeout = settings->parallel.timeout, .fewer = cmd->restarted,
        .parts = (int)settings->train.accumulate, .stages = (int)settings->parallel.stages,
    };
    TRY(launcher_join(&ranks, &comm, &absent));
    if (!comm && absent == 0 && settings->parallel.gpus > 1) return launch_ranks(cmd);
    cmd->comm = comm;
    enum status status = absent ? take_fewer(cmd, comm_count(comm), absent) : take_count(cmd, comm);
    if (status == OK) status = run(cmd, comm);
    if (comm) comm->failed = status != OK && status != STOPPED;
    comm_close(comm);
    return status;
}
