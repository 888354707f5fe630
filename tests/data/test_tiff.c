/* TIFF files: every kind of samples, layout and compression, channels, orientation, and what is damaged. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <tiffio.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/augment/augment.h"
#include "data/image/image.h"

#include "tests/support/unit.h"

#define H 21
#define W 18

struct kind {
    int bits, format, c;
    bool planar, tiled;
    const char *mode;          /* of TIFFOpen: w, or with b big endian, with 8 BigTIFF */
    int compression;
    int photometric, extra;
    int orientation, pages, predictor;
};

static const struct kind plain = {8, SAMPLEFORMAT_UINT, 3, false, false, "w", COMPRESSION_NONE,
                                  PHOTOMETRIC_RGB, -1, 1, 1, 0};

/* The sample that every file has there. */
static double sample_of(const struct kind *kind, int y, int x, int k)
{
    uint32_t number = (uint32_t)(y * 977 + x * 131 + k * 4099 + y * x * 17);
    if (kind->bits == 8) return number % 256;
    if (kind->bits == 32) return (float)(number % 70000) / 7 - 3;
    if (kind->format == SAMPLEFORMAT_INT) return (int16_t)(number % 65536);
    return number % 65536;
}

static void put_sample(const struct kind *kind, double value, uint8_t *to)
{
    float real = (float)value;
    uint16_t half = (uint16_t)(int32_t)value;
    if (kind->bits == 8) *to = (uint8_t)value;
    else if (kind->bits == 16) memcpy(to, &half, 2);
    else memcpy(to, &real, 4);
}

/* Writes a block of rows x columns from y, x on; what is beyond the image is zeros. */
static void fill_block(const struct kind *kind, int y, int x, int rows, int columns, int plane,
                       uint8_t *block)
{
    int each = kind->planar ? 1 : kind->c;
    memset(block, 0, (size_t)(rows * columns * each * kind->bits / 8));
    for (int i = 0; i < rows && y + i < H; i++)
        for (int j = 0; j < columns && x + j < W; j++)
            for (int k = 0; k < each; k++)
                put_sample(kind, sample_of(kind, y + i, x + j, kind->planar ? plane : k),
                           block + ((i * columns + j) * each + k) * kind->bits / 8);
}

#define ROWS 8
#define SIDE 16

static void write_page(TIFF *tiff, const struct kind *kind)
{
    static uint8_t block[SIDE * W * IMAGE_BANDS_MAX * 4];
    uint16_t extra[IMAGE_BANDS_MAX] = {0};
    int colours = kind->photometric == PHOTOMETRIC_RGB ? 3 : 1;
    extra[0] = kind->extra > 0 ? (uint16_t)kind->extra : 0;
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, W);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, H);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, kind->bits);
    TIFFSetField(tiff, TIFFTAG_SAMPLEFORMAT, kind->format);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, kind->c);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, kind->photometric);
    TIFFSetField(tiff, TIFFTAG_ORIENTATION, kind->orientation);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, kind->planar ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, kind->compression);
    if (kind->predictor) TIFFSetField(tiff, TIFFTAG_PREDICTOR, kind->predictor);
    if (kind->c > colours) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, kind->c - colours, extra);
    if (kind->tiled) TIFFSetField(tiff, TIFFTAG_TILEWIDTH, SIDE);
    if (kind->tiled) TIFFSetField(tiff, TIFFTAG_TILELENGTH, SIDE);
    else TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, ROWS);
    int planes = kind->planar ? kind->c : 1, h = kind->tiled ? SIDE : ROWS, w = kind->tiled ? SIDE : W;
    for (int plane = 0; plane < planes; plane++)
        for (int y = 0; y < H; y += h)
            for (int x = 0; x < W; x += w) {
                int rows = kind->tiled || y + h < H ? h : H - y;
                size_t bytes = (size_t)(rows * w * (kind->planar ? 1 : kind->c) * kind->bits / 8);
                fill_block(kind, y, x, rows, w, plane, block);
                uint32_t top = (uint32_t)y, strip = TIFFComputeStrip(tiff, top, (uint16_t)plane);
                tmsize_t put = kind->tiled
                                   ? TIFFWriteTile(tiff, block, (uint32_t)x, top, 0, (uint16_t)plane)
                                   : TIFFWriteEncodedStrip(tiff, strip, block, (tmsize_t)bytes);
                assert_true(put >= 0);
            }
}

