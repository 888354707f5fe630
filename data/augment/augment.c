#include "data/augment/augment.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment_deep.h"
#include "data/augment/vary.h"

struct augment_table augment_table_make(const struct augment *augment, enum dtype dtype)
{
    assert(dtype == F32 || dtype == F16 || dtype == BF16);
    struct augment_table table = {dtype, memory_new(augment_table_bytes(augment->channels), 1)};
    const struct image_range *range = &augment->range;
    double low = range->set ? range->low : 0, width = range->set ? range->high - low : 255;
    for (int k = 0; k < augment->channels; k++) {
        for (int x = 0; x < 256; x++) {
            float value = (float)(((x - low) / width - augment->mean[k]) / augment->std[k]);
            uint32_t bits;
            memcpy(&bits, &value, sizeof bits);
            if (dtype == F16) bits = f16_from_float(value);
            if (dtype == BF16) bits = bf16_from_float(value);
            table.bits[k][x] = bits;
        }
    }
    return table;
}

void augment_table_free(struct augment_table *table)
{
    free(table->bits);
    table->bits = NULL;
}

static inline void put_number(void *out, size_t size, uint32_t bits)
{
    uint16_t half = (uint16_t)bits;
    if (size == 4) memcpy(out, &bits, 4);
    else if (size == 2) memcpy(out, &half, 2);
    else *(uint8_t *)out = (uint8_t)bits;
}

/* Inlined into callers that know `c`, `step` and `size`, so that each has a tight loop, in which nothing that
 * is written can be the table. */
static inline __attribute__((always_inline)) void
paint_pixels(const struct augment_table *table, size_t size, struct pixel_row p, char *restrict out)
{
    uint32_t (*restrict bits)[256] = table->bits;
    const uint8_t *restrict from = p.from;
    for (int x = 0; x < p.count; x++, from += p.step * p.c, out += (size_t)p.c * size)
        for (int k = 0; k < p.c; k++)
            put_number(out + (size_t)k * size, size, size == 1 ? from[k] : bits[k][from[k]]);
}

static inline __attribute__((always_inline)) void
paint_sized(const struct augment_table *table, size_t size, struct pixel_row p, char *out)
{
    bool on = p.step == 1;
    if (p.c == 1 && on) paint_pixels(table, size, (struct pixel_row){p.from, 1, p.count, 1}, out);
    else if (p.c == 1) paint_pixels(table, size, (struct pixel_row){p.from, -1, p.count, 1}, out);
    else if (p.c == 3 && on) paint_pixels(table, size, (struct pixel_row){p.from, 1, p.count, 3}, out);
    else if (p.c == 3) paint_pixels(table, size, (struct pixel_row){p.from, -1, p.count, 3}, out);
    else paint_pixels(table, size, p, out);
}

void augment_paint(const struct augment_table *table, struct pixel_row pixels, void *out)
{
    if (table->dtype == F32) paint_sized(table, 4, pixels, out);
    else if (table->dtype == U8) paint_sized(table, 1, pixels, out);
    else paint_sized(table, 2, pixels, out);
}

static int clamp(int value, int low, int high) { return value < low ? low : value > high ? high : value; }

/* A row of an image, of which a window shows some columns. */
struct window_row {
    const struct image *image;
    const uint8_t *pixels;     /* NULL: the row is black */
    bool reflect;
};

/* `count` pixels beyond the edges, from column x on, taken every `step`. */
static void paint_border(const struct augment_table *table, const struct window_row *row, int x, int step,
                         int count, char *out)
{
    static const uint8_t black[IMAGE_CHANNELS_MAX];
    const struct image *image = row->image;
    size_t bytes = (size_t)image->c * dtype_bytes(table->dtype);
    for (int i = 0; i < count; i++, x += step, out += bytes) {
        int from = image_record_pixel(x, image->w, row->reflect);
        bool seen = row->pixels && from >= 0 && from < image->w;
        const uint8_t *pixel = seen ? row->pixels + (size_t)from * (size_t)image->c : black;
        augment_paint(table, (struct pixel_row){pixel, 1, 1, image->c}, out);
    }
}

