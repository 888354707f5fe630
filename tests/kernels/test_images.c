/* test_images: batches that a device preprocesses equal those of the loader itself, to the bit. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/loader/loader.h"
#include "data/loader/targets.h"
#include "kernels/images/images.h"
#include "kernels/op.h"
#include "tests/support/place.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* Pictures of many sizes, some of which cannot be used */

#define PICTURES 75


static void size_of(const struct dataset *dataset, int64_t index, int *h, int *w)
{
    static const struct {
        int h, w;
    } odd[] = {{1, 1}, {9, 900}, {700, 11}, {2, 60}, {33, 2}, {16, 16}, {17, 15}, {8, 4000}, {300, 280}};
    struct random random = random_open(1, PURPOSE_TEST, (uint64_t)index, 0);
    *h = 8 + (int)random_below(&random, 60);
    *w = 8 + (int)random_below(&random, 60);
    if (index < COUNT(odd)) *h = odd[index].h, *w = odd[index].w;
    if (dataset->h) *h = dataset->h, *w = dataset->w;
}

static bool read_picture(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                         struct image *image, int *label, struct reason *reason)
{
    int h, w;
    size_of(dataset, index, &h, &w);
    struct box part = {.h = h, .w = w};
    if (!dataset->h && index % 19 == 13) return because(reason, "picture %d is bad", (int)index);
    if (choice && !choice->choose(choice->context, h, w, &part, reason)) return false;
    /* A decoder may give a little more than was asked for. */
    if (part.y > 0) part.y--, part.h++;
    if (part.x > 0) part.x--, part.w++;
    if (!image_resize_part(image, h, w, part, dataset->c, reason)) return false;
    for (int y = 0; y < part.h; y++)
        for (int x = 0; x < part.w * dataset->c; x++) {
            uint32_t place = (uint32_t)(((part.y + y) * w + part.x) * dataset->c + x);
            image->pixels[y * part.w * dataset->c + x] =
                (uint8_t)((place * 2654435761u + (uint32_t)index) >> 23);
        }
    *label = (int)(index % 9);
    return true;
}

static const struct format pictures_format = {.name = "pictures", .read = read_picture};

static struct dataset pictures(int side, int c)
{
    return (struct dataset){
        .format = &pictures_format, .count = PICTURES, .classes = 9, .h = side, .w = side, .c = c};
}

/* A device that preprocesses images, and its memory for them */

struct bench {
    struct device *device;
    const struct images_code *code;
    void *sent, *kept, *table, *out, *pictures, *normal;
    size_t sent_bytes, kept_bytes, table_bytes, out_bytes, picture, pictures_bytes;
    void *got;                 /* what came out, in host memory */
};

static void *device_copy(struct bench *bench, const void *from, size_t bytes)
{
    const struct device_backend *backend = bench->device->backend;
    void *memory = backend->memory.allocate(bench->device, bytes ? bytes : 1);
    assert_non_null(memory);
    assert_int_equal(backend->transfers.upload(bench->device, 0, memory, from, bytes), OK);
    assert_int_equal(backend->synchronize(bench->device), OK);
    return memory;
}

static void bench_open(struct device *device, const struct loader_options *options, const void *kept,
                       size_t kept_bytes, struct bench *bench)
{
    const struct device_backend *backend = device->backend;
    *bench = (struct bench){.device = device};
    bench->code = backend->kind == DEVICE_CPU ? &images_cpu : ON_CUDA(images_cuda);
    assert_non_null(bench->code);
    struct augment_table table = augment_table_make(&options->augment, options->dtype);
    bench->table_bytes = augment_table_bytes(options->channels);
    bench->table = device_copy(bench, table.bits, bench->table_bytes);
    augment_table_free(&table);
    bench->kept_bytes = kept_bytes;
    bench->kept = device_copy(bench, kept, kept_bytes);
    bench->sent_bytes = batch_packing_bytes(options->batch, options->h, options->w, options->channels,
                                            augment_is_varied(&options->augment));
    bench->picture = augment_picture_bytes(&options->augment, options->h, options->w);
    bench->pictures_bytes = images_pictures(options->batch) * bench->picture;
    bench->pictures = backend->memory.allocate(bench->device, bench->pictures_bytes);
    float *normal = intensity_quantiles();
    bench->normal = device_copy(bench, normal, INTENSITY_QUANTILES * sizeof *normal);
    free(normal);
    bench->sent = backend->memory.allocate(bench->device, bench->sent_bytes);
    bench->out_bytes = (size_t)(options->batch * options->h * options->w * options->channels) *
                       dtype_bytes(options->dtype);
    bench->out = backend->memory.allocate(bench->device, bench->out_bytes);
    bench->got = memory_new(bench->out_bytes, 1);
    assert_non_null(bench->sent);
    assert_non_null(bench->out);
}

