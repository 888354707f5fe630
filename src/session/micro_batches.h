/* micro_batches.h: parallel.microbatches=auto: the number of micro-batches that a device computes
 * concurrently. */
#pragma once

#include "session/session.h"

/* auto becomes the fastest of 1, 2 and 4 that divide the batch and fit into memory (and its limit): steps on
 * synthetic images are timed, and the choice is stored by the device's autotuner, if it has one. Timing must
 * not affect results on the CPU, where more of them are not faster, or with run.deterministic: there it is
 * the least that fits. A number is unchanged. The session is as session_open leaves it; its device is
 * opened. */
enum status micro_batches_find(struct session *session);
