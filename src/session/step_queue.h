/* step_queue.h: steps that are queued on the device and not yet collected, with the batches that they use. */
#pragma once

#include "session/step.h"

struct queued_step {
    struct batch *batch;         /* the loader's, lent until the results were seen; NULL: the caller's own */
    struct update_rates rates;
    bool redundant;              /* exec_start_redundant */
};

struct step_queue {
    struct device *device;
    const struct step *step;
    struct loader *loader;       /* that batches go back to */
    struct queued_step steps[2]; /* the oldest first */
    int count;
};

/* Whether the device takes no more. */
bool step_queue_full(const struct step_queue *queue);

/* Queues a run over `input`, made of the step's batch, which goes back to the loader where that fails. */
enum status step_queue_start(struct step_queue *queue, const struct queued_step *step,
                             const struct exec_batch *input);

/* Waits for the oldest, which is then no longer queued; its batch is still to be returned. */
enum status step_queue_collect(struct step_queue *queue, struct queued_step *oldest);
void step_queue_return(const struct step_queue *queue, const struct queued_step *step);

/* Waits for all of them, whose results nobody wants, or for the device where it fails, and returns their
 * batches. Accepts a zeroed struct. */
void step_queue_drop(struct step_queue *queue);
