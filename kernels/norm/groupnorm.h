/* groupnorm.h: settings of groupnorm and instancenorm, and where their saved tensors are. */
#pragma once

#include "kernels/op.h"

struct groupnorm {
    int64_t groups;            /* 0: each channel is one (instancenorm) */
    double eps;
    bool affine;
};

/* [n * groups]; forward saves them in training. */
enum { GROUPNORM_MEAN, GROUPNORM_INVSTD, GROUPNORM_SAVED };

static inline int64_t groupnorm_groups(const struct groupnorm *settings, int64_t channels)
{
    return settings->groups ? settings->groups : channels;
}

/* Shared by groupnorm and instancenorm. */
bool groupnorm_supports(const struct call *call);
int groupnorm_params(const void *settings, int x_count, const struct shape *x,
                     struct op_param out[OP_MAX_PARAMS]);
int groupnorm_saved(const void *settings, int x_count, const struct tensor *x, bool training,
                    struct op_saved out[OP_MAX_SAVED]);
unsigned groupnorm_reads(const void *settings, enum phase phase);

/* Rows of the field tables. */
#define GROUPNORM_FIELDS                                                                                 \
    {.name = "eps", .type = FIELD_REAL, .offset = offsetof(struct groupnorm, eps), .initial = "1e-5",    \
     .min = 0, .max = 1, .help = "Added to the variance."},                                              \
    {.name = "affine", .type = FIELD_BOOL, .offset = offsetof(struct groupnorm, affine),                 \
     .initial = "yes", .help = "Learn a weight and a bias for each channel."}

extern const struct op_code groupnorm_reference, groupnorm_cpu;
