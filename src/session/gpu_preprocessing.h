/* gpu_preprocessing.h: on a device with its own memory, the last steps of preprocessing are done there:
 * loaders send bytes, or the indices of images that are cached on the device (kernels/images.h). */
#pragma once

#include "exec/exec.h"
#include "session/data.h"

/* Whether a device does that: a GPU does, for images of up to GPU_CHANNELS_MAX channels; of others, and
 * on the CPU, loaders deliver the numbers. */
bool gpu_preprocessing_can(enum device_kind kind, int channels);

/* Device memory for one batch's bytes, known before any is taken. */
int64_t gpu_preprocessing_bytes(const struct data *data, int batch);

struct gpu_preprocessing_options {
    struct device *device;
    const struct data *data;          /* which stays where it is */
    enum dtype dtype;                 /* of the numbers that networks read */
    int batch;
    size_t kept_bytes;                /* of all images, which are brought to the device now; 0: none are */
    uint8_t *decoded;                 /* where those that the device decodes lie; NULL: it decodes none */
};

/* NO_DEVICE when memory does not suffice. */
struct gpu_preprocessing;
enum status gpu_preprocessing_open(const struct gpu_preprocessing_options *options,
                                   struct gpu_preprocessing **gpu);
void gpu_preprocessing_close(struct gpu_preprocessing *gpu);          /* accepts NULL */
int64_t gpu_preprocessing_bytes_kept(const struct gpu_preprocessing *gpu);

/* For a loader of this data set; NULL: nothing is kept. `gpu` may be NULL. */
const struct kept_image *gpu_preprocessing_kept(const struct gpu_preprocessing *gpu,
                                                const struct dataset *dataset);

/* A loader's batch as a step is given it; `gpu` as the loader had it. */
struct exec_batch gpu_preprocessing_batch(struct gpu_preprocessing *gpu, const struct batch *batch);
