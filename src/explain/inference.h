/* inference.h: runs an evaluation step over all batches of a loader, in order; while a device computes one,
 * the next is prepared. */
#pragma once

#include "data/loader/loader.h"
#include "session/step.h"

struct inference {
    const struct session *session;
    const struct step *step;         /* an evaluation */
    struct loader *loader;           /* of an evaluation, without views */
    /* Called with each batch and the outputs of its images, [count][outputs], which are valid until it
     * returns. */
    enum status (*take)(void *context, const struct batch *batch, const float *outputs);
    void *context;
};

/* Ends with the first failure of `take`, of the loader or of the device. */
enum status inference_run(const struct inference *inference);