static uint8_t *write_tiff(const struct kind *kind, size_t *count)
{
    int file = memfd_create("tiff", 0), copy = dup(file);
    TIFF *tiff = TIFFFdOpen(copy, "test", kind->mode);
    assert_non_null(tiff);
    for (int i = 0; i < kind->pages; i++) {
        write_page(tiff, kind);
        TIFFWriteDirectory(tiff);
    }
    TIFFClose(tiff);
    *count = (size_t)lseek(file, 0, SEEK_END);
    uint8_t *bytes = memory_new(*count, 1);
    assert_int_equal(pread(file, bytes, *count, 0), *count);
    close(file);
    return bytes;
}

static struct image decoded(const struct kind *kind, struct image_options options)
{
    struct image image = {0};
    struct reason reason;
    size_t count;
    uint8_t *bytes = write_tiff(kind, &count);
    if (!image_decode(bytes, count, options, NULL, &image, &reason)) fail_msg("%s", reason.text);
    free(bytes);
    return image;
}

static double value_at(const struct image *image, int y, int x, int k)
{
    size_t at = ((size_t)y * (size_t)image->w + (size_t)x) * (size_t)image->c + (size_t)k;
    return image->deep ? (double)image_numbers(image)[at] : image->pixels[at];
}

/* Kinds that are compared in full, by combinations: 3 types and another, channels, layouts, compressions. */
static void keeps_every_sample(void **state)
{
    static const int types[][2] = {{8, SAMPLEFORMAT_UINT}, {16, SAMPLEFORMAT_UINT}, {16, SAMPLEFORMAT_INT},
                                   {32, SAMPLEFORMAT_IEEEFP}};
    static const int channels[] = {1, 2, 3, 4, 5, 13, 16};
    static const int compressions[] = {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE,
                                       COMPRESSION_PACKBITS, COMPRESSION_ZSTD, COMPRESSION_LZMA};
    static const char *const modes[] = {"w", "wb", "w8", "wb8"};
    int number = 0, kinds = 0;
    for (int t = 0; t < 4; t++)
        for (int c = 0; c < 7; c++)
            for (int layout = 0; layout < 4; layout++, number++) {
                struct kind kind = plain;
                kind.bits = types[t][0];
                kind.format = types[t][1];
                kind.c = channels[c];
                kind.photometric = channels[c] == 3 ? PHOTOMETRIC_RGB : PHOTOMETRIC_MINISBLACK;
                kind.planar = layout & 1;
                kind.tiled = layout & 2;
                kind.mode = modes[number / 3 % 4];
                kind.compression = compressions[number % 6];
                bool lzw = number % 6 == 1 || number % 6 == 2;
                kind.predictor = !lzw ? 0 : kind.bits == 32 ? PREDICTOR_FLOATINGPOINT : PREDICTOR_HORIZONTAL;
                if (!TIFFIsCODECConfigured((uint16_t)kind.compression)) continue;
                struct image image = decoded(&kind, (struct image_options){.channels = kind.c});
                kinds++;
                assert_int_equal(image.deep, kind.bits > 8);
                for (int y = 0; y < H; y++)
                    for (int x = 0; x < W; x++)
                        for (int k = 0; k < kind.c; k++)
                            assert_true(value_at(&image, y, x, k) == sample_of(&kind, y, x, k));
                image_free(&image);
            }
    assert_true(kinds >= 60);
}

static void channels_are_converted_or_chosen(void **state)
{
    struct kind kind = plain;
    kind.bits = 16;
    struct image image = decoded(&kind, (struct image_options){.channels = 1});
    double grey = (19595 * sample_of(&kind, 3, 4, 0) + 38470 * sample_of(&kind, 3, 4, 1) +
                   7471 * sample_of(&kind, 3, 4, 2)) / 65536;
    assert_true(value_at(&image, 3, 4, 0) - grey < 0.01 && grey - value_at(&image, 3, 4, 0) < 0.01);
    image_free(&image);
    kind.c = 4;
    kind.extra = EXTRASAMPLE_UNASSALPHA;
    image = decoded(&kind, (struct image_options){.channels = 3});
    double alpha = sample_of(&kind, 5, 6, 3) / 65535;
    double white = sample_of(&kind, 5, 6, 1) * alpha + 65535 * (1 - alpha);
    assert_true(value_at(&image, 5, 6, 1) - white < 0.1 && white - value_at(&image, 5, 6, 1) < 0.1);
    image_free(&image);
    kind.c = 13;
    image = decoded(&kind, (struct image_options){.channels = 3, .bands = {true, 3, {12, 0, 7}}});
    for (int k = 0; k < 3; k++)
        assert_true(value_at(&image, 20, 17, k) == sample_of(&kind, 20, 17, (int[]){12, 0, 7}[k]));
    image_free(&image);
    image = decoded(&kind, (struct image_options){.channels = 5, .bands = {.strict = true}});
    for (int k = 0; k < 5; k++) assert_true(value_at(&image, 9, 2, k) == sample_of(&kind, 9, 2, k));
    image_free(&image);
    kind.c = 1;
    kind.photometric = PHOTOMETRIC_MINISWHITE;
    image = decoded(&kind, (struct image_options){.channels = 3});
    for (int k = 0; k < 3; k++) assert_true(value_at(&image, 7, 7, k) == 65535 - sample_of(&kind, 7, 7, 0));
    image_free(&image);
}

