#include "fuzz_images.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/dataset/masks.h"

#define PIXELS_MAX (1 << 18)   /* larger ones are refused when their size is known, for the sake of time */
#define SIDE_MAX 40            /* of what is cut out */
#define READ_MAX 16            /* images of a data set */

/* The crop that an image is decoded for. */
struct wish {
    const struct augment *augment;
    struct random *random;     /* NULL: evaluation */
    int h, w;
    struct cut cut;
    bool whole, asked;
};

static bool choose(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct wish *wish = context;
    fuzz_must(h > 0 && w > 0);
    if ((int64_t)h * w > PIXELS_MAX) return because(reason, "too large to be tried");
    wish->asked = true;
    *part = (struct box){.h = h, .w = w};
    if (wish->whole) return true;
    const struct cut_sizes sizes = {h, w, wish->h, wish->w};
    if (!augment_cut(wish->augment, wish->random, &sizes, &wish->cut, reason)) return false;
    *part = augment_needs(&wish->cut);
    fuzz_must(part->y >= 0 && part->x >= 0 && part->h > 0 && part->w > 0);
    fuzz_must(part->y + part->h <= h && part->x + part->w <= w);
    return true;
}

/* None, or of 0 to 47 pixels each way. */
static struct image_size size_of(struct random *random)
{
    struct image_size size = {(int)random_below(random, 48), (int)random_below(random, 48)};
    bool none = random_below(random, 2) || size.h == 0 || size.w == 0;
    return none ? image_size_square(0) : size;
}

static struct augment draw_augment(int channels, struct random *random)
{
    struct augment augment = {.channels = channels, .flip = 0.5};
    augment.scale[0] = 0.08, augment.scale[1] = 1;
    augment.ratio[0] = 0.75, augment.ratio[1] = 4 / 3.0;
    for (int k = 0; k < channels; k++) augment.mean[k] = 0.5, augment.std[k] = 0.25;
    for (int k = 0; k < 4; k++) augment.jitter[k] = random_below(random, 2) ? 0.4 : 0;
    augment.crop = augment.val_crop = true;
    augment.random_resized = random_below(random, 2);
    augment.random_crop = random_below(random, 2);
    augment.pad = (int)random_below(random, 2) * 4;
    augment.policy = (enum policy)random_below(random, 4);
    augment.erase = random_below(random, 2);
    augment.resize = size_of(random);
    augment.val_resize = size_of(random);
    augment.vflip = random_below(random, 2) ? 0.5 : 0;
    augment.rotate = random_below(random, 2) ? 30 : 0;
    augment.interpolation = (enum interpolation)random_below(random, 2);
    for (int i = 0; i < 2; i++) augment.shear[i] = random_below(random, 2) ? 40 : 0;
    for (int i = 0; i < 2; i++) augment.translate[i] = random_below(random, 2) ? 0.5 : 0;
    augment.intensity = (struct intensity){0.5, {0.5, 0.5, 2}, {0.5, 0.1, 3}, {0.5, 0, 0.5}};
    return augment;
}

/* Pixels that a part and the whole have in common are the same. */
static void compare(const struct image *part, const struct image *whole, const struct box *needed)
{
    fuzz_must(part->c == whole->c && part->full_h == whole->h && part->full_w == whole->w);
    fuzz_must(part->top <= needed->y && part->top + part->h >= needed->y + needed->h);
    fuzz_must(part->left <= needed->x && part->left + part->w >= needed->x + needed->w);
    for (int y = needed->y; y < needed->y + needed->h; y++) {
        size_t c = image_pixel_bytes(whole);
        const uint8_t *a = part->pixels + ((size_t)(y - part->top) * (size_t)part->w +
                                           (size_t)(needed->x - part->left)) * c;
        const uint8_t *b = whole->pixels + ((size_t)y * (size_t)whole->w + (size_t)needed->x) * c;
        fuzz_must(memcmp(a, b, (size_t)needed->w * c) == 0);
    }
}

static void apply(const struct wish *wish, const struct image *image)
{
    static const enum dtype dtypes[] = {F32, F16, BF16};
    struct reason reason = fuzz_reason();
    struct scratch scratch = {0};
    float *out = memory_new((size_t)wish->h * (size_t)wish->w * (size_t)image->c, sizeof *out);
    struct augment_table table = augment_table_make(wish->augment, dtypes[wish->h % 3]);
    const struct augmenting how = {wish->augment, wish->random, &scratch};
    if (!augment_apply(&how, &table, &wish->cut, image, out, &reason))
        fuzz_check_reason(&reason);
    augment_table_free(&table);
    free(out);
    scratch_free(&scratch);
}

