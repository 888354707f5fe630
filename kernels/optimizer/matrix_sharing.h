/* matrix_sharing.h: the matrices of an update, of which each of several ranks orthogonalises some, and gets
 * the others' results. All else every rank does itself. The bits are those of one rank alone. */
#pragma once

#include "base/status.h"
#include "kernels/optimizer/formulas.h"

struct matrix_ranks {
    int rank, count;
    /* exchange_backend's. */
    enum status (*all_gather)(void *context, const void *from, void *to, size_t bytes, void *stream);
    void *context;
};

/* Matrices of one size that a rank orthogonalises together; on the CPU each is a batch. */
struct matrix_batch {
    int first, count;          /* in the order */
    int64_t bytes;             /* of the results */
};

/* A division of matrices among ranks: as many batches at a time as there are ranks, those of the largest
 * matrices first. In the scratch memory the results that are exchanged, if there are several ranks, lie
 * behind what the largest batch needs. */
struct matrix_sharing {
    struct matrix_ranks ranks;
    int *order;                /* indices of parameters */
    int count;
    struct matrix_batch *batches;
    int batch_count;
    int64_t gathered, bytes;   /* of scratch memory: where results begin; all */
    struct orthogonal *made;   /* [ranks.count] */
};

/* Looks at the parameters' sizes only. Fewer of them need no more memory. */
struct matrix_sharing *matrix_sharing_open(const struct matrix_ranks *ranks, bool on_gpu,
                                           const struct optimizer_param *params, int count);
void matrix_sharing_close(struct matrix_sharing *sharing);       /* accepts NULL */

/* A batch of each rank: `count` of them, fewer at the end. */
struct matrix_round {
    const struct matrix_batch *batches;
    int count;
    int64_t room;              /* bytes of a rank's results: the largest's */
};
int matrix_sharing_rounds(const struct matrix_sharing *sharing);
struct matrix_round matrix_sharing_round(const struct matrix_sharing *sharing, int round);

struct matrix_update {
    const struct optimizer_settings *settings;
    const struct optimizer_param *params;
    const struct optimizer_numbers *numbers;       /* before a parameter's own factors */
    void (*then)(const void *context, const struct optimizer_param *param);    /* after the weights */
    const void *context;
};

/* Updates all matrices, on the CPU. Called by all ranks. */
enum status matrix_sharing_update(const struct matrix_sharing *sharing, const struct matrix_update *update);
