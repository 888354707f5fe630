/* augment_mask.c: the crop of a mask, and crops that must hold some of it. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/image/mask.h"

/* Crops that are drawn until one holds a class other than the first. */
#define TRIES 10

/* The nearest pixel of `size` that are brought to `target`; -1: outside. */
static int nearest(int i, int size, int target, bool reflect)
{
    i = image_record_pixel(i, target, reflect);
    return i >= 0 && i < target ? (int)((2 * (int64_t)i + 1) * size / (2 * (int64_t)target)) : -1;
}

/* An index of a pixel that is within the image: places in it tell by themselves. */
#define WITHIN (-2)

/* The pixels of a mask that the places of a crop, turned or not, are nearest to. */
struct mask_view {
    const struct image *mask;
    struct turning turning;
    struct box range;          /* of the places */
    struct box from;           /* of the mask: what is resized */
    double down, across;       /* pixels of the mask a pixel of the resized image */
    int *rows, *columns;       /* [range.h], [range.w]: of the mask; WITHIN; -1: outside */
};

/* A place of a row: the pixels of the resized image, from the view's range on, and those of the mask. */
struct mask_places {
    int *rows, *columns, *near_rows, *near_columns;
};

/* The index of pixel i of `target`, beyond which it may be reflected, that show `size` from `first` on. */
static int mask_index(int i, int first, int size, int target, bool reflect)
{
    if (i >= 0 && i < target) return WITHIN;
    int pixel = nearest(i, size, target, reflect);
    return pixel < 0 ? -1 : first + pixel;
}

static struct mask_view mask_view_open(const struct cut *cut, const struct image *mask)
{
    const struct box *from = &cut->from;
    struct mask_view view = {.mask = mask, .turning = turning_of(cut, (struct box){0}),
                             .range = augment_turned_window(cut), .from = *from,
                             .down = (double)from->h / cut->h, .across = (double)from->w / cut->w};
    const struct box *range = &view.range;
    view.rows = memory_new((size_t)(range->h + range->w), sizeof *view.rows);
    view.columns = view.rows + range->h;
    for (int i = 0; i < range->h; i++)
        view.rows[i] = mask_index(range->y + i, from->y, from->h, cut->h, cut->reflect);
    for (int i = 0; i < range->w; i++)
        view.columns[i] = mask_index(range->x + i, from->x, from->w, cut->w, cut->reflect);
    return view;
}

static void mask_view_close(struct mask_view *view)
{
    free(view->rows);
}

static EVERY_MACHINE(void, mask_find_places, (const struct mask_view *view, int y, struct mask_places places),
                     (view, y, places))
{
    const struct turning own = view->turning;
    const struct box from = view->from, range = view->range;
    double down = view->down, across = view->across;
    int *restrict rows = places.rows, *restrict columns = places.columns;
    int *restrict near_rows = places.near_rows, *restrict near_columns = places.near_columns;
#pragma omp simd
    for (int x = 0; x < own.window.w; x++) {
        struct place place = turning_place(&own, y, x);
        int row = (int)(place.y * down), column = (int)(place.x * across);
        rows[x] = (int)floor(place.y) - range.y;
        columns[x] = (int)floor(place.x) - range.x;
        near_rows[x] = from.y + (row < from.h ? row : from.h - 1);
        near_columns[x] = from.x + (column < from.w ? column : from.w - 1);
    }
}

/* Row y of the crop; `room` is for four numbers a pixel. */
static void mask_view_row(const struct mask_view *view, int y, int *room, uint8_t *out)
{
    int w = view->turning.window.w;
    const struct mask_places places = {room, room + w, room + 2 * w, room + 3 * w};
    mask_find_places(view, y, places);
    for (int x = 0; x < w; x++) {
        int row = view->rows[places.rows[x]], column = view->columns[places.columns[x]];
        row = row == WITHIN ? places.near_rows[x] : row;
        column = column == WITHIN ? places.near_columns[x] : column;
        size_t pixel = (size_t)row * (size_t)view->mask->w + (size_t)column;
        out[x] = row < 0 || column < 0 ? MASK_IGNORE : view->mask->pixels[pixel];
    }
}

static void mask_turned(const struct cut *cut, const struct image *mask, uint8_t *out)
{
    struct mask_view view = mask_view_open(cut, mask);
    int *room = memory_new(4 * (size_t)cut->window.w, sizeof *room);
    for (int y = 0; y < cut->window.h; y++, out += cut->window.w) mask_view_row(&view, y, room, out);
    free(room);
    mask_view_close(&view);
}

void augment_mask(const struct cut *cut, const struct image *mask, uint8_t *out)
{
    const struct box *window = &cut->window, *from = &cut->from;
    if (cut_is_turned(cut)) {
        mask_turned(cut, mask, out);
        return;
    }
    int *columns = memory_new((size_t)window->w, sizeof *columns);
    for (int x = 0; x < window->w; x++)
        columns[x] = nearest(window->x + (cut->flip ? window->w - 1 - x : x), from->w, cut->w, cut->reflect);
    for (int y = 0; y < window->h; y++, out += window->w) {
        int row = nearest(window->y + (cut->vflip ? window->h - 1 - y : y), from->h, cut->h, cut->reflect);
        if (row < 0) {
            memset(out, MASK_IGNORE, (size_t)window->w);
            continue;
        }
        const uint8_t *pixels = mask->pixels + (size_t)(from->y + row) * (size_t)mask->w + from->x;
        for (int x = 0; x < window->w; x++) out[x] = columns[x] < 0 ? MASK_IGNORE : pixels[columns[x]];
    }
    free(columns);
}

