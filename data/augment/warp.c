#include "data/augment/warp.h"

#include <math.h>
#include <string.h>

#include "data/augment/pixel.h"

struct warp warp_shear(double across, double down)
{
    return (struct warp){.across = {1, across, 0}, .down = {down, 1, 0}};
}

struct warp warp_shift(int right, int down)
{
    return (struct warp){.across = {1, 0, -right}, .down = {0, 1, -down}};
}

struct warp warp_turn(double degrees, int h, int w)
{
    double angle = degrees * 3.14159265358979323846 / 180, c = cos(angle), s = sin(angle);
    double x = w / 2.0, y = h / 2.0;
    return (struct warp){.across = {c, -s, x - c * x + s * y}, .down = {s, c, y - s * x - c * y}};
}

static void warp_row(const struct image *from, const struct warp *warp, int y, uint8_t *to)
{
    size_t c = (size_t)from->c;
    for (int x = 0; x < from->w; x++, to += c) {
        double right = x + 0.5, below = y + 0.5;
        int column = pixel_under(warp->across[0] * right + warp->across[1] * below + warp->across[2],
                                 from->w);
        int row = pixel_under(warp->down[0] * right + warp->down[1] * below + warp->down[2], from->h);
        if (column < 0 || row < 0)
            memset(to, 0, c);
        else
            memcpy(to, from->pixels + ((size_t)row * (size_t)from->w + (size_t)column) * c, c);
    }
}

bool warp_image(struct image *image, const struct warp *warp, struct image *copy, struct reason *reason)
{
    size_t stride = (size_t)image->w * (size_t)image->c;
    if (!image_resize_buffer(copy, image->h, image->w, image->c, reason)) return false;
    memcpy(copy->pixels, image->pixels, (size_t)image->h * stride);
    for (int y = 0; y < image->h; y++) warp_row(copy, warp, y, image->pixels + (size_t)y * stride);
    return true;
}