/* A row of a window on an image in its pixels; the window may extend beyond the edges. */
static void paint_row(const struct augment_table *table, const struct window_row *row, struct box window,
                      bool flip, char *out)
{
    const struct image *image = row->image;
    size_t bytes = (size_t)image->c * dtype_bytes(table->dtype);
    /* The columns of the window within the image, in reverse order if mirrored. */
    int low = clamp(-window.x, 0, window.w), high = clamp(image->w - window.x, low, window.w);
    if (!row->pixels) low = high = 0;
    int before = flip ? window.w - high : low, inside = high - low, step = flip ? -1 : 1;
    int first = window.x + (flip ? window.w - 1 : 0);
    paint_border(table, row, first, step, before, out);
    if (inside > 0) {
        const uint8_t *from = row->pixels + (size_t)(first + step * before) * (size_t)image->c;
        augment_paint(table, (struct pixel_row){from, step, inside, image->c}, out + (size_t)before * bytes);
    }
    int after = before + inside;
    paint_border(table, row, first + step * after, step, window.w - after, out + (size_t)after * bytes);
}

static void paint_image(const struct augment_table *table, const struct image *image, const struct cut *cut,
                        char *out)
{
    const struct box *window = &cut->window;
    size_t stride = (size_t)window->w * (size_t)image->c * dtype_bytes(table->dtype);
    for (int y = 0; y < window->h; y++) {
        int row_of = window->y + (cut->vflip ? window->h - 1 - y : y);
        int from = image_record_pixel(row_of, image->h, cut->reflect);
        bool seen = from >= 0 && from < image->h;
        size_t at = seen ? (size_t)from * (size_t)image->w * (size_t)image->c : 0;
        const struct window_row row = {image, seen ? image->pixels + at : NULL, cut->reflect};
        paint_row(table, &row, *window, cut->flip, out + (size_t)y * stride);
    }
}

static void paint_deep(const struct augment *augment, const struct augment_table *table,
                       const struct image *image, const struct cut *cut, char *out)
{
    int w = cut->window.w, c = image->c;
    struct image_range range = image_range_of(image, &augment->range);
    float *row = memory_new((size_t)w * (size_t)c, sizeof *row);
    struct deep_scale scale;
    deep_scale_of(&range, augment->mean, augment->std, c, &scale);
    for (int y = 0; y < cut->window.h; y++) {
        augment_deep_row(cut, image, (float)range.low, y, row);
        deep_scale_write(&scale, table->dtype, row, w, c,
                         out + (size_t)y * (size_t)w * (size_t)c * dtype_bytes(table->dtype));
    }
    free(row);
}

/* torchvision rounds half to even here; a smaller image is centred on black. */
static int centre(int size, int crop)
{
    return size >= crop ? (int)nearbyint((size - crop) / 2.0) : -((crop - size) / 2);
}

/* RandomResizedCrop's fallback after ten boxes that do not fit: the largest centred one within the ratios. */
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
        double area = (double)h * w * random_between(random, augment->scale[0], augment->scale[1]);
        double ratio = exp(random_between(random, low, high));
        double box_w = nearbyint(sqrt(area * ratio)), box_h = nearbyint(sqrt(area / ratio));
        if (box_w < 1 || box_w > w || box_h < 1 || box_h > h) continue;
        struct box box = {.h = (int)box_h, .w = (int)box_w};
        box.y = (int)random_below(random, (uint32_t)(h - box.h + 1));
        box.x = (int)random_below(random, (uint32_t)(w - box.w + 1));
        return box;
    }
    return central_box(augment, h, w);
}

/* The length `other` of an image whose other one becomes `to` from `from`: an integer, as in torchvision. */
static int scaled_side(int other, int to, int from)
{
    int64_t scaled = (int64_t)to * other / from;
    return scaled < INT_MAX ? (int)scaled : INT_MAX;
}

