#include "data/augment/policy.h"

#include <math.h>

#include "data/augment/colour.h"
#include "data/augment/warp.h"

/* An operation with its strength. */
struct change {
    double strength;
    struct image *image, *copy;
    struct reason *reason;
};

static bool policy_identity(const struct change *c) { return (void)c, true; }

static bool warp_by(const struct change *c, struct warp warp)
{
    return warp_image(c->image, &warp, c->copy, c->reason);
}

static bool shear_x(const struct change *c) { return warp_by(c, warp_shear(c->strength, 0)); }
static bool shear_y(const struct change *c) { return warp_by(c, warp_shear(0, c->strength)); }
static bool translate_x(const struct change *c) { return warp_by(c, warp_shift((int)c->strength, 0)); }
static bool translate_y(const struct change *c) { return warp_by(c, warp_shift(0, (int)c->strength)); }
static bool policy_rotate(const struct change *c)
{
    return warp_by(c, warp_turn(c->strength, c->image->h, c->image->w));
}
static bool brightness(const struct change *c) { return colour_brightness(c->image, 1 + c->strength), true; }
static bool colour(const struct change *c) { return colour_saturation(c->image, 1 + c->strength), true; }
static bool contrast(const struct change *c) { return colour_contrast(c->image, 1 + c->strength), true; }
static bool policy_sharpness(const struct change *c)
{
    return colour_sharpness(c->image, 1 + c->strength, c->copy, c->reason);
}
static bool policy_posterize(const struct change *c)
{
    return colour_posterize(c->image, 8 - (int)nearbyint(c->strength)), true;
}
static bool solarize(const struct change *c) { return colour_solarize(c->image, 255 - c->strength), true; }
static bool autocontrast(const struct change *c) { return colour_autocontrast(c->image), true; }
static bool equalize(const struct change *c) { return colour_equalize(c->image), true; }

/* The maximum strength of each operation, in both policies; strengths are evenly spaced from 0. */
static const struct {
    bool (*apply)(const struct change *change);
    double trivial, rand;
    bool either_sign;
} changes[] = {
    {policy_identity, 0, 0, false},        {shear_x, 0.99, 0.3, true},     {shear_y, 0.99, 0.3, true},
    {translate_x, 32, 150, true},   {translate_y, 32, 150, true},   {policy_rotate, 135, 30, true},
    {brightness, 0.99, 0.9, true},  {colour, 0.99, 0.9, true},      {contrast, 0.99, 0.9, true},
    {policy_sharpness, 0.99, 0.9, true},   {policy_posterize, 6, 4, false},       {solarize, 255, 255, false},
    {autocontrast, 0, 0, false},    {equalize, 0, 0, false},
};

#define CHANGES (sizeof changes / sizeof *changes)
#define LEVELS 31
#define RAND_LEVEL 9
#define RAND_CHANGES 2
/* RandAugment's shifts are given for images of 331 pixels. */
#define RAND_SIDE 331

static double rand_max(size_t which, const struct image *image)
{
    double most = changes[which].rand;
    if (changes[which].apply == translate_x) return most / RAND_SIDE * image->w;
    if (changes[which].apply == translate_y) return most / RAND_SIDE * image->h;
    return most;
}

static bool apply_one(struct change *change, enum policy policy, struct random *random)
{
    size_t which = random_below(random, CHANGES);
    bool trivial = policy == POLICY_TRIVIAL;
    double most = trivial ? changes[which].trivial : rand_max(which, change->image);
    unsigned level = trivial ? random_below(random, LEVELS) : RAND_LEVEL;
    change->strength = most * level / (LEVELS - 1);
    if (changes[which].either_sign && random_below(random, 2)) change->strength = -change->strength;
    return changes[which].apply(change);
}

/* The published parameters: values of 128 and more are inverted; a Gaussian blur of radius 0.1 to 2. */
static bool apply_three(const struct change *c, struct random *random)
{
    uint32_t which = random_below(random, 3);
    if (which == 2) return colour_blur(c->image, random_between(random, 0.1, 2), c->copy, c->reason);
    if (which == 1) colour_solarize(c->image, 128);
    else colour_grey(c->image);
    return true;
}

bool policy_apply(enum policy policy, struct image *image, struct random *random, struct image *copy,
                  struct reason *reason)
{
    struct change change = {.image = image, .copy = copy, .reason = reason};
    if (policy == POLICY_THREE) return apply_three(&change, random);
    int count = policy == POLICY_NONE ? 0 : policy == POLICY_TRIVIAL ? 1 : RAND_CHANGES;
    for (int i = 0; i < count; i++)
        if (!apply_one(&change, policy, random)) return false;
    return true;
}

static double policy_factor(double amount, struct random *random)
{
    return random_between(random, fmax(0, 1 - amount), 1 + amount);
}

bool policy_jitters(const double amount[4])
{
    for (int i = 0; i < 4; i++)
        if (amount[i] > 0) return true;
    return false;
}

void policy_jitter(const double amount[4], struct image *image, struct random *random)
{
    void (*const adjust[4])(struct image *, double) = {colour_brightness, colour_contrast, colour_saturation,
                                                       colour_hue};
    int order[4] = {0, 1, 2, 3};
    if (!policy_jitters(amount)) return;
    for (int i = 3; i > 0; i--) {
        int j = (int)random_below(random, (uint32_t)i + 1), other = order[j];
        order[j] = order[i];
        order[i] = other;
    }
    for (int i = 0; i < 4; i++) {
        double most = amount[order[i]];
        if (most <= 0) continue;
        adjust[order[i]](image, order[i] < 3 ? policy_factor(most, random)
                                             : random_between(random, -most, most));
    }
}
