/* loader.h: worker threads that make batches from a data set, in an order that does not depend on the
 * threads. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/decoder.h"
#include "base/dtype.h"
#include "base/status.h"
#include "base/time_spans.h"
#include "data/augment/augment.h"
#include "data/augment/mix.h"
#include "data/dataset/dataset.h"
#include "data/loader/batch_packing.h"
#include "data/loader/image_cache.h"
#include "data/loader/mask_targets.h"

/* The views of images in an evaluation: each batch is delivered once unchanged, and again for every other
 * view. */
struct loader_views {
    bool mirrored;
    int shift;                   /* pixels to the upper left, and to the lower right; 0: not shifted */
};

/* Numbers that batches have in the place of images. */
struct loader_features {
    int count;                   /* of an image */
    float *rows;                 /* [images][count] */
    int64_t *row;                /* [dataset->count] the row of each image; -1: it cannot be used */
    int32_t *labels;             /* [images] */
};

struct loader_options {
    struct dataset *dataset;     /* only its `held` member may change */
    struct image_cache *cache;   /* of the dataset's images; outlives the loader; NULL: none */
    struct image_cache *mask_cache;      /* likewise of its masks */
    const struct loader_features *features;   /* h * w * channels are their count; NULL: images are read */
    /* The images that this loader serves, by index in the dataset, in file order; NULL: all.
     * (val_fraction, data.limit.) The array must outlive the loader. */
    const int64_t *subset;
    int64_t count;               /* of subset, or of the dataset */
    struct augment augment;
    struct mix_settings mix;     /* of training batches */
    enum target_kind target;     /* of the network: batches have targets if it is no class, or masks */
    double target_mean, target_std;      /* of numbers */
    int classes;
    const double *class_weights; /* [classes], in training; NULL: all 1 */
    double label_smoothing;      /* of targets (data/loader/targets.h) */
    struct mask_targets masks;   /* with TARGET_MASK in training; outputs 0: there are no tables */
    int micro_batches;           /* of a batch: each is mixed separately; 0: one */
    struct loader_views views;   /* of an evaluation */
    bool alternate;              /* in training: each image is mirrored in every second epoch */
    bool training;               /* shuffled (if `shuffle`), augmented, last partial batch dropped */
    bool shuffle;
    bool balance;                /* with `shuffle`: classes take turns (sampler.h) */
    int repeats;                 /* in training: copies of an image in a batch (sampler.h); 0: one */
    int batch;                   /* images a batch, of all ranks together */
    int rank, ranks;             /* this loader's share of every batch is served (sampler.h);
                                  * ranks 0: all of it */
    int h, w, channels;          /* of the delivered images */
    enum dtype dtype;
    bool device_preprocessing;   /* the last steps are done on the device: batches are bytes, which its struct
                                  * describes */
    const struct kept_image *kept;   /* then: [dataset->count], the images cached on the device;
                                      * NULL: none */
    /* Decodes plain JPEG files instead of the workers, with device_preprocessing; decoder NULL: none. */
    struct loader_decoder {
        const struct decoder *decoder;
        double share;            /* of the images, drawn by (seed, epoch, index) */
        uint8_t *room;           /* device memory: SOURCE_DECODED begins here; loader_decoded_bytes of it */
        size_t batch_bytes;      /* each batch's part of it; workers decode what does not fit */
    } decoder;
    int workers, prefetch;       /* threads (>= 1), batches ahead (>= 1) */
    bool helps;                  /* loader_next makes images, too, rather than wait for those that do: nothing
                                  * that they are made of is waited for */
    uint64_t seed;
    double timeout;              /* loader_next fails after that many seconds without a batch; 0: never */
    int (*stop)(void);           /* asked while it waits: not 0 makes it return STOPPED at once;
                                  * may be NULL */
    bool stop_on_error;          /* data.on_error=stop: loader_next fails where the first bad image is */
    /* Where batch memory comes from (pinned); NULL functions: aligned host memory. */
    void *(*allocate)(void *context, size_t bytes);
    void (*release)(void *context, void *memory, size_t bytes);
    void *memory_context;
    /* Called whenever an image is unusable, from any thread, one call at a time; it must not call the loader.
     * May be NULL. */
    void (*bad_image)(void *context, int64_t index, const char *why);
    void *bad_context;
};

/* The preprocessing that a device does: batch->images holds [share] of struct image_record, of struct
 * variation if images may be varied, then SOURCE_SENT, whose beginning is that of the records. */
