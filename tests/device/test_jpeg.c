/* JPEG images decoded by every device that does so: the pixels of libjpeg-turbo up to how chroma is spread,
 * the same in any company, and what is left to others. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <jpeglib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/image/image.h"
#include "data/image/jpeg_plain.h"
#include "device/jpeg.h"
#include "tests/support/data_case.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

static const struct image_options rgb = {.channels = 3};

#define SIDE_MAX 300
#define SURFACE ((size_t)SIDE_MAX * SIDE_MAX * 3)
#define IMAGES 24
#define CALLERS 3

/* One device, its decoder, and images with room for their pixels. */
struct scene {
    struct device *device;
    struct decoder decoder;
    uint8_t *surfaces;
    struct bytes files[IMAGES];
    struct decoder_image images[IMAGES];
};

/* Slopes and a soft wave, which chroma at half the resolution can follow. */
static struct bytes picture(int w, int h, int number)
{
    static const int coarser[4][2] = {{1, 1}, {1, 2}, {2, 1}, {2, 2}};
    bool grey = number % 5 == 4;
    int channels = grey ? 1 : 3;
    uint8_t *pixels = memory_new((size_t)w * (size_t)h, 3);
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++)
            for (int k = 0; k < channels; k++)
                pixels[(y * w + x) * channels + k] = (uint8_t)(
                    20 + number + (k == 0 ? x * 180 / w : k == 1 ? y * 180 / h : (x + y) * 90 / (w + h)));
    const int *by = coarser[number % 4];
    struct jpeg_sampling sampling = {by[0], by[1], 0, false};
    struct bytes file = grey ? case_jpeg(w, h, JCS_GRAYSCALE, JCS_GRAYSCALE, false, pixels)
                             : case_jpeg_sampled(w, h, sampling, pixels);
    free(pixels);
    return file;
}

static struct scene *scene_open(struct device *device)
{
    struct scene *scene = memory_new(1, sizeof *scene);
    const struct jpeg_bounds bounds = {.images = 16, .h = 256, .w = 256, .callers = CALLERS};
    struct reason reason;
    scene->device = device;
    if (!device->backend->jpeg->open(device, &bounds, &scene->decoder, &reason)) {
        print_message("%s\n", reason.text);
        free(scene);
        return NULL;
    }
    scene->surfaces = device_allocate(device, SURFACE * IMAGES, "pixels of a test");
    assert_non_null(scene->surfaces);
    for (int i = 0; i < IMAGES; i++) {
        struct jpeg_plain plain;
        scene->files[i] = picture(16 + i * 37 % 210, 16 + i * 53 % 190, i);
        assert_true(jpeg_plain(scene->files[i].data, scene->files[i].count, &plain));
        scene->images[i] = (struct decoder_image){scene->files[i].data, plain.count, plain.h, plain.w,
                                               scene->surfaces + (size_t)i * SURFACE, false};
    }
    return scene;
}

static void scene_close(struct scene *scene)
{
    scene->device->backend->jpeg->close(&scene->decoder);
    device_release(scene->device, scene->surfaces, SURFACE * IMAGES);
    for (int i = 0; i < IMAGES; i++) free(scene->files[i].data);
    free(scene);
}

static void decode(struct scene *scene, struct decoder_image *images, int count)
{
    scene->decoder.decode(scene->decoder.context, images, count);
}

static uint8_t *pixels_of(struct scene *scene, const struct decoder_image *image)
{
    size_t bytes = (size_t)image->h * (size_t)image->w * 3;
    uint8_t *pixels = memory_new(bytes, 1);
    const struct device_transfers *transfers = &scene->device->backend->transfers;
    assert_int_equal(transfers->download(scene->device, 0, pixels, image->to, bytes), OK);
    assert_int_equal(scene->device->backend->synchronize(scene->device), OK);
    return pixels;
}

static void wipe(struct scene *scene)
{
    const struct device_backend *backend = scene->device->backend;
    assert_int_equal(backend->transfers.fill_zero(scene->device, 0, scene->surfaces, SURFACE * IMAGES), OK);
    assert_int_equal(backend->synchronize(scene->device), OK);
}

static void expect_pixels(struct scene *scene, int i)
{
    struct image expected = {0};
    struct reason reason;
    assert_true(scene->images[i].good);
    assert_true(image_decode(scene->files[i].data, scene->files[i].count, rgb, NULL, &expected, &reason));
    uint8_t *pixels = pixels_of(scene, &scene->images[i]);
    int worst = 0;
    for (int k = 0; k < expected.h * expected.w * 3; k++) {
        int difference = abs(pixels[k] - expected.pixels[k]);
        if (difference > worst) worst = difference;
    }
    if (worst > 6) fail_msg("image %d, %d x %d, is off by %d", i, expected.h, expected.w, worst);
    free(pixels);
    image_free(&expected);
}

static void decodes_as_libjpeg(struct scene *scene)
{
    wipe(scene);
    decode(scene, scene->images, IMAGES);
    for (int i = 0; i < IMAGES; i++) expect_pixels(scene, i);
}

