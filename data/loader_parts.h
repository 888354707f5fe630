/* loader_parts.h: declarations shared by loader*.c; others include loader.h. */
#pragma once

#include <pthread.h>
#include <stdatomic.h>

#include "base/random.h"
#include "data/deferred_jpeg.h"
#include "data/loader.h"
#include "data/sampler.h"
#include "data/targets.h"

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_DECODING, SLOT_MIXING, SLOT_READY, SLOT_OUT };

struct slot {
    struct batch batch;        /* first: what loader_return is given */
    enum slot_state state;
    int left;                  /* images that are not there yet; then pieces that are not decoded, or mixed */
    int pieces;                /* of the stage, */
    int handed;                /* of which so many were handed out */
    struct deferred_jpeg *deferred;    /* files that a device decodes; NULL: it decodes none */
    size_t room;               /* where their pixels begin in SOURCE_DECODED */
    struct batch_rest rest;
    struct batch_packing packing; /* where something is left to do to images */
    int bad_place;             /* of the first image that stops the run; INT32_MAX: none */
    struct reason why;
};

struct loader {
    struct loader_options options;
    struct augment_table table;
    size_t image_bytes, batch_bytes, targets_bytes;
    bool mixes, makes_targets;
    struct target_options targets;
    int together;              /* images of a micro-batch */
    int pieces;                /* that mixing is divided into */
    struct share share;        /* of each batch, that is this rank's */
    struct by_class by_class;  /* of the images, to balance them */
    int chunk;
    int64_t batches, limit;    /* in an epoch; images in it */
    int slot_count;
    struct slot *slots;
    struct worker *workers;
    int worker_count;          /* that run */

    pthread_mutex_t lock;      /* over all that follows and the slots' states */
    pthread_cond_t work;       /* for workers: a slot is free, an epoch began, or it is over */
    pthread_cond_t done;       /* for the caller: a batch is ready, or a worker let go */
    struct time_spans *spans;       /* what workers do; NULL: nobody asks */
    bool closing;
    int busy;                  /* workers with a chunk in hand */
    int decoding;              /* ... that have a device decode it */
    int64_t epoch;
    int64_t filling;           /* the batch that images are handed out from */
    struct slot *fill;         /* its slot; NULL: none was free yet */
    int handed;                /* images of it that were handed out */
    int64_t next;              /* the batch that loader_next will deliver */

    atomic_bool drop;          /* workers: leave what you have, nobody wants it */
};

/* A run of images of one batch that is being filled; or of pieces of one that is being decoded or mixed. */
struct chunk {
    struct slot *slot;
    int first, count;
};

/* Memory that a worker keeps from image to image. */
struct worker {
    struct loader *loader;
    pthread_t thread;
    struct image image[2];     /* as image_cache_read has them */
    struct scratch scratch;
    atomic_llong reading;      /* the image of the data set that it is reading; -1: none */
    _Atomic double since;      /* when it began to */
};

/* One image (loader_sample.c) */

/* Where an image goes. */
struct target {
    struct slot *slot;
    int place;
    bool here;                 /* this worker decodes it, nobody else */
};

/* Reads and augments the image that belongs there, or what stands in for it. */
void sample_fill(struct worker *worker, struct target target);

/* In how many views each image is evaluated. */
int views_count(const struct loader_views *views);

/* Says in a batch which view it is of, by its number. */
void view_choose(const struct loader_views *views, int64_t number, struct batch *batch);

/* Zeros, and no label. */
void sample_none(const struct loader *loader, struct target target);

/* The batches being made (loader_batch.c) */

/* Allocates the slots. FAILED without memory. */
enum status slots_make(struct loader *loader);
void slots_free(struct loader *loader);         /* also after slots_make has failed */

/* The chunk to do next; false: none now. With the lock held, as `chunk_end`. */
bool chunk_next(struct loader *loader, struct chunk *chunk);
void chunk_end(struct loader *loader, struct chunk chunk);

/* Does it, without the lock. */
void chunk_do(struct worker *worker, struct chunk chunk);

/* Waiting for workers, who may themselves wait for a file system that no longer answers (loader_watch.c) */

/* So that others can tell what this worker waits for, if it does. */
void reading_begin(struct worker *worker, int64_t index);
void reading_end(struct worker *worker);

struct wait {
    double from, said;         /* when it began; what was said last, in seconds after that */
};

/* Waits for a second at most, with the lock held. Whoever waits looks then for itself: OK says nothing but
 * that it may go on waiting. */
enum status workers_wait(struct loader *loader, struct wait *wait);
