#include "base/file.h"
#include "cmd.h"
#include "export_safetensors.h"

static enum status average_run(struct cmd *cmd)
{
    if (cmd->argument_count == 0) return fail(USAGE, "average: no checkpoints given");
    if (!cmd->output) return fail(USAGE, "average: no output file; use -o FILE.safetensors");
    for (int i = 0; i < cmd->argument_count; i++)
        if (file_same(cmd->arguments[i], cmd->output))
            return fail(USAGE, "average: %s: is an input of this command; write to another file",
                        cmd->output);
    TRY(cmd_check_output(cmd, cmd->output));
    return export_safetensors((const char *const *)cmd->arguments, cmd->argument_count, F32, cmd->output);
}

const struct command cmd_average = {
    .name = "average",
    .usage = "CHECKPOINT... -o FILE.safetensors",
    .help = "Averages the weights of several checkpoints.",
    .takes = TAKES_OUTPUT | TAKES_ARGUMENTS,
    .run = average_run,
};
