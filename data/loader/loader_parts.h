/* loader_parts.h: declarations shared by loader*.c; others include loader.h. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/random.h"
#include "data/loader/deferred_jpeg.h"
#include "data/loader/loader.h"
#include "data/loader/sampler.h"
#include "data/loader/stall.h"
#include "data/loader/targets.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_DECODING, SLOT_MIXING, SLOT_READY, SLOT_OUT };

struct slot {
    struct batch batch;        /* first: what loader_return is given */
    enum slot_state state;
    int left;                  /* images not yet filled; then pieces not yet decoded or mixed */
    int pieces;                /* of the current stage */
    int handed;                /* pieces given to workers */
    struct deferred_jpeg *deferred;    /* files that a device decodes; NULL: it decodes none */
    size_t room;               /* offset of their pixels in SOURCE_DECODED */
    struct device_preprocessing device_preprocessing;
    struct batch_packing packing; /* of images that the device finishes */
    int bad_place;             /* place of the first image that stops the run; INT32_MAX: none */
    struct reason why;
};

struct loader {
    struct loader_options options;
    struct augment_table table;
    size_t image_bytes, batch_bytes, targets_bytes, masks_bytes;   /* masks_bytes 0: there are none */
    bool mixes, makes_targets;
    bool counts;               /* targets depend on all labels of the batch */
    struct target_options targets;
    struct mask_targets mask_targets;
    int together;              /* images of a micro-batch */
    int pieces;                /* into which mixing is divided */
    struct share share;        /* this rank's part of each batch */
    struct by_class by_class;  /* the images by class, to balance them */
    int chunk;
    int64_t batches, limit;    /* in an epoch; images in it */
    int slot_count;
    struct slot *slots;
    struct worker *workers;
    int worker_count;          /* workers that run */

    pthread_mutex_t lock;      /* protects all that follows and the slots' states */
    pthread_cond_t work;       /* wakes workers: a slot is free, an epoch began or ended */
    pthread_cond_t done;       /* wakes the caller: a batch is ready, or a worker finished */
    struct time_spans *spans;       /* activities of the workers; NULL: not recorded */
    bool closing;
    bool no_memory;            /* a guest's worker has ended for want of memory */
    int busy;                  /* workers that process a chunk */
    int decoding;              /* ... by decoding on a device */
    int64_t epoch;
    int64_t filling;           /* number of the batch whose images are being handed out */
    struct slot *fill;         /* its slot; NULL: none was free yet */
    int handed;                /* images of it given to workers */
    int64_t next;              /* the batch that loader_next will deliver */

    atomic_bool reduced;       /* it was said that a deep image is reduced */
    atomic_bool drop;          /* workers stop: the batches in progress are not wanted any more */
};

/* True if images may be varied. */
static inline bool loader_varies(const struct loader_options *options)
{
    return options->training && augment_is_varied(&options->augment);
}

/* Consecutive images of a batch that is being filled, or pieces of one that is being decoded or mixed. */
struct chunk {
    struct slot *slot;
    int first, count;
};

/* A worker thread, and the memory that it reuses for each image. */
struct worker {
    struct loader *loader;
    pthread_t thread;
    struct image image[2], mask[2];    /* the buffers of image_cache_read */
    struct image reduced;      /* a deep image, in bytes for the device */
    bool wrong;                /* the data set is wrong where the last image is, which ends the run */
    struct scratch scratch;
    atomic_llong reading;      /* the image of the data set that it is reading; -1: none */
    _Atomic double since;      /* the time at which it began to read */
};

/* One image (loader_sample.c) */

/* The destination of an image. */
struct target {
    struct slot *slot;
    int place;
    bool here;                 /* this worker decodes it, not a device */
};

/* Reads and augments the image that belongs there, or its replacement. */
void sample_fill(struct worker *worker, struct target target);

/* The number of views in which each image is evaluated. */
int views_count(const struct loader_views *views);

/* Sets the view of a batch, by the batch's number. */
void view_choose(const struct loader_views *views, int64_t number, struct batch *batch);

/* Fills the place with zeros, without a label. */
void sample_none(const struct loader *loader, struct target target);

/* The batches being made (loader_batch.c) */

/* Allocates the slots. FAILED without memory. */
enum status slots_make(struct loader *loader);
void slots_free(struct loader *loader);         /* also after a failure of slots_make */

/* The next chunk to process; false: none now. Called with the lock held, like `chunk_end`. */
bool chunk_next(struct loader *loader, struct chunk *chunk);
void chunk_end(struct loader *loader, struct chunk chunk);

/* Processes the chunk. Called without the lock. */
void chunk_do(struct worker *worker, struct chunk chunk);

/* Waiting for workers, who may themselves wait for a file system that no longer answers (loader_watch.c) */

/* Between these two, others can tell which image this worker waits for. */
void reading_begin(struct worker *worker, int64_t index);
void reading_end(struct worker *worker);

/* Waits for at most a second, with the lock held. OK: the caller checks its own condition, and may go on
 * waiting. */
enum status workers_wait(struct loader *loader, struct stall *stall);
