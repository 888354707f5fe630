/* Batches of images and masks: each mask is cut as its image is, whatever the threads, caches and ranks; what
 * is said of pairs that cannot be used. */
#include <png.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/dataset/masks.h"
#include "data/loader/loader.h"
#include "tests/support/caught.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"

#define COUNT 13
#define BATCH 4
#define H 16
#define W 12
#define BRIGHT 80              /* the grey of class 1; 2 is twice as bright */

static char *folder;

static void write_pair(int i, int h, int w, int mask_w)
{
    static uint8_t image[64 * 64], mask[64 * 64];
    struct random random = random_open(1, PURPOSE_TEST, 0, (uint64_t)i);
    char name[32];
    for (int k = 0; k < h * w; k++) {
        mask[k] = (uint8_t)(k % 7 ? 0 : random_below(&random, 3));
        image[k] = (uint8_t)(BRIGHT * mask[k]);
    }
    snprintf(name, sizeof name, "images/%02d.png", i);
    case_write_bytes(folder, name, case_png(w, h, 8, PNG_COLOR_TYPE_GRAY, false, image));
    snprintf(name, sizeof name, "masks/%02d.png", i);
    case_write_bytes(folder, name, case_png(mask_w, h, 8, PNG_COLOR_TYPE_GRAY, false, mask));
}

/* Pairs of several sizes. */
static int enter(void **state)
{
    folder = case_folder();
    for (int i = 0; i < COUNT; i++) write_pair(i, 20 + i % 3, 24 - i % 2, 24 - i % 2);
    return 0;
}

static int leave(void **state)
{
    case_remove(folder);
    return 0;
}

static struct dataset pairs(void)
{
    struct dataset dataset;
    const struct dataset_options options = {
        .path = folder, .target = TARGET_MASK, .c = 1, .masks = {.classes = "3", .ignore = true}};
    assert_int_equal(dataset_open(format_find("folder"), &options, &dataset), OK);
    return dataset;
}

static struct loader_options training(struct dataset *dataset)
{
    return (struct loader_options){
        .dataset = dataset, .count = dataset->count, .target = TARGET_MASK, .classes = 3,
        .augment = {.crop = true, .random_crop = true, .pad = 2, .flip = 0.5, .vflip = 0.5, .foreground = 0.5,
                    .channels = 1, .std = {1 / 255.0}},
        .training = true, .shuffle = true, .batch = BATCH, .h = H, .w = W, .channels = 1, .dtype = F32,
        .workers = 1, .prefetch = 2, .seed = 42,
    };
}

static struct loader *opened(const struct loader_options *options)
{
    struct loader *loader;
    assert_int_equal(loader_open(options, &loader), OK);
    return loader;
}

/* Masks of an epoch, one batch after another, in new memory. */
static uint8_t *masks_of(const struct loader_options *options, int64_t epoch, int64_t first)
{
    struct loader *loader = opened(options);
    struct batch *batch;
    int count = options->ranks ? options->batch / options->ranks : options->batch;
    size_t share = (size_t)count * H * W, at = 0;
    uint8_t *all = memory_new((size_t)loader_batches(loader) * share, 1);
    assert_int_equal(loader_start(loader, epoch, first), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        memcpy(all + at, batch->masks, share);
        at += share;
        loader_return(loader, batch);
    }
    loader_close(loader);
    return all;
}

static void masks_are_those_of_their_images(void **state)
{
    struct dataset dataset = pairs();
    struct loader_options options = training(&dataset);
    struct batch *batch;
    int ignored = 0, foreground = 0;
    for (int64_t epoch = 0; epoch < 5; epoch++) {
        struct loader *loader = opened(&options);
        assert_int_equal(loader_start(loader, epoch, 0), OK);
        while (loader_next(loader, &batch, NULL) == OK && batch) {
            const float *pixels = batch->images;
            assert_null(batch->targets);
            for (int i = 0; i < BATCH * H * W; i++) {
                int grey = (int)(pixels[i] + 0.5f), class = batch->masks[i];
                assert_int_equal(grey, class == MASK_IGNORE ? 0 : BRIGHT * class);
                ignored += class == MASK_IGNORE;
                foreground += class == 1 || class == 2;
            }
            loader_return(loader, batch);
        }
        loader_close(loader);
    }
    assert_true(ignored > 0 && foreground > 0);
    dataset_close(&dataset);
}