struct image_size image_size_covering(struct image_size own, struct image_size to)
{
    /* The width decides for an image that is narrower than `to`. */
    if ((int64_t)own.h * to.w > (int64_t)own.w * to.h)
        return (struct image_size){scaled_side(own.h, to.w, own.w), to.w};
    return (struct image_size){to.h, scaled_side(own.w, to.h, own.h)};
}

static bool scale_sides(struct image_size to, struct cut *cut, struct reason *reason)
{
    struct image_size size = image_size_covering((struct image_size){cut->from.h, cut->from.w}, to);
    if (size.h > 1 << 24 || size.w > 1 << 24)
        return because(reason, "%dx%d pixels have an extreme aspect ratio", cut->from.w, cut->from.h);
    cut->h = size.h;
    cut->w = size.w;
    return true;
}

/* Moves the window to the resized image. */
static bool place_window(const struct augment *augment, struct random *random, struct cut *cut,
                         struct reason *reason)
{
    struct box *window = &cut->window;
    int pad = random ? augment->pad : 0;
    int spare_h = cut->h + 2 * pad - window->h, spare_w = cut->w + 2 * pad - window->w;
    bool fixed = random ? !augment->crop && pad == 0 : !augment->val_crop;
    if (fixed && (spare_h != 0 || spare_w != 0))
        return because(reason, "%dx%d pixels instead of %dx%d, and no crop is set", cut->w,
                       cut->h, window->w, window->h);
    if (random && augment->random_crop) {
        if (spare_h < 0 || spare_w < 0)
            return because(reason, "%dx%d pixels are too few for a random crop of %dx%d", cut->w, cut->h,
                           window->w, window->h);
        window->y = (int)random_below(random, (uint32_t)spare_h + 1) - pad;
        window->x = (int)random_below(random, (uint32_t)spare_w + 1) - pad;
    } else {
        window->y = centre(cut->h + 2 * pad, window->h) - pad;
        window->x = centre(cut->w + 2 * pad, window->w) - pad;
    }
    return true;
}

static bool cut_window(const struct augment *augment, struct random *random, struct cut *cut,
                       struct reason *reason)
{
    struct image_size to = random ? augment->resize : augment->val_resize;
    if (to.h > 0 && !scale_sides(to, cut, reason)) return false;
    return place_window(augment, random, cut, reason);
}

/* The whole image in the middle of the window, or as large as that; in training moved a little. */
static void cut_fitted(const struct augment *augment, struct random *random, struct cut *cut)
{
    struct box *window = &cut->window;
    double scale = fmin((double)window->h / cut->from.h, (double)window->w / cut->from.w);
    bool stretch = augment->fit == IMAGE_FIT_STRETCH;
    cut->h = stretch ? window->h : clamp((int)lround(cut->from.h * scale), 1, window->h);
    cut->w = stretch ? window->w : clamp((int)lround(cut->from.w * scale), 1, window->w);
    window->y = centre(cut->h, window->h);
    window->x = centre(cut->w, window->w);
    if (!random || augment->pad == 0) return;
    window->y += (int)random_below(random, 2 * (uint32_t)augment->pad + 1) - augment->pad;
    window->x += (int)random_below(random, 2 * (uint32_t)augment->pad + 1) - augment->pad;
}

static void cut_random_box(const struct augment *augment, struct random *random, struct cut *cut)
{
    cut->from = augment_random_box(augment, cut->from.h, cut->from.w, random);
    cut->h = cut->window.h;
    cut->w = cut->window.w;
}

