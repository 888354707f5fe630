/* Files that a device decodes instead of the loader's workers: here the host stands in for it, with the same
 * decoder, so that every batch must be what workers alone make of it, whatever is drawn, does not fit, fails
 * or is resumed. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "data/loader/loader.h"
#include "data/loader/targets.h"
#include "kernels/images/images.h"
#include "tests/support/data_case.h"

/* After the others. */
#include "tests/support/unit.h"

#define FILES 60
#define SIDE 24
#define CLASSES 9

/* The kind of file i: most are plain. */
enum value_kind { PLAIN, GREY, PROGRESSIVE, CUT, LARGE };

/* Some of any kind are stored turned or mirrored. */
static int orientation_of(int64_t i)
{
    return i % 5 == 1 ? 2 + (int)(i / 5 % 7) : 1;
}

static enum value_kind kind_of(int64_t i)
{
    return i % 11 == 3 ? PROGRESSIVE : i % 13 == 5 ? CUT : i % 17 == 6 ? LARGE : i % 7 == 2 ? GREY : PLAIN;
}

static struct bytes files[FILES];

static void make_file(int i)
{
    int w = 20 + i * 7 % 30, h = 20 + i * 11 % 40;
    if (kind_of(i) == LARGE) w = 200;
    uint8_t *pixels = memory_new((size_t)(w * h), 3);
    for (int k = 0; k < w * h * 3; k++) pixels[k] = (uint8_t)(k / 3 % w * 3 + i * 5 + k % 3 * 20);
    struct jpeg_sampling sampling = {1 + i % 2, 1 + i / 2 % 2, 0, kind_of(i) == PROGRESSIVE};
    files[i] = kind_of(i) == GREY ? case_jpeg(w, h, JCS_GRAYSCALE, JCS_GRAYSCALE, false, pixels)
                                  : case_jpeg_sampled(w, h, sampling, pixels);
    if (orientation_of(i) != 1) files[i] = case_oriented(files[i], orientation_of(i));
    if (kind_of(i) == CUT) files[i].count = files[i].count * 3 / 4;
    free(pixels);
}

static bool read_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                      int *label, struct reason *reason)
{
    (void)dataset;
    (void)reason;
    *bytes = memory_new(files[index].count, 1);
    memcpy(*bytes, files[index].data, files[index].count);
    *count = files[index].count;
    *label = (int)(index % 9);
    return true;
}

static bool read_image(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                       struct image *image, int *label, struct reason *reason)
{
    *label = (int)(index % 9);
    return image_decode(files[index].data, files[index].count, dataset_image_options(dataset), choice, image,
                        reason);
}

static const struct format format = {.name = "files", .read = read_image, .read_file = read_file};

/* The device that stands in: some images it refuses, others it is slow with; it turns none. */
struct stand_in {
    atomic_int callers, calls, images, refused;
    int most_callers;
};

static void decode(void *context, struct decoder_image *images, int count)
{
    struct stand_in *stand_in = context;
    const struct image_options as_stored = {.channels = 3, .ignore_orientation = true};
    int callers = atomic_fetch_add(&stand_in->callers, 1) + 1;
    assert_true(callers <= stand_in->most_callers);
    atomic_fetch_add(&stand_in->calls, 1);
    if (atomic_load(&stand_in->calls) % 5 == 0) usleep(300);
    for (int i = 0; i < count; i++) {
        struct image image = {0};
        struct reason reason;
        images[i].good = (images[i].h * images[i].w) % 9 != 4 &&
                         image_decode(images[i].bytes, images[i].count, as_stored, NULL, &image, &reason);
        atomic_fetch_add(images[i].good ? &stand_in->images : &stand_in->refused, 1);
        if (images[i].good) {
            assert_true(image.h == images[i].h && image.w == images[i].w);
            memcpy(images[i].to, image.pixels, (size_t)image.h * (size_t)image.w * 3);
        }
        image_free(&image);
    }
    atomic_fetch_sub(&stand_in->callers, 1);
}

/* A loader whose batches the reference code preprocesses. */
struct preprocessing {
    struct loader_options options;
    struct augment_table table;
    uint8_t *room;
    float *out;
};

