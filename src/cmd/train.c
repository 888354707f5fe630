#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "cmd/cmd.h"
#include "cmd/launcher.h"
#include "cmd/restarts.h"
#include "report/memory_report.h"
#include "report/run_report.h"
#include "session/micro_batches.h"
#include "train/train.h"

static void write_memory(const struct run *run)
{
    run_report_map(run);
    memory_report(run);
}

/* Ranks other than the first one only print warnings, since all would print the same. */
static enum status train_rank(struct cmd *cmd, struct comm *comm)
{
    struct session session;
    char *output = cmd_output(cmd);
    if (comm_rank(comm) > 0) log_set_level(LOG_WARNING);
    struct run_options options = {
        .output = output, .resume = cmd->resume, .resume_file = cmd->resume_file,
        .quiet = cmd->quiet || comm_rank(comm) > 0,
        .terminal = comm ? launcher_terminal() : STDERR_FILENO,
        .config = cmd->config, .sets = cmd->sets, .set_count = cmd->set_count,
        .ending = write_memory,
        .ended = run_report_of,
    };
    run_recall(&options, &cmd->settings);
    enum status status = cmd_session(cmd, DATA_TRAIN | DATA_VAL, NULL, &session);
    if (status == OK) status = micro_batches_find(&session);
    if (status == OK) status = train(&session, &options);
    free(output);
    session_close(&session);
    return status;
}

static enum status train_run(struct cmd *cmd)
{
    long restarts;
    TRY(cmd_number(cmd, "restarts", 0, 0, &restarts));
    bool own = restarts_take(cmd) || restarts == 0;
    char *output = cmd_output(cmd);
    bool folder = output != NULL;
    free(output);
    if (!own && !folder) return fail(USAGE, "train: --restarts needs a run folder: -o DIR");
    return own ? cmd_ranks(cmd, train_rank) : restarts_run(cmd, restarts);
}

static const struct cmd_option options[] = {
    {"restarts", "N", "if the run fails, start it again from its last checkpoint, up to N times"},
    {0},
};

const struct command cmd_train = {
    .name = "train",
    .usage = "-c FILE [-s SECTION.KEY=VALUE]... [-o DIR] [-r[=FILE]] [--restarts N]",
    .help = "Trains a network (the default command).",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_RESUME | TAKES_SIGNALS,
    .options = options,
    .run = train_run,
};