static void company_changes_nothing(struct scene *scene)
{
    uint8_t *together[IMAGES];
    decode(scene, scene->images, IMAGES);
    for (int i = 0; i < IMAGES; i++) together[i] = pixels_of(scene, &scene->images[i]);
    wipe(scene);
    for (int i = 0; i < IMAGES; i++) {
        decode(scene, &scene->images[i], 1);
        assert_true(scene->images[i].good);
        uint8_t *alone = pixels_of(scene, &scene->images[i]);
        assert_memory_equal(alone, together[i], (size_t)scene->images[i].h * (size_t)scene->images[i].w * 3);
        free(alone);
        free(together[i]);
    }
}

struct caller {
    pthread_t thread;
    struct scene *scene;
    int first;
};

static void *call(void *context)
{
    struct caller *caller = context;
    for (int round = 0; round < 20; round++) decode(caller->scene, caller->scene->images + caller->first, 4);
    return NULL;
}

/* More threads than seats. */
static void threads_share_it(struct scene *scene)
{
    struct caller callers[6];
    wipe(scene);
    for (int i = 0; i < 6; i++) {
        callers[i] = (struct caller){.scene = scene, .first = 4 * i};
        assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
    }
    for (int i = 0; i < 6; i++) pthread_join(callers[i].thread, NULL);
    for (int i = 0; i < IMAGES; i++) expect_pixels(scene, i);
}

static void leaves_what_is_too_large(struct scene *scene)
{
    struct bytes large = picture(290, 20, 0);
    struct decoder_image image = scene->images[3];
    scene->images[3] = (struct decoder_image){large.data, large.count, 20, 290, image.to, true};
    decode(scene, scene->images, IMAGES);
    assert_false(scene->images[3].good);
    scene->images[3] = image;
    free(large.data);
    for (int i = 0; i < IMAGES; i++)
        if (i != 3) expect_pixels(scene, i);
}

/* Whatever a broken one does, the others are right, and so is everything afterwards. */
static void broken_ones_harm_no_other(struct scene *scene)
{
    uint8_t *intact = memory_new(scene->files[5].count, 1);
    memcpy(intact, scene->files[5].data, scene->files[5].count);
    for (int round = 0; round < 12; round++) {
        struct decoder_image *broken = &scene->images[5];
        size_t count = broken->count;
        if (round < 4) broken->count = count * (size_t)(round + 1) / 5;
        for (size_t i = count / 2; round >= 4 && i + 2 < count; i++)
            scene->files[5].data[i] = (uint8_t)(i * (unsigned)round * 2654435761u >> 8) & 0x7f;
        wipe(scene);
        decode(scene, scene->images, IMAGES);
        for (int i = 0; i < IMAGES; i++)
            if (i != 5) expect_pixels(scene, i);
        memcpy(scene->files[5].data, intact, count);
        broken->count = count;
    }
    free(intact);
    decodes_as_libjpeg(scene);
}

/* Bytes anywhere changed: what is still taken for plain comes back, one way or the other. */
static void survives_damage(struct scene *scene)
{
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    long wanted = rounds(64, 3000), taken = 0, good = 0;
    for (long tried = 0; taken < wanted && tried < 50 * wanted; tried++) {
        int i = (int)random_below(&random, IMAGES);
        size_t count = scene->files[i].count;
        struct decoder_image image = scene->images[i];
        uint8_t *bytes = memory_new(count, 1);
        memcpy(bytes, scene->files[i].data, count);
        for (uint32_t k = random_below(&random, 8) + 1; k > 0; k--)
            bytes[random_below(&random, (uint32_t)count)] = (uint8_t)random_next(&random);
        struct jpeg_plain plain;
        if (jpeg_plain(bytes, count, &plain)) {
            image = (struct decoder_image){bytes, plain.count, plain.h, plain.w, image.to, false};
            decode(scene, &image, 1);
            good += image.good;
            taken++;
        }
        free(bytes);
    }
    figure("%ld damaged images were taken, %ld came out", taken, good);
    decodes_as_libjpeg(scene);
}

static void on_every_device(void (*check)(struct scene *scene))
{
    bool met = false;
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        struct reason reason;
        struct device *device;
        if (!(*backend)->jpeg || (*backend)->count(&reason) == 0) continue;
        assert_int_equal((*backend)->open(0, 1, &device), OK);
        struct scene *scene = scene_open(device);
        if (scene) {
            print_message("%s: %d engines\n", (*backend)->name, scene->decoder.engines);
            check(scene);
            scene_close(scene);
            met = true;
        }
        device_close(device);
    }
    if (!met) skip();
}

#define CASE(check) \
    static void test_##check(void **state) { (void)state; on_every_device(check); }
CASE(decodes_as_libjpeg)
CASE(company_changes_nothing)
CASE(threads_share_it)
CASE(leaves_what_is_too_large)
CASE(broken_ones_harm_no_other)
CASE(survives_damage)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_decodes_as_libjpeg),       cmocka_unit_test(test_company_changes_nothing),
        cmocka_unit_test(test_threads_share_it),         cmocka_unit_test(test_leaves_what_is_too_large),
        cmocka_unit_test(test_broken_ones_harm_no_other), cmocka_unit_test(test_survives_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
