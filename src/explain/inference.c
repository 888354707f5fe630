#include "explain/inference.h"

#include "input/gpu_preprocessing.h"
#include "session/step_queue.h"

static enum status launch_batch(const struct inference *inference, struct step_queue *queue, bool *more)
{
    struct queued_step next = {0};
    TRY(loader_next(inference->loader, &next.batch, NULL));
    *more = next.batch != NULL;
    if (!next.batch) return OK;
    struct gpu_preprocessing *gpu = inference->session->gpu_preprocessing;
    const struct exec_batch input = gpu_preprocessing_batch(gpu, next.batch);
    return step_queue_start(queue, &next, &input);
}

static enum status collect_batch(const struct inference *inference, struct step_queue *queue)
{
    struct queued_step made;
    TRY(step_queue_collect(queue, &made));
    const float *outputs = exec_logits(inference->step->exec);
    enum status status = inference->take(inference->context, made.batch, outputs);
    step_queue_return(queue, &made);
    return status;
}

static enum status run_all(const struct inference *inference, struct step_queue *queue)
{
    bool more = true;
    TRY(loader_start(inference->loader, 0, 0));
    while (more || queue->count > 0) {
        while (more && !step_queue_full(queue)) TRY(launch_batch(inference, queue, &more));
        if (queue->count > 0) TRY(collect_batch(inference, queue));
    }
    return OK;
}

enum status inference_run(const struct inference *inference)
{
    struct step_queue queue = {.device = inference->session->device, .step = inference->step,
                               .loader = inference->loader};
    enum status status = run_all(inference, &queue);
    step_queue_drop(&queue);
    return status;
}
