#include "data/augment.h"

#include <assert.h>
#include <math.h>
#include <string.h>

void augment_table_make(const struct augment *augment, enum dtype dtype, struct augment_table *table)
{
    assert(dtype == F32 || dtype == F16 || dtype == BF16);
    table->dtype = dtype;
    for (int k = 0; k < augment->channels; k++) {
        for (int x = 0; x < 256; x++) {
            float value = (float)((x / 255.0 - augment->mean[k]) / augment->std[k]);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            if (dtype == F16) bits = f16_from_float(value);
            if (dtype == BF16) bits = bf16_from_float(value);
            table->bits[k][x] = bits;
        }
    }
}

/* Where a h x w window lies on an image, and whether it is mirrored. The window may reach beyond
 * the image's edges, where all is black. */
struct cut {
    const struct image *image;
    int y, x, h, w;
    bool flip;
};

static inline void put(void *out, size_t size, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (size == 4) memcpy(out, &bits, 4);
    else memcpy(out, &half, 2);
}

/* `count` pixels of `c` channels, taken every `step` pixels (1 or -1). Inlined into callers that
 * know `c`, `step` and `size`, so that each has a tight loop. */
static inline __attribute__((always_inline)) void
paint_pixels(const struct augment_table *table, size_t size, const uint8_t *from, int step, int count,
             int c, char *out)
{
    for (int x = 0; x < count; x++, from += step * c, out += (size_t)c * size)
        for (int k = 0; k < c; k++) put(out + (size_t)k * size, size, table->bits[k][from[k]]);
}

static inline __attribute__((always_inline)) void
paint_sized(const struct augment_table *table, size_t size, const uint8_t *from, int step, int count,
            int c, char *out)
{
    if (c == 1 && step == 1) paint_pixels(table, size, from, 1, count, 1, out);
    else if (c == 1) paint_pixels(table, size, from, -1, count, 1, out);
    else if (c == 3 && step == 1) paint_pixels(table, size, from, 1, count, 3, out);
    else if (c == 3) paint_pixels(table, size, from, -1, count, 3, out);
    else paint_pixels(table, size, from, step, count, c, out);
}

static void paint(const struct augment_table *table, const uint8_t *from, int step, int count, int c,
                  char *out)
{
    if (table->dtype == F32)
        paint_sized(table, 4, from, step, count, c, out);
    else
        paint_sized(table, 2, from, step, count, c, out);
}

static void paint_black(const struct augment_table *table, int count, int c, char *out)
{
    static const uint8_t black[4];
    size_t bytes = (size_t)c * dtype_bytes(table->dtype);
    for (int x = 0; x < count; x++) paint(table, black, 1, 1, c, out + (size_t)x * bytes);
}

static int clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

static void paint_row(const struct augment_table *table, const struct cut *cut, int y, char *out)
{
    const struct image *image = cut->image;
    size_t bytes = (size_t)image->c * dtype_bytes(table->dtype);
    if (y < 0 || y >= image->h) {
        paint_black(table, cut->w, image->c, out);
        return;
    }
    /* The columns of the window that lie on the image; mirrored, the last of them comes first. */
    int low = clamp(-cut->x, 0, cut->w), high = clamp(image->w - cut->x, low, cut->w);
    int before = cut->flip ? cut->w - high : low, after = cut->w - before - (high - low);
    const uint8_t *row = image->pixels + (size_t)y * (size_t)image->w * (size_t)image->c;
    paint_black(table, before, image->c, out);
    if (high > low)
        paint(table, row + (size_t)(cut->x + (cut->flip ? high - 1 : low)) * (size_t)image->c,
              cut->flip ? -1 : 1, high - low, image->c, out + (size_t)before * bytes);
    paint_black(table, after, image->c, out + (size_t)(before + high - low) * bytes);
}

static void paint_image(const struct augment_table *table, const struct cut *cut, char *out)
{
    size_t stride = (size_t)cut->w * (size_t)cut->image->c * dtype_bytes(table->dtype);
    for (int y = 0; y < cut->h; y++) paint_row(table, cut, cut->y + y, out + (size_t)y * stride);
}

/* torchvision rounds half to even here; a smaller image is centred on black. */
static int centre(int size, int crop)
{
    return size >= crop ? (int)nearbyint((size - crop) / 2.0) : -((crop - size) / 2);
}

static double between(struct random *random, double low, double high)
{
    return low + (high - low) * random_uniform(random);
}

/* RandomResizedCrop's way out when ten boxes did not fit: as much as the ratios allow, centred. */
static struct box central_box(const struct augment *augment, int h, int w)
{
    struct box box = {.h = h, .w = w};
    double ratio = (double)w / h;
    if (ratio < augment->ratio[0]) box.h = (int)nearbyint(w / augment->ratio[0]);
    if (ratio > augment->ratio[1]) box.w = (int)nearbyint(h * augment->ratio[1]);
    box.h = clamp(box.h, 1, h);
    box.w = clamp(box.w, 1, w);
    box.y = (h - box.h) / 2;
    box.x = (w - box.w) / 2;
    return box;
}

