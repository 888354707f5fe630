#include <stdlib.h>

#include "base/memory.h"
#include "cmd.h"
#include "train/run.h"
#include "train/train.h"

/* -o as it stands; run.output from the configuration file's folder. */
static char *output_of(const struct cmd *cmd)
{
    if (cmd->output) return text_copy(cmd->output);
    const char *named = cmd->settings.run.output;
    return named && *named ? settings_path(&cmd->settings, cmd->config, named) : NULL;
}

static enum status run(struct cmd *cmd)
{
    struct session session;
    char *output = output_of(cmd);
    struct run_options options = {
        .output = output, .resume = cmd->resume, .resume_file = cmd->resume_file, .quiet = cmd->quiet,
        .config = cmd->config, .sets = cmd->sets, .set_count = cmd->set_count,
    };
    run_recall(&options, &cmd->settings);
    enum status status = cmd_session(cmd, DATA_TRAIN | DATA_VAL, NULL, &session);
    if (status == OK) status = train(&session, &options);
    free(output);
    session_close(&session);
    return status;
}

const struct command cmd_train = {
    .name = "train",
    .usage = "-c FILE [-s SECTION.KEY=VALUE]... [-o DIR] [-r[=FILE]]",
    .help = "Trains a network (the default command).",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_RESUME | TAKES_SIGNALS,
    .run = run,
};
