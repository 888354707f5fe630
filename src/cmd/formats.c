#include <stdio.h>

#include "cmd/cmd.h"

static enum status formats_run(struct cmd *cmd)
{
    for (int i = 0; format_table[i]; i++) printf("%-12s %s\n", format_table[i]->name, format_table[i]->help);
    return OK;
}

const struct command cmd_formats = {
    .name = "formats",
    .usage = "",
    .help = "Lists the data formats.",
    .run = formats_run,
};
