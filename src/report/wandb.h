/* wandb.h: writes a run as W&B's client does that is offline: `wandb sync DIR/offline-run-*`. */
#pragma once

#include "base/directory.h"

/* Adds DIR/offline-run-DATE_TIME-ID/run-ID.wandb, or replaces what an earlier call wrote of the same run:
 * metrics of steps and epochs as history, their last values as summary, the configuration and members of the
 * first record as configuration. Folders are created where there are none. BAD_DATA if there are no records,
 * FAILED if there is such a file and amptrain did not write it. */
enum status wandb_write(const struct directory *folder, const char *path);
