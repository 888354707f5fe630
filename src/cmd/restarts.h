/* restarts.h: runs a command in a process of its own, which is started again if it fails. */
#pragma once

#include "cmd/cmd.h"

/* Runs the program anew with the same arguments, and up to `count` times again, then with -r: after a failure
 * while running, of the device, or by a signal. Signals of signals_watch are passed on, and a run that is
 * asked to stop is not restarted. The last process's status; 128 + N: it was ended by signal N. */
enum status restarts_run(struct cmd *cmd, long count);

/* True in such a process, and in those that it starts: the command itself is to be run. On restarts the
 * newest checkpoint is resumed, whatever the arguments say, and cmd->restarted is set. */
bool restarts_take(struct cmd *cmd);