static void refused(const struct kind *kind, struct image_options options, const char *why)
{
    struct image image = {0};
    struct reason reason;
    size_t count;
    uint8_t *bytes = write_tiff(kind, &count);
    assert_false(image_decode(bytes, count, options, NULL, &image, &reason));
    if (!strstr(reason.text, why)) fail_msg("'%s' instead of '%s'", reason.text, why);
    free(bytes);
    image_free(&image);
}

static void fewer_channels_name_both_numbers(void **state)
{
    struct kind kind = plain;
    refused(&kind, (struct image_options){.channels = 4, .bands = {.strict = true}}, "has 3 channels, not 4");
    refused(&kind, (struct image_options){.channels = 2, .bands = {true, 2, {0, 3}}},
            "has 3 channels, but data.bands asks for number 4");
    kind.c = 1;
    kind.photometric = PHOTOMETRIC_MINISBLACK;
    refused(&kind, (struct image_options){.channels = 3, .bands = {.strict = true}}, "has 1 channel, not 3");
    kind.c = 13;
    refused(&kind, (struct image_options){.channels = 3}, "data.channels or data.bands");
    kind.bits = 32;
    kind.format = SAMPLEFORMAT_UINT;
    refused(&kind, (struct image_options){.channels = 13}, "32 bits a sample, unsigned");
}

static void pages_and_orientation(void **state)
{
    struct kind kind = plain;
    kind.bits = 16;
    kind.pages = 3;
    kind.orientation = 6;              /* the first row is the right side */
    struct image image = decoded(&kind, (struct image_options){.channels = 3});
    assert_int_equal(image.pages, 3);
    assert_int_equal(image.h, W);
    assert_int_equal(image.w, H);
    assert_true(value_at(&image, 2, H - 1 - 4, 1) == sample_of(&kind, 4, 2, 1));
    image_free(&image);
    image = decoded(&kind, (struct image_options){.channels = 3, .ignore_orientation = true});
    assert_true(value_at(&image, 4, 2, 1) == sample_of(&kind, 4, 2, 1));
    image_free(&image);
}

/* libtiff says nothing itself. */
static void damage_is_a_reason(void **state)
{
    struct image image = {0};
    struct reason reason;
    struct kind kind = plain;
    size_t count;
    int silent = memfd_create("stderr", 0), own = dup(STDERR_FILENO);
    kind.bits = 16;
    kind.compression = COMPRESSION_ADOBE_DEFLATE;
    uint8_t *bytes = write_tiff(&kind, &count), *copy = memory_new(count, 1);
    struct random random = random_open(5, PURPOSE_TEST, 1, 0);
    fflush(stderr);
    dup2(silent, STDERR_FILENO);
    for (size_t length = 0; length < count; length += 7) {
        memcpy(copy, bytes, length);
        bool good = image_decode(copy, length, (struct image_options){.channels = 3}, NULL, &image, &reason);
        assert_false(good);
        assert_true(reason.text[0]);
    }
    for (int i = 0; i < 2000; i++) {
        memcpy(copy, bytes, count);
        for (int k = 0; k < 3; k++)
            copy[8 + random_below(&random, (uint32_t)count - 8)] = (uint8_t)random_below(&random, 256);
        image_decode(copy, count, (struct image_options){.channels = 3}, NULL, &image, &reason);
    }
    fflush(stderr);
    dup2(own, STDERR_FILENO);
    assert_int_equal(lseek(silent, 0, SEEK_END), 0);
    close(silent);
    close(own);
    free(bytes);
    free(copy);
    image_free(&image);
}

/* Deep images and bytes of the same values make the same numbers, but for the rounding of resized bytes, which
 * is done twice for bicubic ones; none overshoots. */
