#include "session/step_queue.h"

#include "exec/exec_checks.h"

bool step_queue_full(const struct step_queue *queue)
{
    return queue->count >= exec_depth(queue->step->exec);
}

void step_queue_return(const struct step_queue *queue, const struct queued_step *step)
{
    if (step->batch) loader_return(queue->loader, step->batch);
}

enum status step_queue_start(struct step_queue *queue, const struct queued_step *step,
                             const struct exec_batch *input)
{
    struct exec *exec = queue->step->exec;
    enum status status = step->redundant ? exec_start_redundant(exec, input, &step->rates)
                                     : exec_start(exec, input, &step->rates);
    if (status == OK) queue->steps[queue->count++] = *step;
    else step_queue_return(queue, step);
    return status;
}

static struct queued_step step_queue_take(struct step_queue *queue)
{
    struct queued_step oldest = queue->steps[0];
    queue->steps[0] = queue->steps[1];
    queue->count--;
    return oldest;
}

enum status step_queue_collect(struct step_queue *queue, struct queued_step *oldest)
{
    TRY(exec_collect(queue->step->exec));
    *oldest = step_queue_take(queue);
    return OK;
}

void step_queue_drop(struct step_queue *queue)
{
    struct queued_step step;
    while (queue->count > 0 && step_queue_collect(queue, &step) == OK) step_queue_return(queue, &step);
    /* A failed device may still be reading its input. */
    if (queue->count > 0) queue->device->backend->synchronize(queue->device);
    while (queue->count > 0) {
        step = step_queue_take(queue);
        step_queue_return(queue, &step);
    }
}
