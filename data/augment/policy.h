/* policy.h: random transforms of an image: colour jitter, TrivialAugment, RandAugment,
 * 3-Augment. */
#pragma once

#include "base/random.h"
#include "data/image/image.h"

enum policy {
    POLICY_NONE,
    POLICY_TRIVIAL,        /* Mueller, Hutter 2021, as torchvision's TrivialAugmentWide */
    POLICY_RAND,           /* Cubuk et al. 2020, as torchvision's RandAugment: 2 changes, strength 9 of 31 */
    POLICY_THREE,          /* Touvron, Cord, Jegou 2022 (DeiT III), 3-Augment: grey, solarized or blurred */
};

/* Changes `image` in place. `copy` is the caller's, reused. */
bool policy_apply(enum policy policy, struct image *image, struct random *random, struct image *copy,
                  struct reason *reason);

/* torchvision's ColorJitter: brightness, contrast, saturation and hue, each changed by a factor out of 1 +-
 * amount (hue: turned by up to the amount), in random order. Nothing is drawn if every amount is 0. */
void policy_jitter(const double amount[4], struct image *image, struct random *random);
bool policy_jitters(const double amount[4]);               /* whether one is not 0 */
