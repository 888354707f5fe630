/* ranks.h: the exchanges of a run's ranks between steps, by which all of them make the same decisions and
 * rank 0 knows the results of all images. With a single rank they do nothing. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "comm/comm.h"
#include "device/device.h"
#include "input/bad_images.h"

/* One rank's results for a batch. */
struct ranks_batch {
    int count;                   /* images */
    int bad;                     /* unusable ones of these */
    const float *losses;         /* [count] */
    const int32_t *ranks;        /* [count] how many classes beat the true one */
    const int32_t *labels;       /* [count]; -1: no image */
    const int32_t *predictions;  /* [count] the class that beats all others; NULL: not asked for */
    const float *confidences;    /* [count] its probability; NULL: not asked for */
    uint64_t fingerprint;        /* of the parameters, after a step with a comparison; otherwise 0 */
    bool out_of_time, save_due;  /* wall-clock time, of which the first rank's is used */
};

struct ranks {
    struct comm *comm;           /* NULL: a single rank */
    int share;                   /* maximum number of a rank's images in a batch */
    int stages;                  /* ranks of a pipeline, which follow each other; 1: there is none */
    struct bad_images *bad_images;
    /* All ranks' images of the batch gathered last, in order. */
    int count, bad;
    float *losses;
    int32_t *ranks;
    int32_t *labels;
    int32_t *predictions;
    float *confidences;
    bool own_lost;               /* of them, a loss of this rank's is not finite */
    bool unlike;                 /* not all ranks, or those of one stage, had the same fingerprint */
    bool bad_images_pending;        /* a rank has lines of bad images */
    /* Known to all ranks after gathering. */
    int stop;                    /* signal that requested a stop; 0: none */
    bool checkpoint;             /* a checkpoint was requested, until ranks_checkpoint */
    bool out_of_time, save_due;
    uint32_t checkpoints, statuses;   /* that the launcher had asked for */
    struct comm_progress progress;    /* that it was told */
    void *sent, *received;
};

/* `share` as above, the same on all ranks. `bad_images`: reported to the other ranks; NULL if there are
 * none. */
void ranks_open(struct comm *comm, int share, struct bad_images *bad_images, struct ranks *ranks);
void ranks_close(struct ranks *ranks);            /* accepts a zeroed struct */

/* After every batch, by all ranks. */
enum status ranks_gather(struct ranks *ranks, const struct ranks_batch *batch);

/* Directly after ranks_gather: gathers `width` numbers of each of its images, from room for `share` of them,
 * to `all`, which has room for those of all ranks. */
enum status ranks_gather_rows(struct ranks *ranks, const float *rows, int width, float *all);

/* Called by all ranks: exchanges the lines of their bad_images. ranks_gather does so if there are some. */
enum status ranks_share_bad_images(struct ranks *ranks);

/* Requests to the run: those of any rank, as known to all since the last batch; without ranks, those until
 * now. */
int ranks_stop(const struct ranks *ranks);
bool ranks_checkpoint(struct ranks *ranks);       /* since the last call */
bool ranks_status(struct ranks *ranks);           /* of this rank, since the last call */

/* The request to stop of this rank, until now: others may not know of it yet. */
int ranks_asked_to_stop(const struct ranks *ranks);

/* Reports the run's progress to the launcher; `step`: steps done. */
void ranks_report(struct ranks *ranks, enum comm_phase phase, int64_t step);

/* Tells the launcher at once that there is a checkpoint of `step`. */
void ranks_report_saved(struct ranks *ranks, int64_t step);

/* Broadcasts the text of rank `root`; the caller frees it. NULL gives NULL. */
enum status ranks_share_text(struct comm *comm, int root, const char *text, char **shared);

/* The first rank's autotuner chooses for all, so that they have the same bits: the others wait until it has
 * prepared its programs, and use its choices for theirs. Of stages, those of the first pipeline do so one
 * after another. */
enum status ranks_receive_algorithms(struct comm *comm, int stages, struct device *device);
enum status ranks_send_algorithms(struct comm *comm, int stages, struct device *device);
