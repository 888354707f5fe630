/* plausible.h: checks for settings that name something unknown, have no effect, or are implausible. */
#pragma once

#include "session/session.h"

/* Whether there are the format, model, optimizer, schedule and precision that are named; all that are not are
 * reported, with key and place, USAGE. */
enum status plausible_names(const struct settings *settings);

/* Warnings, for whoever is about to train: of what was given, file and command line alike. */
void plausible_warn(const struct session *session);