/* RandomAffine. A translation alone moves the window, and needs no resampling. */
static void draw_affine(const struct augment *augment, struct random *random, struct cut *cut)
{
    struct box *window = &cut->window;
    const int sides[] = {window->w, window->h};
    if (augment->rotate > 0) cut->turn = random_between(random, -augment->rotate, augment->rotate);
    for (int i = 0; i < 2; i++)
        if (augment->shear[i] > 0)
            cut->shear[i] = random_between(random, -augment->shear[i], augment->shear[i]);
    for (int i = 0; i < 2; i++) {
        double most = augment->translate[i] * sides[i];
        if (most > 0) cut->shift[i] = (int)nearbyint(random_between(random, -most, most));
    }
    if (cut_is_turned(cut)) return;
    window->x -= cut->shift[0];
    window->y -= cut->shift[1];
    cut->shift[0] = cut->shift[1] = 0;
}

/* The sides of an image whose box is resized, and no longer than this. */
#define WIDENED_MAX (1 << 24)

void augment_widen(const struct cut_sizes *sizes, struct cut *cut)
{
    const struct box from = cut->from, *window = &cut->window;
    if (!cut_is_turned(cut) || (from.h == sizes->full_h && from.w == sizes->full_w)) return;
    double down = (double)cut->h / from.h, across = (double)cut->w / from.w;
    double h = nearbyint(down * sizes->full_h), w = nearbyint(across * sizes->full_w);
    if (h > WIDENED_MAX || w > WIDENED_MAX) return;
    cut->window.y = window->y + (int)nearbyint(down * from.y);
    cut->window.x = window->x + (int)nearbyint(across * from.x);
    cut->from = (struct box){.h = sizes->full_h, .w = sizes->full_w};
    cut->h = (int)h;
    cut->w = (int)w;
}

bool augment_place(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                   struct cut *cut, struct reason *reason)
{
    struct box all = {.h = sizes->full_h, .w = sizes->full_w}, window = {.h = sizes->h, .w = sizes->w};
    *cut = (struct cut){.from = all, .h = all.h, .w = all.w, .window = window};
    if (!random) cut->interpolation = augment->interpolation;
    if (random && augment->random_resized)
        cut_random_box(augment, random, cut);
    else if (augment->fit != IMAGE_FIT_CROP)
        cut_fitted(augment, random, cut);
    else if (!cut_window(augment, random, cut, reason))
        return false;
    cut->flip = random && augment->flip > 0 && random_uniform(random) < augment->flip;
    cut->vflip = random && augment->vflip > 0 && random_uniform(random) < augment->vflip;
    if (random) draw_affine(augment, random, cut);
    cut->reflect = augment->reflect && augment->fit == IMAGE_FIT_CROP;
    return true;
}

bool augment_cut(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                 struct cut *cut, struct reason *reason)
{
    if (!augment_place(augment, random, sizes, cut, reason)) return false;
    augment_widen(sizes, cut);
    return true;
}

/* The pixels of 0..size that are needed for `length` pixels from `at` on: those within it, or one at the
 * nearest edge if there are none, and with `reflect` those reflected into the window. */
static struct pixel_range visible_pixels(int at, int length, int size, bool reflect)
{
    struct pixel_range seen = {.low = clamp(at, 0, size - 1)};
    seen.high = clamp(at + length, seen.low + 1, size);
    if (reflect && at < 0) seen.high = clamp(1 - at, seen.high, size);
    if (reflect && at + length > size) seen.low = clamp(2 * size - 1 - at - length, 0, seen.low);
    return seen;
}

struct box augment_turned_window(const struct cut *cut)
{
    struct turning turning = turning_of(cut, (struct box){0});
    struct place low = turning_place(&turning, 0, 0), high = low;
    for (int i = 1; i < 4; i++) {
        int y = i / 2 * (cut->window.h - 1), x = i % 2 * (cut->window.w - 1);
        struct place corner = turning_place(&turning, y, x);
        low = (struct place){fmin(low.y, corner.y), fmin(low.x, corner.x)};
        high = (struct place){fmax(high.y, corner.y), fmax(high.x, corner.x)};
    }
    int y = (int)floor(low.y) - 1, x = (int)floor(low.x) - 1;
    return (struct box){.y = y, .x = x, .h = (int)ceil(high.y) + 1 - y, .w = (int)ceil(high.x) + 1 - x};
}