struct box augment_random_box(const struct augment *augment, int h, int w, struct random *random)
{
    double low = log(augment->ratio[0]), high = log(augment->ratio[1]);
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)h * w * between(random, augment->scale[0], augment->scale[1]);
        double ratio = exp(between(random, low, high));
        double box_w = nearbyint(sqrt(area * ratio)), box_h = nearbyint(sqrt(area / ratio));
        if (box_w < 1 || box_w > w || box_h < 1 || box_h > h) continue;
        struct box box = {.h = (int)box_h, .w = (int)box_w};
        box.y = (int)random_below(random, (uint32_t)(h - box.h + 1));
        box.x = (int)random_below(random, (uint32_t)(w - box.w + 1));
        return box;
    }
    return central_box(augment, h, w);
}

/* The size with the short side made `side`; the long one is cut down to a whole number, as
 * torchvision does. */
static bool scaled_size(const struct image *image, int side, int *h, int *w, struct reason *reason)
{
    int64_t long_side = image->h > image->w ? image->h : image->w;
    int64_t short_side = image->h > image->w ? image->w : image->h;
    int64_t scaled = side * long_side / short_side;
    if (scaled > 1 << 24)
        return because(reason, "%d x %d pixels are too long and thin", image->w, image->h);
    *h = image->h > image->w ? (int)scaled : side;
    *w = image->h > image->w ? side : (int)scaled;
    return true;
}

/* Where the h x w window goes on what is `full_h` x `full_w`. */
static bool place_window(const struct augment *augment, struct random *random, int full_h, int full_w,
                         struct cut *cut, struct reason *reason)
{
    int pad = random ? augment->pad : 0;
    int spare_h = full_h + 2 * pad - cut->h, spare_w = full_w + 2 * pad - cut->w;
    bool fixed = random ? augment->crop == 0 && pad == 0 : augment->val_crop == 0;
    if (fixed && (spare_h != 0 || spare_w != 0))
        return because(reason, "%d x %d pixels where %d x %d are expected, and no crop is set", full_w,
                       full_h, cut->w, cut->h);
    if (random && augment->random_crop) {
        if (spare_h < 0 || spare_w < 0)
            return because(reason, "%d x %d pixels are too few for a random crop of %d x %d", full_w,
                           full_h, cut->w, cut->h);
        cut->y = (int)random_below(random, (uint32_t)spare_h + 1) - pad;
        cut->x = (int)random_below(random, (uint32_t)spare_w + 1) - pad;
    } else {
        cut->y = centre(full_h + 2 * pad, cut->h) - pad;
        cut->x = centre(full_w + 2 * pad, cut->w) - pad;
    }
    return true;
}

/* Resizes only what the window shows, and makes the window lie on that. */
static bool resize_window(int full_h, int full_w, struct cut *cut, struct image *scratch,
                          struct reason *reason)
{
    int top = clamp(cut->y, 0, full_h - 1), left = clamp(cut->x, 0, full_w - 1);
    struct box whole = {.h = cut->image->h, .w = cut->image->w};
    struct box window = {.y = top, .x = left};
    window.h = clamp(cut->y + cut->h, top + 1, full_h) - top;
    window.w = clamp(cut->x + cut->w, left + 1, full_w) - left;
    if (!resize_image(cut->image, whole, full_h, full_w, window, scratch, reason)) return false;
    cut->image = scratch;
    cut->y -= top;
    cut->x -= left;
    return true;
}

static bool cut_window(const struct augment *augment, struct random *random, struct cut *cut,
                       struct image *scratch, struct reason *reason)
{
    int side = random ? augment->resize : augment->val_resize;
    int full_h = cut->image->h, full_w = cut->image->w;
    if (side > 0 && !scaled_size(cut->image, side, &full_h, &full_w, reason)) return false;
    if (!place_window(augment, random, full_h, full_w, cut, reason)) return false;
    bool same = full_h == cut->image->h && full_w == cut->image->w;
    return same || resize_window(full_h, full_w, cut, scratch, reason);
}

static bool cut_random_box(const struct augment *augment, struct random *random, struct cut *cut,
                           struct image *scratch, struct reason *reason)
{
    struct box box = augment_random_box(augment, cut->image->h, cut->image->w, random);
    struct box all = {.h = cut->h, .w = cut->w};
    if (box.h == cut->h && box.w == cut->w) {
        cut->y = box.y;
        cut->x = box.x;
        return true;
    }
    if (!resize_image(cut->image, box, cut->h, cut->w, all, scratch, reason)) return false;
    cut->image = scratch;
    return true;
}

bool augment_image_by(const struct augment *augment, const struct augment_table *table,
                      const struct image *image, struct random *random, int h, int w, void *out,
                      struct image *scratch, struct reason *reason)
{
    struct cut cut = {.image = image, .h = h, .w = w};
    if (image->c != augment->channels)
        return because(reason, "%d channels where %d are expected", image->c, augment->channels);
    bool good = random && augment->random_resized ? cut_random_box(augment, random, &cut, scratch, reason)
                                                  : cut_window(augment, random, &cut, scratch, reason);
    if (!good) return false;
    if (random && augment->flip > 0) cut.flip = random_uniform(random) < augment->flip;
    paint_image(table, &cut, out);
    return true;
}

bool augment_image(const struct augment *augment, const struct image *image, struct random *random,
                   int h, int w, enum dtype dtype, void *out, struct image *scratch,
                   struct reason *reason)
{
    struct augment_table table;
    augment_table_make(augment, dtype, &table);
    return augment_image_by(augment, &table, image, random, h, w, out, scratch, reason);
}