static size_t out_numbers(const struct loader_options *options)
{
    return (size_t)options->batch * SIDE * SIDE * 3;
}

static void preprocess(struct preprocessing *gpu, const struct batch *batch, int *decoded)
{
    const struct image_record *images = batch->images;
    const struct images_job job = {
        .images = images,
        .sources = {[SOURCE_SENT] = batch->images, [SOURCE_DECODED] = gpu->room},
        .table = (const uint32_t (*)[256])gpu->table.bits,
        .dtype = F32,
        .count = gpu->options.batch,
        .h = SIDE,
        .w = SIDE,
        .c = 3,
        .shared = batch->device_preprocessing->shared,
        .mix = batch->device_preprocessing->mixed ? &batch->device_preprocessing->mix : NULL,
        .out = gpu->out,
    };
    assert_int_equal(images_cpu.preprocess(&job), OK);
    for (int i = 0; i < batch->count; i++) *decoded += !images[i].blank && images[i].source == SOURCE_DECODED;
}

static struct dataset dataset = {
    .format = &format, .count = FILES, .classes = CLASSES, .c = 3, .decoded = true,
};

static struct loader_options loading(int workers)
{
    return (struct loader_options){
        .dataset = &dataset,
        .count = FILES,
        .augment = {.crop = SIDE, .random_resized = true, .flip = 0.5, .channels = 3, .erase = 0.2,
                    .mean = {0.5, 0.5, 0.5}, .std = {0.25, 0.25, 0.25}, .scale = {0.1, 1},
                    .ratio = {0.75, 1.5}},
        .classes = CLASSES,
        .training = true,
        .shuffle = true,
        .batch = 10,
        .h = SIDE,
        .w = SIDE,
        .channels = 3,
        .dtype = F32,
        .workers = workers,
        .prefetch = 3,
        .seed = 5,
    };
}

/* From batch `first` of an epoch on; how many images were decoded elsewhere. */
static int compare_epoch(struct loader *own, struct loader *other, struct preprocessing *gpu, int64_t epoch,
                         int64_t first)
{
    int decoded = 0;
    assert_int_equal(loader_start(own, epoch, first), OK);
    assert_int_equal(loader_start(other, epoch, first), OK);
    for (;;) {
        struct batch *want, *got;
        assert_int_equal(loader_next(own, &want, NULL), OK);
        assert_int_equal(loader_next(other, &got, NULL), OK);
        assert_int_equal(!want, !got);
        if (!want) return decoded;
        preprocess(gpu, got, &decoded);
        assert_int_equal(got->bad, want->bad);
        size_t images = (size_t)gpu->options.batch;
        assert_memory_equal(got->labels, want->labels, sizeof *want->labels * images);
        assert_int_equal(!got->targets, !want->targets);
        size_t numbers = images * target_numbers(CLASSES);
        if (want->targets) assert_memory_equal(got->targets, want->targets, numbers * sizeof(float));
        assert_memory_equal(gpu->out, want->images, out_numbers(&gpu->options) * sizeof(float));
        loader_return(own, want);
        loader_return(other, got);
    }
}

/* Both ways over some epochs, with many workers mixed, too; how many images the device decoded. */
static int compare(int workers, double share, size_t batch_bytes, struct stand_in *stand_in)
{
    struct preprocessing gpu = {.options = loading(workers)};
    if (workers > 2) gpu.options.mix = (struct mix_settings){.mixup = 0.4, .cutmix = 1};
    *stand_in = (struct stand_in){.most_callers = 2};
    const struct decoder decoder = {.context = stand_in, .callers = 2, .images = 4, .h = 100, .w = 100,
                                    .decode = decode};
    struct loader_options *options = &gpu.options;
    struct loader *own, *other;
    gpu.table = augment_table_make(&options->augment, F32);
    gpu.out = memory_new(out_numbers(options), sizeof *gpu.out);
    size_t room = loader_decoded_bytes(options->prefetch, batch_bytes);
    gpu.room = memory_new(room, 1);
    assert_int_equal(loader_open(options, &own), OK);
    options->device_preprocessing = true;
    options->decoder = (struct loader_decoder){&decoder, share, gpu.room, batch_bytes};
    assert_int_equal(loader_open(options, &other), OK);
    int decoded = 0;
    for (int64_t epoch = 0; epoch < 3; epoch++) decoded += compare_epoch(own, other, &gpu, epoch, 0);
    compare_epoch(own, other, &gpu, 1, 4);
    loader_close(own);
    loader_close(other);
    augment_table_free(&gpu.table);
    free(gpu.room);
    free(gpu.out);
    return decoded;
}

