/* gpu_preprocessing.h: on a device with its own memory, the last steps of preprocessing are done there:
 * loaders send bytes, or the indices of images that are cached on the device (kernels/images/images.h). */
#pragma once

#include "exec/exec.h"
#include "input/data.h"

/* True if a device does that: a GPU does, for images of up to GPU_CHANNELS_MAX channels; otherwise loaders
 * deliver numbers. */
bool gpu_preprocessing_can(enum device_kind kind, const struct data *data);

/* Device memory for one batch's bytes, known before allocation. */
int64_t gpu_preprocessing_bytes(const struct data *data, int batch);

struct gpu_preprocessing_options {
    struct device *device;
    const struct data *data;          /* must not move */
    enum dtype dtype;                 /* of the network's input */
    int batch;
    size_t kept_bytes;                /* of all images, which are copied to the device now; 0: none */
    uint8_t *decoded;                 /* memory of images that the device decodes; NULL: none */
};

/* NO_DEVICE when memory does not suffice. */
struct gpu_preprocessing;
enum status gpu_preprocessing_open(const struct gpu_preprocessing_options *options,
                                   struct gpu_preprocessing **gpu);
void gpu_preprocessing_close(struct gpu_preprocessing *gpu);          /* accepts NULL */
int64_t gpu_preprocessing_bytes_kept(const struct gpu_preprocessing *gpu);

/* For a loader of this data set; NULL: nothing is cached. `gpu` may be NULL. */
const struct kept_image *gpu_preprocessing_kept(const struct gpu_preprocessing *gpu,
                                                const struct dataset *dataset);

/* Converts a loader's batch to a step's input; `gpu` as given to the loader. */
struct exec_batch gpu_preprocessing_batch(struct gpu_preprocessing *gpu, const struct batch *batch);