static void crops_equal_those_of_bytes(void **state)
{
    struct random random = random_open(7, PURPOSE_TEST, 2, 0);
    for (int i = 0; i < 200; i++) {
        int h = 5 + (int)random_below(&random, 30), w = 5 + (int)random_below(&random, 30), c = 1 + i % 4;
        int out_h = 4 + (int)random_below(&random, 20), out_w = 4 + (int)random_below(&random, 20);
        struct image image = {0}, deep = {0};
        struct reason reason;
        assert_true(image_resize_buffer(&image, h, w, c, &reason));
        assert_true(image_resize_deep(&deep, h, w, c, 0, 255, &reason));
        for (int k = 0; k < h * w * c; k++)
            image_numbers(&deep)[k] = image.pixels[k] = (uint8_t)(96 + random_below(&random, 64));
        struct augment augment = {
            .crop = true, .random_resized = i % 3 == 0, .scale = {0.3, 1}, .ratio = {0.7, 1.4},
            .pad = i % 3 == 1 ? 3 : 0, .random_crop = i % 3 == 1, .flip = 0.5, .vflip = i % 2 ? 0.5 : 0,
            .rotate = i % 5 == 0 ? 40 : 0, .reflect = i % 7 == 0, .channels = c, .val_crop = true,
            .resize = image_size_square(i % 3 == 1 ? 24 : i % 3 == 2 ? 20 : 0),
            .val_resize = image_size_square(24), .interpolation = i % 2 ? RESIZE_BICUBIC : RESIZE_BILINEAR,
        };
        /* Beyond the edges bytes are 0, not what the range makes 0. */
        if (i % 4 == 3 && augment.random_resized) augment.range = (struct image_range){true, 10, 300};
        for (int k = 0; k < c; k++) augment.mean[k] = 0.3 + 0.1 * k, augment.std[k] = 0.2 + 0.1 * k;
        size_t numbers = (size_t)(out_h * out_w * c);
        float *one = memory_new(numbers, sizeof *one), *other = memory_new(numbers, sizeof *other);
        struct scratch scratch = {0};
        struct random first = random_open(3, PURPOSE_TEST, 9, (uint64_t)i), second = first;
        bool evaluated = i % 6 == 5;
        const struct augmenting a = {&augment, evaluated ? NULL : &first, &scratch};
        const struct augmenting b = {&augment, evaluated ? NULL : &second, &scratch};
        const struct augment_output to_one = {out_h, out_w, F32, one}, to_other = {out_h, out_w, F32, other};
        bool good = augment_image(&a, &image, &to_one, &reason);
        assert_true(good == augment_image(&b, &deep, &to_other, &reason));
        double step = augment.range.set ? 290 : 255;
        for (size_t k = 0; good && k < numbers; k++) {
            double apart = (double)one[k] - (double)other[k];
            double most = (evaluated ? 2.2 : 1.1) / step / augment.std[k % (size_t)c];
            if (augment.rotate > 0 && augment.range.set) break;
            assert_true(apart <= most && apart >= -most);
        }
        free(one);
        free(other);
        scratch_free(&scratch);
        image_free(&image);
        image_free(&deep);
    }
}

/* (x - low) / (high - low), less the mean, over the deviation; beyond the range, too. */
static void ranges_are_applied_to_every_sample(void **state)
{
    struct image image = {0};
    struct reason reason;
    struct scratch scratch = {0};
    float out[6];
    const float values[6] = {-500, 0, 1000, 3000, 65535, 1e6f};
    struct augment augment = {.val_crop = true, .channels = 1, .mean = {0.25}, .std = {0.5}};
    const struct augmenting how = {&augment, NULL, &scratch};
    assert_true(image_resize_deep(&image, 2, 3, 1, 0, 65535, &reason));
    memcpy(image.pixels, values, sizeof values);
    for (int set = 0; set < 2; set++) {
        augment.range = (struct image_range){set, 1000, 3000};
        double low = set ? 1000 : 0, high = set ? 3000 : 65535;
        assert_true(augment_image(&how, &image, &(struct augment_output){2, 3, F32, out}, &reason));
        for (int i = 0; i < 6; i++) {
            double wanted = (((double)values[i] - low) / (high - low) - 0.25) / 0.5;
            double apart = ((double)out[i] - wanted) / (wanted < 0 ? 1 - wanted : 1 + wanted);
            assert_true(apart <= 1e-6 && apart >= -1e-6);
        }
    }
    image_free(&image);
    scratch_free(&scratch);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_every_sample),
        cmocka_unit_test(channels_are_converted_or_chosen),
        cmocka_unit_test(fewer_channels_name_both_numbers),
        cmocka_unit_test(pages_and_orientation),
        cmocka_unit_test(damage_is_a_reason),
        cmocka_unit_test(crops_equal_those_of_bytes),
        cmocka_unit_test(ranges_are_applied_to_every_sample),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