static void bench_close(struct bench *bench)
{
    const struct device_backend *backend = bench->device->backend;
    backend->memory.free(bench->device, bench->sent, bench->sent_bytes);
    backend->memory.free(bench->device, bench->out, bench->out_bytes);
    backend->memory.free(bench->device, bench->kept, bench->kept_bytes);
    backend->memory.free(bench->device, bench->table, bench->table_bytes);
    backend->memory.free(bench->device, bench->pictures, bench->pictures_bytes);
    backend->memory.free(bench->device, bench->normal, INTENSITY_QUANTILES * sizeof(float));
    free(bench->got);
}

static void bench_preprocess(struct bench *bench, const struct loader_options *options,
                             const struct batch *batch)
{
    struct device *device = bench->device;
    const struct device_backend *backend = device->backend;
    const struct images_job job = {
        .images = bench->sent,
        .sources = {[SOURCE_SENT] = bench->sent, [SOURCE_KEPT] = bench->kept},
        .table = bench->table,
        .dtype = options->dtype,
        .count = options->batch,
        .h = options->h,
        .w = options->w,
        .c = options->channels,
        .shared = batch->device_preprocessing->shared,
        .variations = batch->device_preprocessing->varied
                          ? (void *)((char *)bench->sent + batch_packing_variations(options->batch)) : NULL,
        .pictures = bench->pictures,
        .picture = bench->picture,
        .normal = bench->normal,
        .mix = batch->device_preprocessing->mixed ? &batch->device_preprocessing->mix : NULL,
        .out = bench->out,
        .device = device,
        .stream = backend->stream(device, device->copy_stream),
    };
    assert_true(batch->device_preprocessing->bytes <= bench->sent_bytes);
    assert_true(batch->device_preprocessing->shared <= TILE_SHARED_MAX);
    memset(bench->got, 0xee, bench->out_bytes);
    assert_int_equal(backend->transfers.upload(device, device->copy_stream, bench->sent,
                                               batch->images, batch->device_preprocessing->bytes), OK);
    assert_int_equal(bench->code->preprocess(&job), OK);
    assert_int_equal(backend->transfers.download(device, device->copy_stream, bench->got,
                                                 bench->out, bench->out_bytes), OK);
    assert_int_equal(backend->synchronize(device), OK);
}

/* Both ways */

struct tally {
    int images, resized, sent, kept, blank, varied, turned;    /* that were left to the device, by kind */
};

static void count(const struct loader_options *options, const struct batch *batch, struct tally *tally)
{
    const struct image_record *images = batch->images;
    const struct variation *variations = (const void *)((char *)batch->images +
                                                        batch_packing_variations(options->batch));
    for (int i = 0; i < options->batch; i++) {
        tally->images++;
        tally->varied += batch->device_preprocessing->varied && variations[i].count > 0;
        tally->turned += batch->device_preprocessing->varied && variations[i].turned;
        tally->blank += images[i].blank;
        tally->resized += !images[i].blank && image_record_resizes(&images[i]);
        tally->sent += !images[i].blank && images[i].source == SOURCE_SENT;
        tally->kept += !images[i].blank && images[i].source == SOURCE_KEPT;
    }
}

