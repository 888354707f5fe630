/* plausible.h: checks for settings that name something unknown, have no effect, or are implausible. */
#pragma once

#include "session/session.h"

/* Checks that the format, model, optimizer, schedule and precision exist; all that do not are reported, with
 * key and place, USAGE. */
enum status plausible_names(const struct settings *settings);

/* Warnings before training, about settings of the file and the command line. */
void plausible_warn(const struct session *session);

/* The part of it about batch norm that would have one value a channel. */
void plausible_warn_of_statistics(const struct session *session);
