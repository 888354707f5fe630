/* batchnorm_maxpool.h: settings of batchnorm_maxpool, and the tensors that it saves besides batch norm's. */
#pragma once

#include "kernels/norm/batchnorm.h"
#include "kernels/pool/pool.h"

/* Batch norm's functions read this as their own settings. */
struct batchnorm_maxpool {
    struct batchnorm norm;
    struct pool pool;
};

/* For each output: the x that is normalised, and its index in the window, or 255 if no gradient passes. */
enum { SAVED_EXTREME = SAVED_COUNT, SAVED_NUMBER, SAVED_POOL_COUNT };

static inline struct pool_plane batchnorm_maxpool_plane(const struct call *call)
{
    struct call pool = *call;
    pool.settings = &((const struct batchnorm_maxpool *)call->settings)->pool;
    return pool_sliding(&pool);
}