static void nothing_but_the_epoch_changes_masks(void **state)
{
    struct dataset dataset = pairs();
    struct loader_options options = training(&dataset);
    size_t bytes = COUNT / BATCH * BATCH * H * W;
    uint8_t *want = masks_of(&options, 1, 0);
    uint8_t *other = masks_of(&options, 2, 0);
    assert_memory_not_equal(want, other, bytes);
    free(other);
    const struct image_cache_options cached = {.dataset = &dataset, .masks = true, .limit = 1 << 20};
    for (int i = 0; i < 6; i++) {
        struct loader_options others = options;
        struct image_cache *cache = i == 2 || i == 3 ? image_cache_open(&cached) : NULL;
        if (i == 1 || i == 3) others.workers = 4;
        if (i == 4) others.device_preprocessing = true;
        if (i == 5) others.prefetch = 5;
        others.mask_cache = cache;
        for (int round = 0; round < 2; round++) {
            uint8_t *got = masks_of(&others, 1, 0);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        if (cache) assert_true(image_cache_bytes(cache) > COUNT * 20 * 23);
        image_cache_close(cache);
    }
    /* Resumed at the second batch. */
    uint8_t *rest = masks_of(&options, 1, 1);
    assert_memory_equal(rest, want + BATCH * H * W, bytes - BATCH * H * W);
    free(rest);
    /* Two ranks have half of each batch. */
    for (int rank = 0; rank < 2; rank++) {
        struct loader_options others = options;
        others.ranks = 2;
        others.rank = rank;
        uint8_t *half = masks_of(&others, 1, 0);
        for (int i = 0; i < COUNT / BATCH; i++)
            assert_memory_equal(half + i * BATCH / 2 * H * W, want + (i * BATCH + rank * BATCH / 2) * H * W,
                                BATCH / 2 * H * W);
        free(half);
    }
    free(want);
    dataset_close(&dataset);
}

/* The central crops, in order, with nothing where there is no image. */
static void evaluation_is_in_order(void **state)
{
    struct dataset dataset = pairs();
    struct loader_options options = training(&dataset);
    options.training = options.shuffle = false;
    options.augment = (struct augment){.val_crop = true, .channels = 1, .std = {1 / 255.0}};
    struct loader *loader = opened(&options);
    struct image mask = {0};
    struct batch *batch;
    struct reason reason;
    bool wrong;
    int64_t seen = 0;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        for (int i = 0; i < BATCH; i++, seen++) {
            const uint8_t *got = batch->masks + i * H * W;
            if (seen < COUNT) assert_true(masks_read(&dataset, seen, &mask, &wrong, &reason));
            /* The middle of an uneven rest is rounded to even. */
            int top = (mask.h - H) / 2, left = (mask.w - W) / 2;
            if ((mask.h - H) % 2) top += top % 2;
            if ((mask.w - W) % 2) left += left % 2;
            for (int k = 0; k < H * W; k++)
                assert_int_equal(got[k], seen < COUNT ? mask.pixels[(top + k / W) * mask.w + left + k % W]
                                                      : MASK_IGNORE);
        }
        loader_return(loader, batch);
    }
    assert_int_equal(seen, 16);
    loader_close(loader);
    image_free(&mask);
    dataset_close(&dataset);
}

/* Reads an epoch; what stopped it, or how many images were bad. */
static enum status read_all(const struct loader_options *options, int *bad, struct caught *caught)
{
    struct loader *loader = opened(options);
    struct batch *batch = NULL;
    enum status status;
    *bad = 0;
    caught_begin(caught);
    status = loader_start(loader, 0, 0);
    while (status == OK && (status = loader_next(loader, &batch, NULL)) == OK && batch) {
        *bad += batch->bad;
        loader_return(loader, batch);
    }
    caught_end(caught);
    loader_close(loader);
    return status;
}

static void unreadable_masks_are_bad_images(void **state)
{
    struct dataset dataset = pairs();
    struct loader_options options = training(&dataset);
    struct caught caught;
    int bad;
    case_write_text(folder, "masks/03.png", "\x89PNG\r\n\x1a\n broken");
    options.batch = COUNT;
    assert_int_equal(read_all(&options, &bad, &caught), OK);
    assert_int_equal(bad, 1);
    text_free(&caught.words);
    options.stop_on_error = true;
    assert_int_equal(read_all(&options, &bad, &caught), BAD_DATA);
    assert_true(caught_has(&caught, "masks/03.png: PNG: "));
    text_free(&caught.words);
    dataset_close(&dataset);
    write_pair(3, 20, 23, 23);
}

static void wrong_masks_end_the_run(void **state)
{
    static const uint8_t seven[] = {7, 1, 7, 7};
    struct dataset dataset = pairs();
    struct loader_options options = training(&dataset);
    struct caught caught;
    int bad;
    options.batch = COUNT;
    for (int evaluates = 0; evaluates < 2; evaluates++) {
        options.training = options.shuffle = !evaluates;
        options.augment.val_crop = true;
        case_write_bytes(folder, "masks/05.png", case_png(2, 2, 8, PNG_COLOR_TYPE_GRAY, false, seven));
        assert_int_equal(read_all(&options, &bad, &caught), BAD_DATA);
        assert_true(caught_has(&caught, "masks/05.png: value 7 of the mask is no class: 3 pixels"));
        text_free(&caught.words);
        write_pair(5, 22, 23, 21);
        assert_int_equal(read_all(&options, &bad, &caught), BAD_DATA);
        assert_true(caught_has(&caught, "images/05.png: 23x22 pixels, but the mask has 21x22"));
        text_free(&caught.words);
        write_pair(5, 22, 23, 23);
        assert_int_equal(read_all(&options, &bad, &caught), OK);
        text_free(&caught.words);
    }
    dataset_close(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_those_of_their_images),
        cmocka_unit_test(nothing_but_the_epoch_changes_masks),
        cmocka_unit_test(evaluation_is_in_order),
        cmocka_unit_test(unreadable_masks_are_bad_images),
        cmocka_unit_test(wrong_masks_end_the_run),
    };
    return cmocka_run_group_tests(tests, enter, leave);
}