static void expect_same(const struct loader_options *options, const struct bench *bench,
                        const struct batch *want, const struct batch *got)
{
    assert_int_equal(got->count, want->count);
    assert_int_equal(got->bad, want->bad);
    assert_memory_equal(got->labels, want->labels, (size_t)options->batch * sizeof *got->labels);
    assert_int_equal(!got->targets, !want->targets);
    if (got->targets)
        assert_memory_equal(got->targets, want->targets,
                            (size_t)options->batch * target_numbers(options->classes) * sizeof *got->targets);
    size_t image = bench->out_bytes / (size_t)options->batch;
    for (int i = 0; i < options->batch; i++)
        if (memcmp((char *)bench->got + (size_t)i * image,
                   (char *)want->images + (size_t)i * image, image) != 0)
            fail_msg("batch %d, place %d: other bits", (int)want->number, i);
}

/* The batches of an epoch. */
static void compare_epoch(const struct loader_options *options, struct bench *bench, int64_t epoch,
                          struct loader *own, struct loader *left, struct tally *tally)
{
    assert_int_equal(loader_start(own, epoch, 0), OK);
    assert_int_equal(loader_start(left, epoch, 0), OK);
    for (;;) {
        struct batch *want, *got;
        assert_int_equal(loader_next(own, &want, NULL), OK);
        assert_int_equal(loader_next(left, &got, NULL), OK);
        assert_int_equal(!got, !want);
        if (!want) return;
        assert_null(want->device_preprocessing);
        bench_preprocess(bench, options, got);
        count(options, got, tally);
        expect_same(options, bench, want, got);
        loader_return(own, want);
        loader_return(left, got);
    }
}

static struct tally compare(struct device *device, struct loader_options options, const void *kept,
                            size_t kept_bytes)
{
    struct tally tally = {0};
    struct bench bench;
    struct loader *own, *left;
    int64_t epochs = options.training ? rounds(2, 500) : 1;
    const struct kept_image *index = options.kept;
    bench_open(device, &options, kept, kept_bytes, &bench);
    options.kept = NULL;
    assert_int_equal(loader_open(&options, &own), OK);
    options.kept = index;
    options.device_preprocessing = true;
    options.workers = 3;
    assert_int_equal(loader_open(&options, &left), OK);
    for (int64_t epoch = 0; epoch < epochs; epoch++)
        compare_epoch(&options, &bench, epoch, own, left, &tally);
    loader_close(own);
    loader_close(left);
    bench_close(&bench);
    return tally;
}

static struct loader_options loading(struct dataset *dataset, int h, int w)
{
    return (struct loader_options){
        .dataset = dataset,
        .count = dataset->count,
        .augment = {.flip = 0.5,
                    .channels = dataset->c,
                    .mean = {0.48, 0.45, 0.4},
                    .std = {0.22, 0.23, 0.24},
                    .scale = {0.05, 1},
                    .ratio = {0.75, 4 / 3.0}},
        .classes = 9,
        .training = true,
        .shuffle = true,
        .batch = 8,
        .h = h,
        .w = w,
        .channels = dataset->c,
        .dtype = F32,
        .workers = 2,
        .prefetch = 2,
        .seed = 7,
    };
}

static const enum dtype dtypes[] = {F32, F16, BF16};

static void random_parts_resized(void **state)
{
    static const int sides[] = {24, 17, 40};
    for (int c = 1; c <= 3; c += 2) {
        for (int i = 0; i < COUNT(dtypes); i++) {
            struct dataset dataset = pictures(0, c);
            struct loader_options options = loading(&dataset, sides[i], sides[i] + 3 * i);
            options.augment.crop = true;
            options.augment.random_resized = true;
            options.dtype = dtypes[i];
            struct tally tally = compare(*state, options, NULL, 0);
            assert_in_range(tally.resized, tally.images / 2, tally.images - 1);
            assert_int_equal(tally.sent, tally.images);
        }
    }
}

static void resized_then_cut(void **state)
{
    struct dataset dataset = pictures(0, 3);
    struct loader_options options = loading(&dataset, 20, 20);
    options.augment.crop = true;
    options.augment.resize = image_size_square(22);
    options.augment.pad = 3;
    options.augment.random_crop = true;
    struct tally tally = compare(*state, options, NULL, 0);
    assert_in_range(tally.resized, 1, tally.images);
    options.augment.reflect = true;          /* a device does that to images of the right size only */
    tally = compare(*state, options, NULL, 0);
    assert_int_equal(tally.resized, 0);
    options.training = options.shuffle = false;
    options.augment.val_resize = image_size_square(22);
    options.augment.val_crop = true;
    options.augment.reflect = false;
    tally = compare(*state, options, NULL, 0);
    assert_in_range(tally.resized, 1, tally.images);
    options.augment.interpolation = RESIZE_BICUBIC;      /* a device does not do that at all */
    tally = compare(*state, options, NULL, 0);
    assert_int_equal(tally.resized, 0);
    assert_in_range(tally.sent, 1, tally.images);
}

