#include "data/augment/policy.h"

#include <math.h>

/* Operations of the policies. */
enum operation {
    IDENTITY, SHEAR_X, SHEAR_Y, TRANSLATE_X, TRANSLATE_Y, ROTATE, BRIGHTNESS, COLOUR, CONTRAST, SHARPNESS,
    POSTERIZE, SOLARIZE, AUTOCONTRAST, EQUALIZE, OPERATIONS,
};

/* The maximum strength of each operation, in both policies; strengths are evenly spaced from 0. */
static const struct {
    double trivial, rand;
    bool either_sign;
} operations[OPERATIONS] = {
    [IDENTITY] = {0, 0, false},
    [SHEAR_X] = {0.99, 0.3, true},
    [SHEAR_Y] = {0.99, 0.3, true},
    [TRANSLATE_X] = {32, 150, true},
    [TRANSLATE_Y] = {32, 150, true},
    [ROTATE] = {135, 30, true},
    [BRIGHTNESS] = {0.99, 0.9, true},
    [COLOUR] = {0.99, 0.9, true},
    [CONTRAST] = {0.99, 0.9, true},
    [SHARPNESS] = {0.99, 0.9, true},
    [POSTERIZE] = {6, 4, false},
    [SOLARIZE] = {255, 255, false},
    [AUTOCONTRAST] = {0, 0, false},
    [EQUALIZE] = {0, 0, false},
};

#define LEVELS 31
#define RAND_LEVEL 9
#define RAND_CHANGES 2
/* RandAugment's shifts are given for images of 331 pixels. */
#define RAND_SIDE 331

static void add_operation(enum operation operation, double strength, int h, int w,
                          struct variation *variation)
{
    switch (operation) {
    case IDENTITY: case OPERATIONS: break;
    case SHEAR_X: variation_add(variation, CHANGE_WARP, 0)->warp = warp_shear(strength, 0); break;
    case SHEAR_Y: variation_add(variation, CHANGE_WARP, 0)->warp = warp_shear(0, strength); break;
    case TRANSLATE_X: variation_add(variation, CHANGE_WARP, 0)->warp = warp_shift((int)strength, 0); break;
    case TRANSLATE_Y: variation_add(variation, CHANGE_WARP, 0)->warp = warp_shift(0, (int)strength); break;
    case ROTATE: variation_add(variation, CHANGE_WARP, 0)->warp = warp_turn(strength, h, w); break;
    case BRIGHTNESS: variation_add(variation, CHANGE_BRIGHTNESS, 1 + strength); break;
    case COLOUR: variation_add(variation, CHANGE_SATURATION, 1 + strength); break;
    case CONTRAST: variation_add(variation, CHANGE_CONTRAST, 1 + strength); break;
    case SHARPNESS: variation_add(variation, CHANGE_SHARPNESS, 1 + strength); break;
    case POSTERIZE: variation_add(variation, CHANGE_POSTERIZE, 8 - nearbyint(strength)); break;
    case SOLARIZE: variation_add(variation, CHANGE_SOLARIZE, 255 - strength); break;
    case AUTOCONTRAST: variation_add(variation, CHANGE_AUTOCONTRAST, 0); break;
    case EQUALIZE: variation_add(variation, CHANGE_EQUALIZE, 0); break;
    }
}

static double rand_max(enum operation operation, int h, int w)
{
    double most = operations[operation].rand;
    if (operation == TRANSLATE_X) return most / RAND_SIDE * w;
    if (operation == TRANSLATE_Y) return most / RAND_SIDE * h;
    return most;
}

static void draw_operation(bool trivial, int h, int w, struct random *random, struct variation *variation)
{
    enum operation operation = random_below(random, OPERATIONS);
    double most = trivial ? operations[operation].trivial : rand_max(operation, h, w);
    unsigned level = trivial ? random_below(random, LEVELS) : RAND_LEVEL;
    double strength = most * level / (LEVELS - 1);
    if (operations[operation].either_sign && random_below(random, 2)) strength = -strength;
    add_operation(operation, strength, h, w, variation);
}

/* The published parameters: values of 128 and more are inverted; a Gaussian blur of radius 0.1 to 2. */
static void draw_three(struct random *random, struct variation *variation)
{
    uint32_t which = random_below(random, 3);
    if (which == 2) variation_add(variation, CHANGE_SOFTEN, random_between(random, 0.1, 2));
    else if (which == 1) variation_add(variation, CHANGE_SOLARIZE, 128);
    else variation_add(variation, CHANGE_SATURATION, 0);
}

void policy_draw(enum policy policy, int h, int w, struct random *random, struct variation *variation)
{
    if (policy == POLICY_THREE) draw_three(random, variation);
    else
        for (int i = 0; i < (policy == POLICY_NONE ? 0 : policy == POLICY_TRIVIAL ? 1 : RAND_CHANGES); i++)
            draw_operation(policy == POLICY_TRIVIAL, h, w, random, variation);
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

void policy_jitter(const double amount[4], struct random *random, struct variation *variation)
{
    static const enum change_kind kinds[4] = {CHANGE_BRIGHTNESS, CHANGE_CONTRAST, CHANGE_SATURATION,
                                              CHANGE_HUE};
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
        variation_add(variation, kinds[order[i]], order[i] < 3 ? policy_factor(most, random)
                                                               : random_between(random, -most, most));
    }
}