static void batches_are_the_same(void **state)
{
    static const int workers[] = {1, 2, 5, 16};
    struct stand_in stand_in;
    int first = 0;
    for (int i = 0; i < 4; i++) {
        int decoded = compare(workers[i], 1, 1 << 20, &stand_in);
        assert_true(decoded > 100 && stand_in.refused > 0);
        if (i == 0) first = decoded;
        assert_int_equal(decoded, first);
    }
}

static void oriented_files_are_left_only_as_they_are_stored(void **state)
{
    struct stand_in stand_in;
    int some = compare(3, 1, 1 << 20, &stand_in);
    dataset.ignore_orientation = true;
    int all = compare(3, 1, 1 << 20, &stand_in);
    dataset.ignore_orientation = false;
    assert_true(some > 100 && all > some);
}

static void a_share_is_drawn(void **state)
{
    struct stand_in stand_in;
    int all = compare(3, 1, 1 << 20, &stand_in), half = compare(3, 0.5, 1 << 20, &stand_in);
    assert_in_range(half, all / 4, all * 3 / 4);
    assert_int_equal(compare(2, 0.5, 1 << 20, &stand_in), half);
    assert_int_equal(compare(3, 0, 1 << 20, &stand_in), 0);
    assert_int_equal(stand_in.calls, 0);
}

static void what_has_no_room_stays_here(void **state)
{
    struct stand_in stand_in;
    int all = compare(3, 1, 1 << 20, &stand_in), some = compare(3, 1, 12000, &stand_in);
    assert_true(some > 0 && some < all);
    assert_int_equal(compare(1, 1, 12000, &stand_in), some);
    assert_int_equal(compare(3, 1, 256, &stand_in), 0);
}

/* Another epoch begins, or all ends, while batches are at any stage. */
static void stops_at_any_moment(void **state)
{
    struct stand_in stand_in = {.most_callers = 2};
    const struct decoder decoder = {.context = &stand_in, .callers = 2, .images = 3, .h = 100, .w = 100,
                                    .decode = decode};
    for (int round = 0; round < 60; round++) {
        struct loader_options options = loading(4);
        uint8_t *room = memory_new(loader_decoded_bytes(options.prefetch, 60000), 1);
        struct loader *loader;
        struct batch *batch;
        options.device_preprocessing = true;
        options.decoder = (struct loader_decoder){&decoder, 1, room, 60000};
        assert_int_equal(loader_open(&options, &loader), OK);
        for (int64_t epoch = 0; epoch < 3; epoch++) {
            assert_int_equal(loader_start(loader, epoch, 0), OK);
            usleep((unsigned)(round * 40));
            if (round % 3 == 0) continue;
            assert_int_equal(loader_next(loader, &batch, NULL), OK);
            loader_return(loader, batch);
        }
        loader_close(loader);
        assert_int_equal(stand_in.callers, 0);
        free(room);
    }
}

static int make_files(void **state)
{
    for (int i = 0; i < FILES; i++) make_file(i);
    return 0;
}

static int free_files(void **state)
{
    for (int i = 0; i < FILES; i++) free(files[i].data);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_the_same),
        cmocka_unit_test(oriented_files_are_left_only_as_they_are_stored),
        cmocka_unit_test(a_share_is_drawn),
        cmocka_unit_test(what_has_no_room_stays_here),
        cmocka_unit_test(stops_at_any_moment),
    };
    return cmocka_run_group_tests(tests, make_files, free_files);
}
