#include "session/largest.h"

#include "base/host.h"
#include "compile/fit_batch.h"
#include "session/step.h"

#define BATCH_MOST 1048576       /* train.batch's */
#define SPARE_SHARE 32           /* of a GPU's free memory, one part is left for libraries ... */
#define HOST_SHARE 2             /* ... and of the host's for all else that runs there */

/* The run, with another batch and limit, on a device that is not open. */
struct variant {
    struct setup setup;
    struct settings settings;
};

static struct compile_options variant_options(void *context, int batch, bool training)
{
    struct variant *variant = context;
    variant->setup.batch = batch;
    return step_options(&variant->setup, training ? STEP_TRAINING : STEP_EVALUATION);
}

static int most_images(const struct setup *setup)
{
    int most = BATCH_MOST / setup->micro_batches;
    if (setup->train.dataset && setup->train.count / setup->micro_batches < most)
        most = (int)(setup->train.count / setup->micro_batches);
    return most;
}

enum status largest_batch(const struct setup *setup, int64_t limit, int *batch)
{
    struct variant variant = {.setup = *setup, .settings = *setup->settings};
    variant.settings.memory.limit = limit;
    variant.setup.settings = &variant.settings;
    variant.setup.device = NULL;
    variant.setup.left = 0;
    const struct fit_batch_options options = {
        .graph = &setup->graph, .val_graph = &setup->val_graph, .of_batch = variant_options,
        .context = &variant, .limit = limit, .micro_batches = setup->micro_batches,
            .most = most_images(setup),
    };
    return fit_batch(&options, batch);
}

void largest_say(const struct setup *setup, int64_t limit, struct text *words)
{
    int batch;
    if (largest_batch(setup, limit, &batch) != OK) text_add(words, "a smaller train.batch needs less");
    else if (batch > 0) text_add(words, "the largest train.batch that fits is %d", batch);
    else text_add(words, "not even train.batch=%d fits", setup->micro_batches);
}

enum status largest_limit(struct setup *setup, int64_t *limit)
{
    size_t left, total;
    if (setup_device_kind(setup) == DEVICE_CPU) {
        host_memory(&left, &total);
        *limit = (int64_t)left / HOST_SHARE;
        return OK;
    }
    if (!setup->device) TRY(setup_device(setup));
    setup->device->backend->memory.info(setup->device, &left, &total);
    *limit = (int64_t)(left - left / SPARE_SHARE);
    return OK;
}
