/* pixel_loss.h: settings of pixel_loss, its saved tensors, and the ratio of a class, the same on every
 * device. */
#pragma once

#include <math.h>

#include "base/anywhere.h"
#include "kernels/op.h"

enum pixel_loss_kind { PIXEL_CE, PIXEL_FOCAL, PIXEL_DICE, PIXEL_DICE_CE, PIXEL_TVERSKY };

struct pixel_loss {
    int kind;
    double gamma;              /* of focal */
    double false_positives, false_negatives;   /* their weights in tversky */
    bool background;           /* the first class counts in dice and tversky */
    int64_t ignore;            /* label of pixels that do not count; -1: none */
    double weight;             /* of this output among those of the network */
};

#define PIXEL_CLASSES_MAX 256

/* Logits [n, h, w, c]; labels U8 [n, H, W, 1]; weights of classes F32 [1, 1, 1, c]. */
enum { PIXEL_INPUT_LOGITS, PIXEL_INPUT_LABELS, PIXEL_INPUT_WEIGHTS, PIXEL_INPUTS };

/* Forward saves in training, for backward: the logarithm of each pixel's sum of exponentials,
 * F32 [n, h, w, 1]; and the derivatives of the loss of a micro-batch by a probability of each class, for
 * pixels of other classes and of this one, F32 [2, c], which are 0 without such a loss. */
enum { PIXEL_LSE, PIXEL_SLOPES, PIXEL_SAVED };

ANYWHERE bool pixel_loss_has_regions(const struct pixel_loss *s)
{
    return s->kind == PIXEL_DICE || s->kind == PIXEL_DICE_CE || s->kind == PIXEL_TVERSKY;
}

ANYWHERE bool pixel_loss_has_pixels(const struct pixel_loss *s)
{
    return s->kind == PIXEL_CE || s->kind == PIXEL_FOCAL || s->kind == PIXEL_DICE_CE;
}

/* Sums over the pixels that count: of the probability of a class, of those pixels that are of it, and of its
 * probability at these. */
struct pixel_sums {
    double p, g, both;
};

/* A class's ratio, and its derivatives by its probability at a pixel of another class, and of its own. */
struct pixel_ratio {
    double value, other, own;
};

/* dice: (2 both + e) / (p + g + e); tversky: both / (both + a (p - both) + b (g - both)). */
ANYWHERE struct pixel_ratio pixel_loss_ratio(const struct pixel_loss *s, struct pixel_sums sums)
{
    bool dice = s->kind != PIXEL_TVERSKY;
    double a = dice ? 1 : s->false_positives, b = dice ? 1 : s->false_negatives;
    double twice = dice ? 2 : 1, shared = dice ? 0 : 1 - a - b, small = dice ? 1e-5 : 0;
    double above = twice * sums.both + small;
    double below = a * sums.p + b * sums.g + shared * sums.both + small;
    struct pixel_ratio ratio = {0, 0, 0};
    if (!(below > 0)) return ratio;
    ratio.value = above / below;
    ratio.other = -above * a / (below * below);
    ratio.own = (twice * below - above * (a + shared)) / (below * below);
    return ratio;
}

/* The loss of a pixel by the logarithm of its class's probability, and the derivative by that. */
ANYWHERE double pixel_loss_value(const struct pixel_loss *s, double log_p)
{
    if (s->kind != PIXEL_FOCAL) return -log_p;
    return -pow(-expm1(log_p), s->gamma) * log_p;
}

ANYWHERE double pixel_loss_slope(const struct pixel_loss *s, double log_p)
{
    if (s->kind != PIXEL_FOCAL) return -1;
    double rest = -expm1(log_p), p = exp(log_p);
    if (rest <= 0) return s->gamma > 0 ? 0 : -1;
    return pow(rest, s->gamma) * (s->gamma * p * log_p / rest - 1);
}

/* How many pixels of the labels, along each axis, there are for one of the logits. */
static inline int64_t pixel_loss_stride(int64_t labels, int64_t logits)
{
    return (labels + logits - 1) / logits;
}

extern const struct op_code pixel_loss_cpu;