static void encode(const struct image *image)
{
    struct reason reason = fuzz_reason();
    struct image again = {0}, reduced = {0};
    uint8_t *bytes;
    size_t count;
    if (image->deep) {
        fuzz_must(image_reduce(image, &(struct image_range){0}, &reduced, &reason));
        encode(&reduced);
        image_free(&reduced);
        return;
    }
    fuzz_must(image_encode_jpeg(image, 90, &bytes, &count, &reason));
    const struct image_options options = {.channels = image->c};
    fuzz_must(image_decode(bytes, count, options, NULL, &again, &reason));
    fuzz_must(again.h == image->h && again.w == image->w && again.c == image->c);
    image_free(&again);
    free(bytes);
}

void fuzz_image_file(const uint8_t *data, size_t size)
{
    struct random random = fuzz_random(data, size);
    const struct image_options options = {.channels = random_below(&random, 2) ? 3 : 1,
                                          .ignore_orientation = size % 16 == 0};
    struct augment augment = draw_augment(options.channels, &random);
    struct wish part = {.augment = &augment, .random = random_below(&random, 4) ? &random : NULL};
    part.h = 1 + (int)random_below(&random, SIDE_MAX);
    part.w = 1 + (int)random_below(&random, SIDE_MAX);
    struct wish all = {.whole = true};
    struct image some = {0}, whole = {0};
    struct reason reason = fuzz_reason();
    const struct image_choice for_part = {choose, &part}, for_all = {choose, &all};
    fuzz_must(image_extent(data, size) > 0 && image_extent(data, size) <= size);
    bool have_part = image_decode(data, size, options, &for_part, &some, &reason);
    if (!have_part) fuzz_check_reason(&reason);
    bool have_all = image_decode(data, size, options, &for_all, &whole, &reason);
    if (!have_all) fuzz_check_reason(&reason);
    if (have_part && have_all) {
        struct box needed = augment_needs(&part.cut);
        compare(&some, &whole, &needed);
    }
    if (have_part) apply(&part, &some);
    if (have_all && size % 8 == 0) encode(&whole);
    image_free(&some);
    image_free(&whole);
}

/* Targets of images whose labels are no classes. */
static void check_targets(const struct dataset *dataset)
{
    float *target = memory_new((size_t)dataset->classes, sizeof *target);
    fuzz_must(dataset->target != TARGET_NUMBER || dataset->classes == 1);
    for (int64_t i = 0; i < dataset->count; i += 1 + dataset->count / READ_MAX) {
        dataset_target(dataset, i, 0, 1, target);
        for (int k = 0; k < dataset->classes; k++)
            fuzz_must(dataset->target == TARGET_NUMBER ? fabsf(target[k]) <= (float)TARGET_NUMBER_MAX
                                                       : target[k] == 0 || target[k] == 1);
    }
    free(target);
}

static void check_masks(const struct dataset *dataset)
{
    struct image mask = {0};
    fuzz_must(dataset->masks && dataset->masks->classes == dataset->classes);
    for (int64_t i = 0; i < dataset->count; i += 1 + dataset->count / READ_MAX) {
        struct reason reason = fuzz_reason();
        bool wrong;
        if (!masks_read(dataset, i, &mask, &wrong, &reason)) {
            fuzz_check_reason(&reason);
            continue;
        }
        for (int k = 0; k < mask.h * mask.w; k++)
            fuzz_must(mask.pixels[k] < dataset->classes || mask.pixels[k] == MASK_IGNORE);
    }
    image_free(&mask);
}

void fuzz_dataset(const char *format, const struct dataset_options *options, const char *name)
{
    struct dataset dataset = {0};
    struct image image = {0};
    struct wish all = {.whole = true};
    const struct image_choice choice = {choose, &all};
    if (!fuzz_good(dataset_open(format_find(format), options, &dataset), name)) return;
    fuzz_must(dataset.count > 0 && dataset.classes > 0 && dataset.c >= 1 && dataset.c <= IMAGE_CHANNELS_MAX);
    fuzz_must(dataset.h >= 0 && (dataset.h > 0) == (dataset.w > 0));
    for (int i = 0; i < dataset.classes; i++) fuzz_must(dataset.class_names[i]);
    for (int64_t i = 0; i < dataset.count; i += 1 + dataset.count / READ_MAX) {
        struct reason reason = fuzz_reason();
        int label = -1;
        if (!dataset.format->read(&dataset, i, &choice, &image, &label, &reason)) {
            fuzz_check_reason(&reason);
            continue;
        }
        fuzz_must(label >= 0 && label < dataset.classes && image.c == dataset.c);
        fuzz_must(dataset.format->label(&dataset, i) == label);
        fuzz_must(dataset.h == 0 || (image.h == dataset.h && image.w == dataset.w));
        fuzz_must(image.pixels[(size_t)image.h * (size_t)image.w * (size_t)image.c - 1] <= 255);
    }
    if (dataset.target == TARGET_MASK) check_masks(&dataset);
    if (target_is_row(dataset.target) && dataset.classes <= READ_MAX) check_targets(&dataset);
    image_free(&image);
    dataset_close(&dataset);
}
