/* decoding.h: which JPEG files of the training images are decoded by the loader's workers and which by the
 * device's decoders (loader.decode): all by one of them, or a fixed share each, which is stored in
 * checkpoints. */
#pragma once

#include "device/device.h"
#include "input/data.h"

struct decoding_options {
    int decode, cache;                /* loader.decode and loader.cache, as conf/options.h numbers them */
    int64_t cache_limit;              /* loader.cache_limit */
    int64_t memory_limit;             /* limit of device memory for the run; 0: none */
    bool deterministic;
    enum device_kind kind;
    struct device *device;            /* NULL: not open */
    const struct data *data;
    int batch, prefetch;
};

/* Why loader.decode=gpu is not possible; NULL: it is, or was not requested. Logs why auto does not use it. */
const char *decoding_refusal(const struct decoding_options *options);

/* The device memory that it will allocate; 0: workers decode. The host does not cache images that the device
 * decodes. */
int64_t decoding_bytes(const struct decoding_options *options);

/* Open decoders, and their output memory. Opened after a run's choices were read from its checkpoint;
 * *decoding is NULL if workers decode. */
struct decoding;
enum status decoding_open(const struct decoding_options *options, struct decoding **decoding);
void decoding_close(struct decoding *decoding);            /* accepts NULL */
int64_t decoding_bytes_held(const struct decoding *decoding);         /* accepts NULL: 0 */
uint8_t *decoding_room(const struct decoding *decoding);              /* accepts NULL: NULL */

/* The device decodes that many of DECODING_PARTS images. */
#define DECODING_PARTS 16
void decoding_divide(struct decoding *decoding, int parts);

/* The parts chosen earlier on this device, and stored by its autotuner, for `facts`, or for the run if that
 * is NULL; -1: none. */
int decoding_chosen(struct device *device, const char *facts);
void decoding_choose(struct device *device, const char *facts, int parts);

/* For a loader of training images; accepts NULL. */
struct loader_decoder decoding_of(const struct decoding *decoding);
