#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "cmd.h"
#include "launcher.h"
#include "base/log.h"
#include "train/run.h"
#include "train/train.h"

/* -o as it stands; run.output from the configuration file's folder. */
static char *output_of(const struct cmd *cmd)
{
    if (cmd->output) return text_copy(cmd->output);
    const char *named = cmd->settings.run.output;
    return named && *named ? settings_path(&cmd->settings, cmd->config, named) : NULL;
}

/* Ranks other than the first one only warn: all of them would say the same. */
static enum status train_rank(struct cmd *cmd, struct comm *comm)
{
    struct session session;
    char *output = output_of(cmd);
    if (comm_rank(comm) > 0) log_set_level(LOG_WARNING);
    struct run_options options = {
        .output = output, .resume = cmd->resume, .resume_file = cmd->resume_file,
        .quiet = cmd->quiet || comm_rank(comm) > 0,
        .terminal = comm ? launcher_terminal() : STDERR_FILENO,
        .config = cmd->config, .sets = cmd->sets, .set_count = cmd->set_count,
    };
    run_recall(&options, &cmd->settings);
    enum status status = cmd_session(cmd, DATA_TRAIN | DATA_VAL, NULL, &session);
    session.comm = comm;
    if (status == OK) status = train(&session, &options);
    free(output);
    session_close(&session);
    return status;
}

static enum status launch_ranks(const struct cmd *cmd)
{
    const struct launcher_options options = {
        .ranks = (int)cmd->settings.parallel.gpus, .words = cmd->words,
        .timeout = cmd->settings.parallel.timeout,
    };
    if (strcmp(cmd->settings.run.device, "cpu") != 0)
        return settings_refuse(&cmd->settings, "parallel", "gpus", "more than one is not implemented yet; "
                               "run.device=cpu trains on as many processes");
    return launcher_run(&options);
}

static enum status run(struct cmd *cmd)
{
    struct comm *comm;
    TRY(launcher_join(&comm));
    if (!comm && cmd->settings.parallel.gpus > 1) return launch_ranks(cmd);
    enum status status = train_rank(cmd, comm);
    comm_close(comm);
    return status;
}

const struct command cmd_train = {
    .name = "train",
    .usage = "-c FILE [-s SECTION.KEY=VALUE]... [-o DIR] [-r[=FILE]]",
    .help = "Trains a network (the default command).",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_RESUME | TAKES_SIGNALS,
    .run = run,
};
