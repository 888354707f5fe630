/* Images generated on the fly, for benchmarks and tests: stripes whose direction, width and colour depend on
 * the class, with a random phase, under noise; with masks, in 4 x 4 parts of different classes. Integer
 * arithmetic only, so that they are the same everywhere. */
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/machine.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "data/dataset/dataset.h"

#define WAVE 256
#define NOISE 4096

/* How the stripes of a class advance, in 1/256 of a wave a pixel, and their mean brightness. */
struct stripes {
    uint8_t along_x, along_y;
    const uint8_t *brightness; /* [channels] */
};

struct synthetic {
    uint64_t seed;
    int classes;
    enum split split;
    uint8_t wave[WAVE];        /* one wave, from 0 to 128 */
    uint8_t *noise;            /* NOISE numbers from 0 to 31, and again from the first as far as a row
                                * goes; each row takes them from another place on */
    struct stripes *stripes;   /* [classes] */
    uint8_t *brightness;       /* [classes][channels] */
};

/* `b` of the purpose's streams: images have the split there, the rest what no split is. */
#define CLASSES_STREAM 2
#define NOISE_STREAM 3

static void make_tables(struct synthetic *synthetic, size_t row_bytes)
{
    struct random random = random_open(synthetic->seed, PURPOSE_SYNTHETIC, 0, NOISE_STREAM);
    for (int i = 0; i < WAVE; i++)
        synthetic->wave[i] = (uint8_t)lround(64 + 64 * sin(2 * 3.14159265358979323846 * i / WAVE));
    synthetic->noise = memory_new(NOISE + row_bytes, 1);
    for (int i = 0; i < NOISE; i++) synthetic->noise[i] = (uint8_t)random_below(&random, 32);
    for (size_t i = 0; i < row_bytes; i++) synthetic->noise[NOISE + i] = synthetic->noise[i];
}

static void choose_stripes(struct synthetic *synthetic, int classes, int channels)
{
    uint8_t *brightness = synthetic->brightness = memory_new((size_t)classes, (size_t)channels);
    synthetic->stripes = memory_new((size_t)classes, sizeof *synthetic->stripes);
    for (int i = 0; i < classes; i++, brightness += channels) {
        struct random random =
            random_open(synthetic->seed, PURPOSE_SYNTHETIC, (uint64_t)i, CLASSES_STREAM);
        struct stripes *stripes = &synthetic->stripes[i];
        stripes->along_x = (uint8_t)(4 + random_below(&random, 48));
        stripes->along_y = (uint8_t)(4 + random_below(&random, 48));
        for (int k = 0; k < channels; k++) brightness[k] = (uint8_t)random_below(&random, 96);
        stripes->brightness = brightness;
    }
}

static enum status synthetic_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct synthetic *synthetic = dataset->state = memory_new(1, sizeof *synthetic);
    synthetic->seed = options->seed;
    synthetic->split = options->split;
    int64_t count = options->split == SPLIT_TRAIN ? 10000 : 2000;
    dataset->count = options->synthetic_count > 0 ? options->synthetic_count : count;
    dataset->classes = synthetic->classes = options->classes > 0 ? options->classes : 10;
    dataset->numbered = true;
    dataset->h = options->h > 0 ? options->h : 32;
    dataset->w = options->w > 0 ? options->w : dataset->h;
    dataset->c = options->c > 0 ? options->c : 3;
    make_tables(synthetic, (size_t)dataset->w * (size_t)dataset->c);
    choose_stripes(synthetic, dataset->classes, dataset->c);
    dataset->class_names = text_list(NULL, 0, dataset->classes);
    if (options->target != TARGET_MASK) return OK;
    if (dataset->classes > MASK_CLASSES_MAX)
        return fail(USAGE, "data.format = synthetic: masks have at most %d classes", MASK_CLASSES_MAX);
    dataset->target = TARGET_MASK;
    dataset->masks = memory_new(1, sizeof *dataset->masks);
    mask_classes_numbers(dataset->classes, NULL, 0, true, dataset->masks);
    return OK;
}

/* The class of a part of an image with a mask; other images are of one class. */
#define PARTS 4

static int class_of_part(const struct dataset *dataset, int64_t index, int row, int column)
{
    const struct synthetic *synthetic = dataset->state;
    int part = dataset->masks ? PARTS * row + column : 0;
    return (int)((index + part) % synthetic->classes);
}