/* The part of the image that the window shows. */
static struct box augment_visible(const struct cut *cut)
{
    struct box window = cut_is_turned(cut) ? augment_turned_window(cut) : cut->window;
    struct pixel_range rows = visible_pixels(window.y, window.h, cut->h, cut->reflect);
    struct pixel_range columns = visible_pixels(window.x, window.w, cut->w, cut->reflect);
    return (struct box){.y = rows.low, .x = columns.low,
                        .h = rows.high - rows.low, .w = columns.high - columns.low};
}

static bool is_resized(const struct cut *cut)
{
    return cut->h != cut->from.h || cut->w != cut->from.w;
}

struct box augment_needs(const struct cut *cut)
{
    struct box part = augment_visible(cut);
    if (is_resized(cut)) return resize_reach(&(struct resizing){cut->from, cut->h, cut->w, part,
                                                                cut->interpolation});
    part.y += cut->from.y;
    part.x += cut->from.x;
    return part;
}

/* The ranges that RandomErasing draws from by default: shares of the area, and ratios of height to width. */
#define ERASED_MIN 0.02
#define ERASED_MAX (1 / 3.0)
#define ERASED_RATIO_MIN 0.3
#define ERASED_RATIO_MAX 3.3

bool augment_erased_box(int h, int w, struct random *random, struct box *box)
{
    for (int attempt = 0; attempt < 10; attempt++) {
        double area = (double)h * w * random_between(random, ERASED_MIN, ERASED_MAX);
        double ratio = exp(random_between(random, log(ERASED_RATIO_MIN), log(ERASED_RATIO_MAX)));
        double box_h = nearbyint(sqrt(area * ratio)), box_w = nearbyint(sqrt(area / ratio));
        if (box_h >= h || box_w >= w) continue;
        box->h = (int)box_h;
        box->w = (int)box_w;
        box->y = (int)random_below(random, (uint32_t)(h - box->h + 1));
        box->x = (int)random_below(random, (uint32_t)(w - box->w + 1));
        return true;
    }
    return false;
}

struct box augment_erased(const struct augment *augment, int h, int w, struct random *random)
{
    struct box box, none = {0};
    if (!random || augment->erase <= 0 || random_uniform(random) >= augment->erase) return none;
    return augment_erased_box(h, w, random, &box) ? box : none;
}

/* Zeros, which are the mean's colour. */
static void augment_erase(const struct augment_table *table, int channels, int w, struct box box, char *out)
{
    size_t pixel = (size_t)channels * dtype_bytes(table->dtype);
    for (int y = box.y; y < box.y + box.h; y++)
        memset(out + ((size_t)y * (size_t)w + (size_t)box.x) * pixel, 0, (size_t)box.w * pixel);
}

bool augment_is_varied(const struct augment *augment)
{
    return augment->policy != POLICY_NONE || policy_jitters(augment->jitter) || augment->vflip > 0 ||
           augment->rotate > 0 || augment->shear[0] > 0 || augment->shear[1] > 0 ||
           intensity_varies(&augment->intensity);
}

/* The window of a crop without resizing, in the image's pixels. */
static struct box window_on(const struct cut *cut, const struct image *image)
{
    struct box window = cut->window;
    window.y += cut->from.y - image->top;
    window.x += cut->from.x - image->left;
    return window;
}

/* 3-Augment ends with the jitter; other policies follow it. */
void augment_draw(const struct augment *augment, struct random *random, const struct cut *cut,
                  struct variation *variation)
{
    const struct box *window = &cut->window;
    bool three = augment->policy == POLICY_THREE;
    size_t numbers = (size_t)window->h * (size_t)window->w * (size_t)augment->channels;
    variation->turned = variation->count = 0;
    if (!random || !augment_is_varied(augment)) return;
    if ((variation->turned = cut_is_turned(cut)))
        variation->turning = turning_of(cut, augment_visible(cut));
    if (!three) policy_jitter(augment->jitter, random, variation);
    policy_draw(augment->policy, window->h, window->w, random, variation);
    if (three) policy_jitter(augment->jitter, random, variation);
    intensity_draw(&augment->intensity, numbers, random, variation);
}

