#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "checkpoint/weights.h"
#include "cmd/batch_statistics.h"
#include "cmd/cmd.h"
#include "cmd/export_safetensors.h"

static enum status average_find(const struct cmd *cmd, char **paths)
{
    for (int i = 0; i < cmd->argument_count; i++) {
        TRY(weights_path(cmd->arguments[i], &paths[i]));
        if (file_same(paths[i], cmd->output))
            return fail(USAGE, "average: %s: is an input of this command; write to another file",
                        cmd->output);
    }
    return OK;
}

static enum status average_files(struct cmd *cmd, char **paths, int count)
{
    struct export_values statistics = {0};
    TRY(average_find(cmd, paths));
    TRY(cmd_check_output(cmd, cmd->output, EXPORT_SAFETENSORS_SIGNATURE));
    if (cmd_value(cmd, "recompute-bn")) TRY(batch_statistics_make(cmd, paths, count, &statistics));
    enum status status = export_safetensors((const char *const *)paths, count, F32, NULL, cmd->output,
                                            &statistics);
    batch_statistics_free(&statistics);
    return status;
}

static enum status average_run(struct cmd *cmd)
{
    int count = cmd->argument_count;
    if (count == 0) return fail(USAGE, "average: no checkpoints given");
    if (!cmd->output) return fail(USAGE, "average: no output file; use -o FILE.safetensors");
    if ((cmd->config || cmd->set_count > 0) && !cmd_value(cmd, "recompute-bn"))
        return fail(USAGE, "average: a configuration is for --recompute-bn");
    char **paths = memory_new((size_t)count, sizeof *paths);
    enum status status = average_files(cmd, paths, count);
    for (int i = 0; i < count; i++) free(paths[i]);
    free(paths);
    return status;
}

static const struct cmd_option options[] = {
    {"recompute-bn", NULL, "batch norm statistics of the mean, over the training images"},
    {0},
};

const struct command cmd_average = {
    .name = "average",
    .usage = "RUN|FILE... [--recompute-bn] [-c FILE] [-s SECTION.KEY=VALUE]... -o FILE.safetensors",
    .help = "Averages the weights of several checkpoints.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT | TAKES_ARGUMENTS,
    .options = options,
    .run = average_run,
};
