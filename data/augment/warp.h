/* warp.h: shears, translates or rotates an image with nearest-neighbour sampling and a black background. */
#pragma once

#include "data/image/image.h"

/* Output pixel x, y shows what lies at across[0] x + across[1] y + across[2] and the same with `down`,
 * counted in pixels from the top left corner (pixel 0, 0 lies at 0.5, 0.5). */
struct warp {
    double across[3], down[3];
};

struct warp warp_shear(double across, double down);      /* x + across y, y + down x */
struct warp warp_shift(int right, int down);
/* Counterclockwise about the middle of h x w. */
struct warp warp_turn(double degrees, int h, int w);

/* Changes `image` in place. `copy` is the caller's, reused. */
bool warp_image(struct image *image, const struct warp *warp, struct image *copy, struct reason *reason);