size_t augment_picture_bytes(const struct augment *augment, int h, int w)
{
    bool turns = augment->rotate > 0 || augment->shear[0] > 0 || augment->shear[1] > 0;
    size_t side = (size_t)ceil(sqrt((double)h * h + (double)w * w)) + 4;
    return (turns ? side * side : (size_t)h * (size_t)w) * (size_t)augment->channels;
}

/* Cuts the window of a deep image out in floats; colours that reach beyond the range stay so. */
static bool cut_deep(const struct augmenting *how, const struct image *image, const struct cut *cut,
                     struct reason *reason)
{
    const struct augment *augment = how->augment;
    struct image *picture = &how->scratch->picture;
    struct image_range range = image_range_of(image, &augment->range);
    size_t stride = (size_t)cut->window.w * (size_t)image->c;
    if (augment->policy != POLICY_NONE || augment->jitter[3] > 0)
        return because(reason, "has more than 8 bits a sample, for which augment.auto_augment and a jitter "
                       "of the hue are not defined");
    if (!image_resize_deep(picture, cut->window.h, cut->window.w, image->c, (float)range.low,
                           (float)range.high, reason))
        return false;
    for (int y = 0; y < cut->window.h; y++)
        augment_deep_row(cut, image, (float)range.low, y, image_numbers(picture) + (size_t)y * stride);
    return true;
}

/* Cuts the window out into scratch->picture, mirrored and turned. */
static bool cut_picture(const struct augmenting *how, const struct variation *variation,
                        const struct image *image, const struct cut *cut, struct reason *reason)
{
    const struct augment_table bytes = {.dtype = U8};
    struct image *picture = &how->scratch->picture;
    struct cut on = *cut;
    on.window = window_on(cut, image);
    if (image->deep) return cut_deep(how, image, &on, reason);
    if (!image_resize_buffer(picture, cut->window.h, cut->window.w, image->c, reason)) return false;
    if (variation->turned) {
        struct turning turning = variation->turning;
        turning.seen = (struct box){image->top - cut->from.y, image->left - cut->from.x, image->h, image->w};
        augment_turn(&turning, image->pixels, image->c, picture->pixels);
    } else {
        paint_image(&bytes, image, &on, (char *)picture->pixels);
    }
    return true;
}

/* The crop of an image, turned and changed as a variation says. */
static bool vary_crop(const struct augmenting *how, const struct variation *variation,
                      const struct image *image, const struct cut *cut, struct reason *reason)
{
    struct scratch *scratch = how->scratch;
    struct image *picture = &scratch->picture;
    if (!cut_picture(how, variation, image, cut, reason)) return false;
    if (!vary_apply(variation, picture, &scratch->copy, &scratch->intensity, reason)) return false;
    if (image->deep) picture->low = image->low, picture->high = image->high;
    return true;
}

/* The crop after resizing an image's crop. */
static struct cut cut_resized(const struct cut *cut)
{
    struct cut resized = *cut;
    resized.from = (struct box){.h = cut->h, .w = cut->w};
    return resized;
}

/* Resizes the visible part, if necessary, and updates cut and image. */
static bool resize_seen(struct cut *cut, const struct image **image, struct scratch *scratch,
                        struct reason *reason)
{
    if (!is_resized(cut)) return true;
    struct box part = augment_visible(cut);
    const struct resizing resizing = {cut->from, cut->h, cut->w, part, cut->interpolation};
    if (!resize_image(*image, &resizing, &scratch->resized, reason)) return false;
    *cut = cut_resized(cut);
    *image = &scratch->resized;
    scratch->resized.top = part.y;
    scratch->resized.left = part.x;
    return true;
}

