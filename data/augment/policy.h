/* policy.h: random transforms of an image: colour jitter, TrivialAugment, RandAugment,
 * 3-Augment. */
#pragma once

#include "base/random.h"
#include "data/augment/variation.h"

enum policy {
    POLICY_NONE,
    POLICY_TRIVIAL,        /* Mueller, Hutter 2021, as torchvision's TrivialAugmentWide */
    POLICY_RAND,           /* Cubuk et al. 2020, as torchvision's RandAugment: 2 changes, strength 9 of 31 */
    POLICY_THREE,          /* Touvron, Cord, Jegou 2022 (DeiT III), 3-Augment: grey, solarized or blurred */
};

/* Adds the changes of an image of h x w. */
void policy_draw(enum policy policy, int h, int w, struct random *random, struct variation *variation);

/* torchvision's ColorJitter: brightness, contrast, saturation and hue, each changed by a factor out of 1 +-
 * amount (hue: turned by up to the amount), in random order. Nothing is drawn if every amount is 0. */
void policy_jitter(const double amount[4], struct random *random, struct variation *variation);
bool policy_jitters(const double amount[4]);               /* whether one is not 0 */