/* Borders wider than the rest of the image, whose other pixels are needed as well; tiles of one pixel. */
static void reflected_borders(void **state)
{
    static const int pads[] = {2, 11, 32};
    for (int i = 0; i < COUNT(pads); i++) {
        struct dataset dataset = pictures(33, 3);
        struct loader_options options = loading(&dataset, i ? pads[i] + 1 : 33, 33);
        options.augment.crop = true;
        options.augment.pad = pads[i];
        options.augment.random_crop = options.augment.reflect = true;
        options.dtype = dtypes[i];
        compare(*state, options, NULL, 0);
        options.training = options.shuffle = false;
        options.augment.val_crop = true;
        options.views = (struct loader_views){true, pads[i]};
        compare(*state, options, NULL, 0);
    }
}

/* A border where images are smaller, nothing where there is none, and where the last batch ends. */
static void evaluation(void **state)
{
    for (int resize = 0; resize <= 12; resize += 6) {
        struct dataset dataset = pictures(0, 3);
        struct loader_options options = loading(&dataset, 10, 10);
        options.training = options.shuffle = false;
        options.augment.val_resize = image_size_square(resize);
        options.augment.val_crop = true;
        options.dtype = BF16;
        struct tally tally = compare(*state, options, NULL, 0);
        assert_int_equal(tally.images, 80);
        assert_int_equal(tally.blank, 4 + 5);
        assert_int_equal(tally.resized > 0, resize > 0);
    }
}

static void erased_and_mixed(void **state)
{
    static const struct mix_settings mixes[] = {{0.4, 0}, {0, 1}, {0.3, 0.8}};
    for (int i = 0; i < COUNT(mixes); i++) {
        struct dataset dataset = pictures(0, 3);
        struct loader_options options = loading(&dataset, 18, 21);
        options.augment.crop = true;
        options.augment.random_resized = true;
        options.augment.erase = 0.6;
        options.mix = mixes[i];
        options.micro_batches = 1 << i;
        options.dtype = dtypes[i];
        compare(*state, options, NULL, 0);
    }
}

static void bytes_that_are_varied(void **state)
{
    struct dataset dataset = pictures(0, 3);
    struct loader_options options = loading(&dataset, 18, 18);
    options.augment.crop = true;
    options.augment.random_resized = true;
    options.augment.policy = POLICY_TRIVIAL;
    options.augment.erase = 0.5;
    for (int i = 0; i < 4; i++) options.augment.jitter[i] = 0.3;
    options.mix = (struct mix_settings){.mixup = 0.4};
    struct tally tally = compare(*state, options, NULL, 0);
    assert_in_range(tally.varied, tally.images * 3 / 4, tally.images);
    assert_in_range(tally.resized, tally.images / 2, tally.images);
}

/* Each policy and each change alone, of grey and of colour, and a blur that reaches too far for a device. */
static void each_change(void **state)
{
    static const struct intensity intensities[] = {
        {.gray = 0.5},          {.gamma = {0.9, 0.5, 2}}, {.blur = {0.8, 0.3, 2}},
        {.noise = {0.9, 0, 0.3}}, {.blur = {0.7, 0.3, 12}},
        {.gray = 0.2, .gamma = {0.3, 0.7, 1.5}, .blur = {0.2, 0.5, 1}, .noise = {0.15, 0, 0.1}},
    };
    for (int i = 0; i < COUNT(intensities) + 3; i++) {
        struct dataset dataset = pictures(0, i == 1 || i == 4 ? 1 : 3);
        struct loader_options options = loading(&dataset, 24 + i, 37);
        options.augment.crop = options.augment.random_resized = true;
        options.augment.vflip = 0.5;
        options.dtype = dtypes[i % 3];
        options.batch = 24;
        if (i < COUNT(intensities)) options.augment.intensity = intensities[i];
        else options.augment.policy = (enum policy)(i - COUNT(intensities) + 1);
        struct tally tally = compare(*state, options, NULL, 0);
        if (i == 4) assert_int_equal(tally.varied, 0);
        else assert_in_range(tally.varied, tally.images / 8, tally.images);
    }
}