/* Resizes, crops and augments: the result is a picture of the window's size, already mirrored. */
static bool make_picture(const struct augmenting *how, const struct variation *variation, struct cut *cut,
                         const struct image **image, struct reason *reason)
{
    if (!resize_seen(cut, image, how->scratch, reason)) return false;
    if (!vary_crop(how, variation, *image, cut, reason)) return false;
    struct box whole = {.h = cut->window.h, .w = cut->window.w};
    *cut = (struct cut){.from = whole, .h = whole.h, .w = whole.w, .window = whole};
    *image = &how->scratch->picture;
    return true;
}

static bool has_channels(const struct augment *augment, const struct image *image, struct reason *reason)
{
    if (image->c == augment->channels) return true;
    return because(reason, "%d channels instead of %d", image->c, augment->channels);
}

/* Does the work that must be done on the CPU; cut and image become those of the result. */
static bool augment_prepare(const struct augmenting *how, const struct variation *variation, bool resize,
                            struct cut *cut, const struct image **image, struct reason *reason)
{
    if (!has_channels(how->augment, *image, reason)) return false;
    if (variation->turned || variation->count > 0) return make_picture(how, variation, cut, image, reason);
    return !resize || resize_seen(cut, image, how->scratch, reason);
}

bool augment_apply(const struct augmenting *how, const struct augment_table *table, const struct cut *cut,
                   const struct image *image, void *out, struct reason *reason)
{
    struct cut left = *cut;
    struct variation variation;
    augment_draw(how->augment, how->random, cut, &variation);
    if (!augment_prepare(how, &variation, true, &left, &image, reason)) return false;
    struct box window = left.window = window_on(&left, image);
    if (image->deep) paint_deep(how->augment, table, image, &left, out);
    else paint_image(table, image, &left, out);
    augment_erase(table, image->c, window.w,
                  augment_erased(how->augment, window.h, window.w, how->random), out);
    return true;
}

struct image_record augment_record(const struct cut *cut, int top, int left)
{
    bool turned = cut_is_turned(cut);
    struct image_record record = {.flip = cut->flip && !turned, .vflip = cut->vflip && !turned,
                                  .reflect = cut->reflect && !turned, .h = cut->h, .w = cut->w,
                                  .from = cut->from, .window = turned ? augment_visible(cut) : cut->window};
    record.from.y -= top;
    record.from.x -= left;
    return record;
}

bool augment_leave(const struct augmenting *how, const struct variation *variation, bool resize,
                   const struct cut *cut, const struct image *image, struct augment_part *part,
                   struct reason *reason)
{
    static const struct variation none;
    struct cut left = *cut;
    if (!augment_prepare(how, variation ? variation : &none, resize, &left, &image, reason)) return false;
    struct box needs = augment_needs(&left);
    int64_t stride = (int64_t)image->w * image->c;
    const uint8_t *pixels =
        image->pixels + (needs.y - image->top) * stride + (needs.x - image->left) * image->c;
    *part = (struct augment_part){pixels, stride, needs.h, needs.w, augment_record(&left, needs.y, needs.x)};
    part->record.erased = augment_erased(how->augment, cut->window.h, cut->window.w, how->random);
    return true;
}

void scratch_free(struct scratch *scratch)
{
    image_free(&scratch->resized);
    image_free(&scratch->picture);
    image_free(&scratch->copy);
    intensity_scratch_free(&scratch->intensity);
}

bool augment_image(const struct augmenting *how, const struct image *image, const struct augment_output *out,
                   struct reason *reason)
{
    const struct cut_sizes sizes = {image->h, image->w, out->h, out->w};
    struct cut cut;
    if (!augment_cut(how->augment, how->random, &sizes, &cut, reason)) return false;
    struct augment_table table = augment_table_make(how->augment, out->dtype);
    bool good = augment_apply(how, &table, &cut, image, out->data, reason);
    augment_table_free(&table);
    return good;
}
