#include <stdlib.h>

#include "base/file.h"
#include "base/memory.h"
#include "cmd.h"
#include "export_safetensors.h"
#include "checkpoint/weights.h"

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

static enum status average_run(struct cmd *cmd)
{
    int count = cmd->argument_count;
    if (count == 0) return fail(USAGE, "average: no checkpoints given");
    if (!cmd->output) return fail(USAGE, "average: no output file; use -o FILE.safetensors");
    char **paths = memory_new((size_t)count, sizeof *paths);
    enum status status = average_find(cmd, paths);
    if (status == OK) status = cmd_check_output(cmd, cmd->output, EXPORT_SAFETENSORS_SIGNATURE);
    if (status == OK) status = export_safetensors((const char *const *)paths, count, F32, NULL, cmd->output);
    for (int i = 0; i < count; i++) free(paths[i]);
    free(paths);
    return status;
}

const struct command cmd_average = {
    .name = "average",
    .usage = "RUN|FILE... -o FILE.safetensors",
    .help = "Averages the weights of several checkpoints.",
    .takes = TAKES_OUTPUT | TAKES_ARGUMENTS,
    .run = average_run,
};