/* Turned from what lies around the crop, from resized images and others, with black and reflected borders;
 * where there is no room for all of that, the host turns them. */
static void turned_images(void **state)
{
    for (int i = 0; i < 6; i++) {
        struct dataset dataset = pictures(i % 3 == 2 ? 33 : 0, i == 4 ? 1 : 3);
        struct loader_options options = loading(&dataset, 21, i % 3 == 2 ? 33 : 26);
        options.augment.crop = true;
        options.augment.random_resized = i % 3 == 0;
        options.augment.random_crop = i % 3 > 0;
        options.augment.pad = i % 3 == 0 ? 0 : 14;
        options.augment.reflect = i % 3 == 2;
        options.augment.resize = image_size_square(i % 3 == 1 ? 22 : 0);
        options.augment.rotate = i < 3 ? 20 : 180;
        options.augment.shear[0] = i < 3 ? 0 : 60;
        options.augment.translate[0] = options.augment.translate[1] = 0.2;
        options.augment.vflip = 0.5;
        options.augment.erase = 0.3;
        options.augment.intensity.noise = (struct chance){0.3, 0, 0.1};
        options.dtype = dtypes[i % 3];
        struct tally tally = compare(*state, options, NULL, 0);
        assert_in_range(tally.turned, tally.images / 4, tally.images);
    }
}

/* Images that lie on the device already; of those of many sizes, every fifth does not. */

static uint8_t *keep(const struct dataset *dataset, struct kept_image *index, size_t *bytes)
{
    uint8_t *kept = NULL;
    struct image image = {0};
    *bytes = 0;
    for (int64_t i = 0; i < dataset->count; i++) {
        struct reason reason;
        int label;
        if (!dataset->h && i % 5 == 4) continue;
        if (!dataset->format->read(dataset, i, NULL, &image, &label, &reason)) continue;
        size_t count = (size_t)(image.h * image.w * image.c);
        kept = memory_resize(kept, *bytes + count, 1);
        memcpy(kept + *bytes, image.pixels, count);
        index[i] = (struct kept_image){(int64_t)*bytes, image.h, image.w, label};
        *bytes += count;
    }
    image_free(&image);
    return kept;
}

static void images_that_are_kept(void **state)
{
    for (int even = 0; even < 2; even++) {
        struct dataset dataset = pictures(even ? 16 : 0, 3);
        struct kept_image index[PICTURES] = {{0}};
        size_t bytes;
        uint8_t *kept = keep(&dataset, index, &bytes);
        struct loader_options options = loading(&dataset, 16, 16);
        options.augment.crop = true;
        options.augment.random_resized = !even;
        options.augment.pad = even ? 4 : 0;
        options.augment.random_crop = even;
        options.augment.erase = 0.3;
        options.mix = (struct mix_settings){.mixup = 0.2, .cutmix = 1};
        options.dtype = F16;
        options.kept = index;
        options.augment.rotate = even ? 0 : 10;
        options.augment.policy = even ? POLICY_NONE : POLICY_RAND;
        struct tally tally = compare(*state, options, kept, bytes);
        assert_in_range(tally.kept, tally.images / 2, tally.images);
        assert_int_equal(tally.sent > 0, !even);
        assert_int_equal(tally.sent + tally.kept, tally.images);
        free(kept);
    }
}

static int open_device(void **state)
{
    *state = place_open(1);
    return 0;
}

static int close_device(void **state)
{
    device_close(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_parts_resized), cmocka_unit_test(resized_then_cut),
        cmocka_unit_test(evaluation),           cmocka_unit_test(erased_and_mixed),
        cmocka_unit_test(reflected_borders),
        cmocka_unit_test(bytes_that_are_varied), cmocka_unit_test(each_change),
        cmocka_unit_test(turned_images), cmocka_unit_test(images_that_are_kept),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