/* Brightness (up to 95) + wave (up to 128) + noise (up to 31) stays below 256. */
INLINE void synthetic_add_up(const uint8_t *restrict wave, const uint8_t *restrict noise,
                             const uint8_t *restrict brightness, int w, int c, uint8_t *restrict to)
{
    for (int x = 0; x < w; x++)
        for (int k = 0; k < c; k++) to[x * c + k] = (uint8_t)(brightness[k] + wave[x] + noise[x * c + k]);
}

/* Pixels first .. end - 1 of row y of the image, in blocks of its wave. */
static EVERY_MACHINE(void, draw_row, (const struct synthetic *synthetic, const struct stripes *stripes,
                     unsigned phase, unsigned place, const struct image *image, int y, int first, int end),
                     (synthetic, stripes, phase, place, image, y, first, end))
{
    int w = end - first, c = image->c;
    uint8_t *to = image->pixels + ((size_t)y * (size_t)image->w + (size_t)first) * (size_t)c;
    const uint8_t *noise = synthetic->noise + place % NOISE;
    uint8_t wave[WAVE];
    for (int x = 0; x < w; x += WAVE, noise += WAVE * c, to += WAVE * c) {
        int count = w - x < WAVE ? w - x : WAVE;
        for (int i = 0; i < count; i++, phase += stripes->along_x) wave[i] = synthetic->wave[phase % WAVE];
        if (c == 3)
            synthetic_add_up(wave, noise, stripes->brightness, count, 3, to);
        else
            synthetic_add_up(wave, noise, stripes->brightness, count, c, to);
    }
}

static int synthetic_label(const struct dataset *dataset, int64_t index)
{
    const struct synthetic *synthetic = dataset->state;
    return dataset_number(dataset, (int)(index % synthetic->classes));
}

static bool synthetic_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                           struct image *image, int *label, struct reason *reason)
{
    const struct synthetic *synthetic = dataset->state;
    if (!image_resize_buffer(image, dataset->h, dataset->w, dataset->c, reason)) return false;
    *label = synthetic_label(dataset, index);
    int parts = dataset->masks ? PARTS : 1;
    struct random random =
        random_open(synthetic->seed, PURPOSE_SYNTHETIC, (uint64_t)index, (uint64_t)synthetic->split);
    unsigned phase = random_next(&random);
    for (int y = 0; y < image->h; y++) {
        unsigned noise = random_next(&random);
        for (int k = 0; k < parts; k++) {
            const struct stripes *stripes =
                &synthetic->stripes[class_of_part(dataset, index, parts * y / image->h, k)];
            draw_row(synthetic, stripes, phase + (unsigned)y * stripes->along_y, noise, image, y,
                     image->w * k / parts, image->w * (k + 1) / parts);
        }
    }
    return true;
}

static char *synthetic_mask_path(const struct dataset *dataset, int64_t index)
{
    return text_format("synthetic mask %" PRId64, index);
}

static bool synthetic_read_mask(const struct dataset *dataset, int64_t index, struct image *mask,
                                struct reason *reason)
{
    if (!image_resize_buffer(mask, dataset->h, dataset->w, 1, reason)) return false;
    for (int y = 0; y < mask->h; y++)
        for (int k = 0; k < PARTS; k++) {
            int first = mask->w * k / PARTS, end = mask->w * (k + 1) / PARTS;
            int class = dataset_number(dataset, class_of_part(dataset, index, PARTS * y / mask->h, k));
            memset(mask->pixels + (size_t)y * (size_t)mask->w + first, class, (size_t)(end - first));
        }
    return true;
}

static void synthetic_mask_contents(const struct dataset *dataset, int64_t index,
                                    struct image_contents *contents)
{
    contents->bytes = (int64_t)dataset->h * dataset->w;
}

static void synthetic_close(struct dataset *dataset)
{
    struct synthetic *synthetic = dataset->state;
    if (!synthetic) return;
    free(synthetic->noise);
    free(synthetic->stripes);
    free(synthetic->brightness);
    free(synthetic);
}

const struct format format_synthetic = {
    .name = "synthetic",
    .one_size = true,
    .help = "synthetic images with one pattern per class, for benchmarks; takes no path",
    .open = synthetic_open,
    .read = synthetic_read,
    .label = synthetic_label,
    .masks = &(const struct format_masks){.path = synthetic_mask_path, .read = synthetic_read_mask,
                                          .contents = synthetic_mask_contents},
    .close = synthetic_close,
};
