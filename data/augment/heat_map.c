#include "data/augment/heat_map.h"

#include <math.h>
#include <string.h>

#define SHARE 0.5            /* of the map's colour */

/* Blue, cyan, yellow, red: what lies between two of them is mixed. */
static const double colours[][3] = {{0, 0, 143}, {0, 96, 255}, {32, 255, 223}, {239, 255, 16}, {255, 80, 0},
                                    {143, 0, 0}};
#define STEPS (int)(sizeof colours / sizeof *colours - 1)

static double clamp(double value, double low, double high)
{
    return value < low ? low : value > high ? high : value;
}

static double value_at(const struct heat_map *map, double y, double x)
{
    y = clamp(y, 0, map->h - 1);
    x = clamp(x, 0, map->w - 1);
    int top = (int)y, left = (int)x;
    int bottom = top + 1 < map->h ? top + 1 : top, right = left + 1 < map->w ? left + 1 : left;
    double down = y - top, over = x - left;
    const float *above = map->values + (size_t)top * (size_t)map->w;
    const float *below = map->values + (size_t)bottom * (size_t)map->w;
    return (1 - down) * ((1 - over) * above[left] + over * above[right]) +
           down * ((1 - over) * below[left] + over * below[right]);
}

static void paint(double value, const uint8_t *grey_or_rgb, int channels, uint8_t out[3])
{
    double at = clamp(value, 0, 1) * STEPS;
    int step = at < STEPS ? (int)at : STEPS - 1;
    for (int k = 0; k < 3; k++) {
        double colour = colours[step][k] + (at - step) * (colours[step + 1][k] - colours[step][k]);
        out[k] = (uint8_t)nearbyint(SHARE * colour + (1 - SHARE) * grey_or_rgb[channels == 1 ? 0 : k]);
    }
}

/* The crop's bytes, without normalisation. */
static bool crop(const struct augment *augment, const struct image *image, int h, int w,
                 struct image *cropped, struct reason *reason)
{
    const struct cut_sizes sizes = {image->h, image->w, h, w};
    const struct augment_table bytes = {.dtype = U8};
    struct scratch scratch = {0};
    struct augmenting how = {.augment = augment, .scratch = &scratch};
    struct cut cut;
    bool good = augment_cut(augment, NULL, &sizes, &cut, reason) &&
                image_resize_buffer(cropped, h, w, image->c, reason) &&
                augment_apply(&how, &bytes, &cut, image, cropped->pixels, reason);
    scratch_free(&scratch);
    return good;
}

bool heat_map_draw(const struct augment *augment, const struct image *image, const struct heat_map *map,
                   int h, int w, struct image *picture, struct reason *reason)
{
    struct image cropped = {0}, bytes = {0};
    bool good = !image->deep || image_reduce(image, &augment->range, &bytes, reason);
    if (image->deep) image = &bytes;
    good = good && (image->c == 1 || image->c == 3 || because(reason, "has %d channels", image->c)) &&
           crop(augment, image, h, w, &cropped, reason) && image_resize_buffer(picture, h, w, 3, reason);
    for (int y = 0; good && y < h; y++)
        for (int x = 0; x < w; x++) {
            size_t at = (size_t)y * (size_t)w + (size_t)x;
            double value = value_at(map, (y + 0.5) * map->h / h - 0.5, (x + 0.5) * map->w / w - 0.5);
            paint(value, cropped.pixels + at * (size_t)cropped.c, cropped.c, picture->pixels + 3 * at);
        }
    image_free(&cropped);
    image_free(&bytes);
    return good;
}
