/* session_open.h: opens a session from settings. */
#pragma once

#include "session/session.h"

/* Opens data, builds the network and resolves all settings; uses no device, unless train.batch depends on the
 * free memory of a GPU. Defaults that follow from other keys are noted in `settings` (settings_derive), which
 * must outlive the session, as must `data->file` and `comm`: with several ranks, all call it, and
 * train.batch=auto is what fits on each. The struct must stay where it is. Refused with key and place, USAGE
 * or BAD_DATA. */
enum status session_open(struct settings *settings, const struct data_options *data,
                         struct comm *comm, struct session *session);

/* Settles what only training needs: train.batch=auto and parallel.gpus become numbers that do not matter,
 * the latter 1. */
void session_any_batch(struct settings *settings);
