/* ranks.h: the exchanges of a run's ranks between steps, by which all of them make the same decisions and
 * rank 0 knows the results of all images. With a single rank they do nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "device/device.h"
#include "session/bad_images.h"

/* One rank's results for a batch. */
struct ranks_batch {
    int count;                   /* images */
    int bad;                     /* of them, that could not be used */
    const float *losses;         /* [count] */
    const int32_t *ranks;        /* [count] how many classes beat the true one */
    const int32_t *labels;       /* [count]; -1: no image */
    const int32_t *predictions;  /* [count] the class that beats all others; NULL: not asked for */
    const float *confidences;    /* [count] what a wrong prediction has of the probability; NULL: likewise */
    uint64_t fingerprint;        /* of the parameters after a step at which all compare them; 0: at another */
    bool out_of_time, save_due;  /* by the clock, of which the first rank's counts */
};

struct ranks {
    struct comm *comm;           /* NULL: one rank by itself */
    int share;                   /* images of a batch that each rank has at most */
    int stages;                  /* ranks of a pipeline, which follow each other; 1: there is none */
    struct bad_images *bad_images;
    /* Of the batch that was gathered last, all ranks' images in their order. */
    int count, bad;
    float *losses;
    int32_t *ranks;
    int32_t *labels;
    int32_t *predictions;
    float *confidences;
    bool own_lost;               /* of them, a loss of this rank's is not finite */
    bool unlike;                 /* not all ranks, or those of one stage, had the same fingerprint */
    bool bad_images_wait;        /* a rank has lines to share */
    /* Known to all ranks since then. */
    int stop;                    /* asked to stop, by this signal; 0: not */
    bool checkpoint;             /* asked for a checkpoint, until ranks_checkpoint */
    bool out_of_time, save_due;
    uint32_t checkpoints, statuses;   /* that the launcher had asked for */
    struct comm_progress progress;    /* that it was told */
    void *sent, *received;
};

/* `share` as above, which is the same on all ranks. `bad_images`, of which each tells the others; NULL where
 * there are none. */
void ranks_open(struct comm *comm, int share, struct bad_images *bad_images, struct ranks *ranks);
void ranks_close(struct ranks *ranks);            /* accepts a zeroed struct */

/* After every batch, by all ranks. */
enum status ranks_gather(struct ranks *ranks, const struct ranks_batch *batch);

/* By all ranks: each gets the lines that the others' bad_images have for it. ranks_gather does so when there
 * are some. */
enum status ranks_share_bad_images(struct ranks *ranks);

/* Requests to the run: of any rank, as all know since the last batch; of one by itself, by now. */
int ranks_stop(const struct ranks *ranks);
bool ranks_checkpoint(struct ranks *ranks);       /* since the last call */
bool ranks_status(struct ranks *ranks);           /* of this rank, since the last call */

/* Tells the launcher that the run gets on, with what; `step`: steps made. */
void ranks_tell(struct ranks *ranks, enum comm_phase phase, int64_t step);

/* The text of rank `root`, on all ranks: the caller frees it. NULL stays NULL. */
enum status ranks_share_text(struct comm *comm, int root, const char *text, char **shared);

/* The first rank's autotuner chooses for all, so that they have the same bits: the others take its choices
 * before they prepare programs, which wait until it has prepared its own and given them. Of stages, those
 * of the first pipeline do so one after another. */
enum status ranks_take_algorithms(struct comm *comm, int stages, struct device *device);
enum status ranks_give_algorithms(struct comm *comm, int stages, struct device *device);
