#include <stdio.h>

#include "cmd/cmd.h"
#include "kernels/op.h"

static enum status ops_run(struct cmd *cmd)
{
    for (int i = 0; op_table[i]; i++)
        if (!op_table[i]->internal) printf("%-18s %s\n", op_table[i]->name, op_table[i]->help);
    return OK;
}

const struct command cmd_ops = {
    .name = "ops",
    .usage = "",
    .help = "Lists the ops that model files can use.",
    .run = ops_run,
};
