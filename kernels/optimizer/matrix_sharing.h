/* matrix_sharing.h: an update whose matrices several ranks share: each orthogonalises some, and gets the
 * others' results. All else every rank does itself. The bits are those of one rank alone. */
#pragma once

#include "base/status.h"
#include "kernels/optimizer/optimizer_rule.h"

struct matrix_ranks {
    int rank, count;
    /* exchange_backend's. */
    enum status (*all_gather)(void *context, const void *from, void *to, size_t bytes, void *stream);
    void *context;
};

/* A division of matrices among ranks: as many at a time as there are ranks, the largest first. */
struct matrix_sharing {
    struct matrix_ranks ranks;
    int *order;                /* indices of parameters */
    int count;
    float *gathered;           /* on the CPU: in the scratch memory, behind optimizer_scratch */
    struct orthogonal *made;   /* [ranks.count] */
};

/* The parameters' scratch memory has optimizer_scratch bytes of the largest, on a GPU UPDATE_PRODUCT_BYTES,
 * and matrix_sharing_bytes of the largest. */
struct matrix_sharing *matrix_sharing_open(const struct matrix_ranks *ranks,
                                           const struct optimizer_param *params, int count);
void matrix_sharing_close(struct matrix_sharing *sharing);       /* accepts NULL */
int64_t matrix_sharing_bytes(int64_t rows, int64_t count, int ranks, enum dtype result);

/* How many exchanges an update makes. */
int matrix_sharing_exchanges(const struct matrix_sharing *sharing);

struct matrix_update {
    const struct optimizer_settings *settings;
    const struct optimizer_param *params;
    const struct optimizer_numbers *numbers;       /* before a parameter's own factors */
    void (*then)(const void *context, const struct optimizer_param *param);    /* after the weights */
    const void *context;
};

/* Updates all matrices, on the CPU. Called by all ranks. */
enum status matrix_sharing_update(const struct matrix_sharing *sharing, const struct matrix_update *update);
