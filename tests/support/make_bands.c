/* make_bands.c: writes small sets of images whose classes the upper 8 bits do not show:
 * make_bands FOLDER grey COUNT: PNG of 16 bits, FOLDER/CLASS/N.png, which differ by 60 of 65536;
 * make_bands FOLDER bands COUNT: TIFF of 13 channels of 16 bits, in every layout, one of which is brighter;
 * make_bands FOLDER masks COUNT: FOLDER/images/N.tif of 16 bits, grey, and FOLDER/masks/N.png;
 * make_bands FOLDER stacks COUNT: the same with 5 channels, of which the fourth shows the mask. */
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <tiffio.h>

#define SIDE 32
#define BANDS 13

static uint32_t state = 1;

static uint16_t noise(uint32_t below)
{
    state = state * 1664525u + 1013904223u;
    return (uint16_t)((state >> 16) % below);
}

static int write_png(const char *path, png_uint_32 format, const void *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .format = format, .width = SIDE, .height = SIDE};
    return png_image_write_to_file(&image, path, 0, pixels, 0, NULL) ? 0 : 1;
}

/* libpng's simple interface would apply a gamma to 16 bits. */
static int write_deep(const char *path, uint16_t *pixels)
{
    FILE *file = fopen(path, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_init_io(png, file);
    png_set_IHDR(png, info, SIDE, SIDE, 16, PNG_COLOR_TYPE_GRAY, PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    png_write_info(png, info);
    if (__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__) png_set_swap(png);
    for (int y = 0; y < SIDE; y++) png_write_row(png, (png_bytep)(pixels + y * SIDE));
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    return fclose(file) != 0;
}

/* Interleaved or by planes, by `number`; BigTIFF, big endian or neither. */
static int write_tiff(const char *path, int number, int channels, const uint16_t *pixels)
{
    static const char *const modes[] = {"w", "w8", "wb"};
    static const uint16_t compressions[] = {COMPRESSION_NONE, COMPRESSION_LZW, COMPRESSION_ADOBE_DEFLATE};
    TIFF *tiff = TIFFOpen(path, modes[number % 3]);
    uint16_t row[SIDE * BANDS], extra[BANDS] = {0};
    int planes = number % 2 ? channels : 1, each = channels / planes;
    if (!tiff) return 1;
    TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, SIDE);
    TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, SIDE);
    TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, 16);
    TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, channels);
    TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, PHOTOMETRIC_MINISBLACK);
    TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, planes > 1 ? PLANARCONFIG_SEPARATE : PLANARCONFIG_CONTIG);
    TIFFSetField(tiff, TIFFTAG_COMPRESSION, compressions[number / 2 % 3]);
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 5);
    if (channels > 1) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, channels - 1, extra);
    for (int plane = 0; plane < planes; plane++)
        for (int y = 0; y < SIDE; y++) {
            for (int i = 0; i < SIDE * each; i++)
                row[i] = pixels[(y * SIDE + i / each) * channels + plane + i % each];
            if (TIFFWriteScanline(tiff, row, (uint32_t)y, (uint16_t)plane) < 0) return 1;
        }
    TIFFClose(tiff);
    return 0;
}

static int write_image(const char *folder, const char *kind, int number)
{
    static uint16_t pixels[SIDE * SIDE * BANDS];
    static uint8_t mask[SIDE * SIDE];
    char path[4096];
    int class = number % 3, top = noise(SIDE / 2), left = noise(SIDE / 2);
    int stacked = strcmp(kind, "stacks") == 0, masked = stacked || strcmp(kind, "masks") == 0;
    int c = stacked ? 5 : strcmp(kind, "bands") ? 1 : BANDS;
    for (int i = 0; i < SIDE * SIDE; i++) {
        int y = i / SIDE, x = i % SIDE;
        mask[i] = y >= top && y < top + SIDE / 2 && x >= left && x < left + SIDE / 2;
        for (int k = 0; k < c; k++) pixels[i * c + k] = (uint16_t)(1030 + noise(c == 1 ? 20 : 100));
        if (stacked) pixels[i * c + 3] += 100 * mask[i];
        else if (c > 1) pixels[i * c + 4 * class] += 100;
        else pixels[i] = (uint16_t)(pixels[i] + (masked ? 100 * mask[i] : 60 * class));
    }
    snprintf(path, sizeof path, masked ? "%s/images" : "%s/%c", folder, 'a' + class);
    mkdir(path, 0777);
    size_t length = strlen(path);
    snprintf(path + length, sizeof path - length, "/%d.%s", number, c == 1 && !masked ? "png" : "tif");
    int failed = c == 1 && !masked ? write_deep(path, pixels) : write_tiff(path, number, c, pixels);
    if (!masked) return failed;
    snprintf(path, sizeof path, "%s/masks", folder);
    mkdir(path, 0777);
    snprintf(path, sizeof path, "%s/masks/%d.png", folder, number);
    return failed | write_png(path, PNG_FORMAT_GRAY, mask);
}

int main(int count, char **arguments)
{
    if (count != 4) return 2;
    mkdir(arguments[1], 0777);
    for (int i = 0; i < atoi(arguments[3]); i++)
        if (write_image(arguments[1], arguments[2], i) != 0) return 1;
    return 0;
}
