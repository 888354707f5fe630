/* variation.h: what changes the bytes of a crop, drawn before it is done, so that the CPU or a device may do
 * it, with the same bits. */
#pragma once

#include "base/random.h"
#include "data/augment/turning.h"
#include "data/augment/warp.h"

enum change_kind {
    CHANGE_BRIGHTNESS,
    CHANGE_CONTRAST,
    CHANGE_SATURATION,
    CHANGE_HUE,
    CHANGE_SHARPNESS,
    CHANGE_POSTERIZE,
    CHANGE_SOLARIZE,
    CHANGE_GAMMA,
    CHANGE_AUTOCONTRAST,
    CHANGE_EQUALIZE,
    CHANGE_WARP,
    CHANGE_SOFTEN,             /* colour_blur */
    CHANGE_BLUR,
    CHANGE_NOISE,
};

struct change {
    int32_t kind;              /* enum change_kind */
    int32_t reach;             /* of a blur */
    double amount;             /* the function's argument */
    struct warp warp;
};

/* Bytes of a device's shared memory for rows that are blurred. */
#define BLUR_SHARED (32 << 10)

/* Four of ColorJitter, two of a policy, gray, gamma, blur, noise. */
#define CHANGES_MAX 10
/* A device blurs with a reach below this. */
#define BLUR_TAPS 32
#define SOFTEN_TAPS 3

struct variation {
    int32_t turned;            /* first the pixels come from elsewhere */
    int32_t count;
    struct turning turning;
    struct change changes[CHANGES_MAX];
    struct random random;      /* the stream of noise, from block `draw` on */
    uint64_t draw;
    /* Numbers that a device is given ready: the CPU's functions have bits of their own. */
    uint8_t gamma[256];
    uint32_t soften[SOFTEN_TAPS];
    float blur[BLUR_TAPS];
};

static inline struct change *variation_add(struct variation *variation, enum change_kind kind, double amount)
{
    struct change *change = &variation->changes[variation->count++];
    *change = (struct change){.kind = kind, .amount = amount};
    return change;
}
