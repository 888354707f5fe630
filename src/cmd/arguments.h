/* arguments.h: the arguments of a command: their parsing, and the help about them. */
#pragma once

#include "cmd/cmd.h"

/* Parses argv, which begins with the command's name; USAGE, with a suggestion, if it is invalid. cmd_free
 * frees `cmd` in any case. */
enum status arguments_parse(const struct command *command, int argc, char **argv, struct cmd *cmd);

/* Prints the help of a command to stdout; `verbose`: with the keys of the configuration. */
void arguments_help(const struct command *command, bool verbose);