/* True if a class is neither the first nor MASK_IGNORE. */
static bool is_foreground(uint8_t class) { return class != 0 && class != MASK_IGNORE; }

struct pixel {
    int y, x;
};

/* A pixel of the foreground, each class of which is as likely; false: there is none. */
static bool draw_pixel(const struct image *mask, struct random *random, struct pixel *pixel)
{
    size_t count = (size_t)mask->h * (size_t)mask->w;
    uint32_t pixels[256] = {0}, classes = 0;
    for (size_t i = 0; i < count; i++) pixels[mask->pixels[i]]++;
    for (int i = 0; i < 256; i++) classes += pixels[i] > 0 && is_foreground((uint8_t)i);
    if (classes == 0) return false;
    int class = 0;
    for (uint32_t left = random_below(random, classes) + 1; left > 0;)
        left -= pixels[++class] > 0 && is_foreground((uint8_t)class);
    size_t at = 0;
    for (uint32_t left = random_below(random, pixels[class]) + 1; left > 0; at++)
        left -= mask->pixels[at] == class;
    at--;
    *pixel = (struct pixel){(int)(at / (size_t)mask->w), (int)(at % (size_t)mask->w)};
    return true;
}

/* A beginning from `low` to `high`, drawn so that `length` from there on hold `pixel`. */
static int draw_around(struct random *random, int pixel, int length, int low, int high)
{
    if (low < pixel - length + 1) low = pixel - length + 1;
    if (high > pixel) high = pixel;
    return high > low ? low + (int)random_below(random, (uint32_t)(high - low) + 1) : low;
}

/* The beginning of a part of `length` among `whole` pixels that is brought to `target`: drawn so that the
 * pixel is in it, and moved so that it is the nearest one to one of the output. */
static int draw_part(struct random *random, int pixel, int length, int whole, int target)
{
    int at = draw_around(random, pixel, length, 0, whole - length);
    int i = (int)((int64_t)(pixel - at) * target / length), moved = pixel - nearest(i, length, target, false);
    return moved < 0 || moved > whole - length ? at : moved;
}

static int scaled(int pixel, int size, int target)
{
    return (int)((2 * (int64_t)pixel + 1) * target / (2 * (int64_t)size));
}

/* Moves the crop so that it holds the pixel, where it can be moved. */
static void move_to(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                    struct pixel pixel, struct cut *cut)
{
    struct box *from = &cut->from, *window = &cut->window;
    int pad = augment->pad;
    if (augment->random_resized) {
        from->y = draw_part(random, pixel.y, from->h, sizes->full_h, cut->h);
        from->x = draw_part(random, pixel.x, from->w, sizes->full_w, cut->w);
    } else if (augment->fit == IMAGE_FIT_CROP && augment->random_crop) {
        window->y = draw_around(random, scaled(pixel.y, from->h, cut->h), window->h, -pad,
                                cut->h + pad - window->h);
        window->x = draw_around(random, scaled(pixel.x, from->w, cut->w), window->w, -pad,
                                cut->w + pad - window->w);
    }
}

/* The crop as it lies in the image, neither turned nor translated. */
static void hold_still(const struct augment *augment, struct cut *cut)
{
    cut->turn = cut->shear[0] = cut->shear[1] = 0;
    cut->shift[0] = cut->shift[1] = 0;
    if (augment->random_resized) cut->window.y = cut->window.x = 0;
}

static bool holds_foreground(const struct cut_sizes *sizes, struct cut cut, const struct image *mask)
{
    augment_widen(sizes, &cut);
    struct mask_view view = mask_view_open(&cut, mask);
    int w = cut.window.w, *room = memory_new(4 * (size_t)w, sizeof *room);
    uint8_t *row = memory_new((size_t)w, 1);
    bool holds = false;
    for (int y = 0; y < cut.window.h && !holds; y++) {
        mask_view_row(&view, y, room, row);
        for (int x = 0; x < w; x++) holds |= is_foreground(row[x]);
    }
    free(room);
    free(row);
    mask_view_close(&view);
    return holds;
}

bool augment_cut_masked(const struct augment *augment, struct random *random, const struct cut_sizes *sizes,
                        const struct image *mask, struct cut *cut, struct reason *reason)
{
    struct pixel pixel;
    if (mask->h != sizes->full_h || mask->w != sizes->full_w)
        return because(reason, "%dx%d pixels, but the mask has %dx%d", sizes->full_w, sizes->full_h, mask->w,
                       mask->h);
    bool wanted = random && augment->foreground > 0 && random_uniform(random) < augment->foreground;
    if (!augment_place(augment, random, sizes, cut, reason)) return false;
    for (int i = 0; wanted && i < TRIES && draw_pixel(mask, random, &pixel); i++) {
        if (i > 0 && !augment_place(augment, random, sizes, cut, reason)) return false;
        if (i == TRIES - 1) hold_still(augment, cut);
        move_to(augment, random, sizes, pixel, cut);
        if (holds_foreground(sizes, *cut, mask)) break;
    }
    augment_widen(sizes, cut);
    return true;
}
