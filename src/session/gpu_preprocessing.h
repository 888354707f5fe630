/* gpu_preprocessing.h: on a device with memory of its own, the last steps of a batch's images are done there:
 * loaders send bytes, or say which of the images that lie there already are meant (kernels/images.h). */
#ifndef SESSION_GPU_PREPROCESSING_H
#define SESSION_GPU_PREPROCESSING_H

#include "exec/exec.h"
#include "session/setup.h"

/* Whether the device does that: a GPU does, for images of up to FINISH_CHANNELS_MAX channels; of others, and
 * on the CPU, loaders deliver the numbers. */
bool gpu_preprocessing_wanted(const struct setup *setup);

/* What it takes of the device's memory, known before any is taken: one batch's bytes, and the images that are
 * kept; 0: none is wanted. */
int64_t gpu_preprocessing_bytes(const struct setup *setup);

/* Gives the setup its gpu_preprocessing, if one is wanted; loaders opened from now on are for it. `keeps`:
 * images are looked at more than once, and lie on the device if loader.cache says so. NO_DEVICE when memory
 * does not suffice. */
enum status gpu_preprocessing_open(struct setup *setup, bool keeps);
void gpu_preprocessing_close(struct setup *setup); /* accepts one that has none */

/* What a loader of this data set is told; NULL: nothing is kept. */
const struct kept_image *gpu_preprocessing_kept(const struct setup *setup, const struct dataset *dataset);

/* What a step is given of a loader's batch. */
struct exec_batch gpu_preprocessing_batch(const struct setup *setup, const struct batch *batch);

#endif