struct device_preprocessing {
    int count, h, w;             /* the share, and the output size */
    size_t bytes;                /* of batch->images that are in use */
    size_t shared;               /* the most image_record_shared_bytes of its images */
    bool varied;                 /* any of its images */
    bool mixed;
    struct mix mix;
};

/* An image that cannot be used, or whose mask cannot be read, is replaced in training by another, drawn from
 * (seed, epoch, index, attempt). In an evaluation it is not replaced: it is delivered as zeros with the label
 * -1, and must not be counted. A mask that is wrong ends the run (masks_read). */
struct batch {
    void *images;                /* [share, h, w, channels] of dtype: the batch, or this rank's share of it */
    const struct device_preprocessing *device_preprocessing;  /* NULL: none, the images are numbers */
    int32_t *labels;             /* [share]; -1: no image here */
    float *targets;              /* [share] rows (targets.h) if images are mixed or classes weighted, or
                                  * targets are no classes; otherwise NULL. Labels are then those of the
                                  * unmixed images, or 0 */
    uint8_t *masks;              /* [share, h, w] with TARGET_MASK, otherwise NULL: the class of each pixel,
                                  * or MASK_IGNORE, as where there is no image; in training tables follow
                                  * (mask_targets.h) */
    double *counts;              /* [count_numbers] images of each class in this share, or for each output
                                  * pixels of each class, if the loss is divided by those of the whole batch
                                  * (loader_weigh); otherwise NULL */
    int count_numbers;
    int count;                   /* less than the share only in the last one of an evaluation; the rest
                                  * is zeros, with labels -1 */
    int bad;                     /* unusable images in it, including replaced ones */
    int64_t first;               /* position in the epoch of the first image */
    int64_t epoch, number;       /* epoch as given to loader_start; batch within it, from 0 */
    int view, views;             /* which one of its images, and of how many */
    float weight;                /* of this view in the mean of all */
};

/* Targets: int32 labels, fp32 numbers of the classes, or masks and tables. */
static inline const void *batch_targets(const struct batch *batch)
{
    if (batch->masks) return batch->masks;
    return batch->targets ? (const void *)batch->targets : batch->labels;
}

struct loader;

/* Starts the worker threads, which wait for loader_start. Whatever the options point to must outlive the
 * loader. USAGE if the options do not fit the data set, BAD_DATA if it is empty, FAILED without threads or
 * memory. */
enum status loader_open(const struct loader_options *options, struct loader **loader);
/* Takes the images that its data set has now, and the place where bad ones are reported, from options that
 * are otherwise those that it was opened with. All batches were returned. False: it has fewer threads, or
 * batches ahead, than the options name. */
bool loader_renew(struct loader *loader, const struct loader_options *options);
/* May be called at any time. Threads that are stuck in a read are left until the process ends: the data set
 * is then marked as held, and it, its cache and the loader stay in memory. */
void loader_close(struct loader *loader);

/* Device memory for decoded images, for that many prefetched batches. */
size_t loader_decoded_bytes(int prefetch, size_t batch_bytes);

/* Batches of one epoch (training drops what is left over). */
int64_t loader_batches(const struct loader *loader);

/* Starts an epoch at batch `first` (a resumed run); prefetched batches are dropped, batches in use stay
 * valid. `epoch` names the random choices; evaluation ignores it. */
enum status loader_start(struct loader *loader, int64_t epoch, int64_t first);

/* The next batch in order; *batch is NULL at the end of the epoch. The batch stays valid until it is
 * returned. Several may be in use at once (at most prefetch), in any order. Time spent waiting is added to
 * *wait_seconds if it is not NULL. */
enum status loader_next(struct loader *loader, struct batch **batch, double *wait_seconds);
void loader_return(struct loader *loader, struct batch *batch);

/* Makes the targets of a batch in use anew, whose counts have become those of all ranks. */
void loader_weigh(const struct loader *loader, struct batch *batch);

/* Waits for at most `most` seconds; true if loader_next will not wait. */
bool loader_wait(struct loader *loader, double most);

/* From now on workers record their activities in the spans, by their numbers; NULL: no longer. */
void loader_observe(struct loader *loader, struct time_spans *spans);

/* The data set index of the image at a position of a batch in use. */
int64_t loader_image(const struct loader *loader, const struct batch *batch, int place);
