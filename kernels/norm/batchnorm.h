/* batchnorm.h: settings of batchnorm, and where its parameters and saved tensors are. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/op.h"

struct batchnorm {
    double eps;
    double momentum;
    bool affine;
    int activation;   /* enum activation */
    double slope;     /* of leaky_relu */
    bool residual;    /* a second input is added before the activation */
    int init;         /* of the weights: 0 one, 1 zero */
};

/* Parameters: weight and bias, if affine, then these. */
struct batchnorm_statistics {
    int mean, variance, batches;
};
static inline struct batchnorm_statistics batchnorm_statistics(const struct batchnorm *s)
{
    int first = s->affine ? 2 : 0;
    return (struct batchnorm_statistics){first, first + 1, first + 2};
}

/* Tensors that forward saves in training. */
enum { SAVED_MEAN, SAVED_INVSTD, SAVED_VARIANCE, SAVED_COUNT };

/* An element's bit of the mask, for references. */
static inline void batchnorm_mask_set(const struct call *call, int64_t i)
{
    uint8_t *byte = (uint8_t *)call_data(call, OPERAND_MASK) + i / 8;
    unsigned bit = tensor_get(&call->y, i) != 0;
    *byte = (uint8_t)((*byte & ~(1u << i % 8)) | bit << i % 8);
}
static inline bool batchnorm_mask_get(const struct call *call, int64_t i)
{
    return ((const uint8_t *)call_data(call, OPERAND_MASK))[i / 8] >> i % 8 & 1;
}

/* True if what is added to d_y has one pixel of each image, and d_y has several. */
static inline bool batchnorm_adds_flat(const struct call *call)
{
    const struct tensor *addend = call_operand(call, OPERAND_D_Y_ADDEND);
    bool pooled = call_operand(call, OPERAND_NUMBER);
    return addend && !pooled && shape_count(addend->shape) < shape_count(call->d_y.shape);
}

/* Element i of the gradient that y has from its pooling, whose own is added to d_y. */
double batchnorm_pooled_d_y(const struct call *call, int64_t i);

/* An element of d_y; the sum of two is rounded as if it had been stored. */
static inline double batchnorm_d_y(const struct call *call, int64_t i)
{
    struct shape y = call->d_y.shape;
    double d_y = tensor_get(&call->d_y, i), stored;
    const struct tensor *addend = call_operand(call, OPERAND_D_Y_ADDEND);
    if (!addend) return d_y;
    if (batchnorm_adds_flat(call)) i = i / (y.h * y.w * y.c) * y.c + i % y.c;
    double more = call_operand(call, OPERAND_NUMBER) ? batchnorm_pooled_d_y(call, i) : tensor_get(addend, i);
    dtype_set(call->d_y.dtype, &stored, 0, d_y + more);
    return dtype_get(call->d_y.dtype, &stored, 0);
}

/* Backward needs z itself, which can be recomputed from x because there is no residual. */
static inline bool activation_is_smooth(int activation) { return activation >= ACTIVATION_SILU; }

/* No activation, or one whose derivative is 0 or 1: the activations of ops into which a batch norm is folded,
 * and the settings that these share with it, as text; the caller frees it. */
static inline bool activation_folds(int activation) { return activation <= ACTIVATION_RELU6; }
char *batchnorm_folded_settings(const struct batchnorm *s);

extern const struct op batchnorm_op;

/* Batch norm's call whose forward saves the moments that the batch_moments call writes. */
static inline struct call batchnorm_moments_call(const struct call *moments, const struct batchnorm *settings,
                                                 struct tensor saved[SAVED_COUNT])
{
    struct call measured = *moments;
    struct tensor channels = moments->y;
    channels.shape = shape_vector(moments->y.shape.c);
    measured.training = true;
    measured.settings = settings;
    measured.saved = saved;
    saved[SAVED_MEAN] = saved[SAVED_INVSTD] = saved[SAVED_VARIANCE] = channels;
    saved[SAVED_INVSTD].data = NULL;
    if (channels.data) saved[SAVED_VARIANCE].data = (float *)channels.data + channels.shape.dim[0];
    return measured;
}

/* Saves the statistics of channel k of the batch, for references; returns those that it is normalised
 * by (in training as they are saved, rounded, so that y can be recomputed from them), and its weight and
 * bias. */
struct batchnorm_channel {
    double mean, invstd, weight, bias;
};
void batchnorm_measure(const struct call *call, int64_t k);
struct batchnorm_channel batchnorm_channel(const struct call *call, int64_t k);
static inline double batchnorm_xhat(const struct batchnorm_channel *c, double x)
{
    return (x - c->mean) * c->invstd;
}
static inline double batchnorm_z(const struct batchnorm_channel *c, double x)
{
    return batchnorm_xhat(c, x) * c->weight + c->bias;
}

/* The settings of every op that contains a batch norm; `norm` is its offset in the op's settings. */
#define BATCHNORM_FIELDS(norm)                                                                            \
    {.name = "eps", .type = FIELD_REAL, .offset = (norm) + offsetof(struct batchnorm, eps),               \
     .initial = "1e-5", .min = 0, .max = 1, .help = "Added to the variance for numerical stability."},    \
    {.name = "momentum", .type = FIELD_REAL, .offset = (norm) + offsetof(struct batchnorm, momentum),     \
     .initial = "0.1", .min = 0, .max = 1, .help = "Weight of the batch in the running statistics."},     \
    {.name = "affine", .type = FIELD_BOOL, .offset = (norm) + offsetof(struct batchnorm, affine),         \
     .initial = "yes", .help = "Learn a weight and a bias for each channel."}
/* The settings of ops that contain it with an activation that clips: none, relu or relu6. */
extern const char *const batchnorm_clips[];
#define BATCHNORM_CLIP_FIELD(norm, help_)                                                                 \
    {.name = "activation", .type = FIELD_CHOICE, .offset = (norm) + offsetof(struct batchnorm, activation), \
     .initial = "none", .choices = batchnorm_clips, .help = help_}

/* The update of the running statistics, for the reference and the CPU alike. */
enum status batchnorm_update(const struct call *call);
/* True if there may be code for the products of each two of so many channels. */
bool batchnorm_gives_gram(int64_t channels);
/* op_code.supports of the reference; of code that reads X_MOMENTS, too. */
bool batchnorm_supports(const struct call *call);

/* sum(dz * xhat) follows from sum(dz) and sum(dz * y), since y = weight * xhat + bias where dz is not 0,
 * unless the bias is more than so many times the weight: rounding has left too few digits of xhat in y. */
#define BATCHNORM_BIAS_MAX 16
