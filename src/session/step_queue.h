/* step_queue.h: steps that are queued on the device and not yet collected, with the batches that they use. */
#pragma once

#include "session/step.h"

struct queued_step {
    struct batch *batch;         /* the loader's, in use until the results were read; NULL: the caller's */
    struct update_rates rates;
    bool redundant;              /* exec_start_redundant */
};

struct step_queue {
    struct device *device;
    const struct step *step;
    struct loader *loader;       /* to which batches are returned */
    struct queued_step steps[2]; /* the oldest first */
    int count;
};

/* True if no more steps can be queued. */
bool step_queue_full(const struct step_queue *queue);

/* Queues a run over `input`, made from the step's batch, which is returned to the loader on failure. */
enum status step_queue_start(struct step_queue *queue, const struct queued_step *step,
                             const struct exec_batch *input);

/* Waits for the oldest and removes it; its batch is still to be returned. */
enum status step_queue_collect(struct step_queue *queue, struct queued_step *oldest);
void step_queue_return(const struct step_queue *queue, const struct queued_step *step);

/* Waits for all of them, discards their results, and returns their batches. Accepts a zeroed struct. */
void step_queue_drop(struct step_queue *queue);
