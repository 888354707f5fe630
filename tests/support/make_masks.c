/* make_masks.c: writes a small set of images with masks, of discs on a dark ground:
 * make_masks FOLDER two|numbers|sparse|palette|colours COUNT HEIGHT WIDTH [IMAGES MASKS [ENDING [MASK_ENDING]]]: PNG
 * files IMAGES/N.png ("images") and MASKS/N.png ("masks"). Values: 0 and 255; 0, 1, 2 and 255; 0, 50, 100 and
 * 255; indices 0 to 2; black, two colours and white. Every second image has a disc of the first class, every
 * third one of the second; 255, or white, is around discs but in `two`. */
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define SIDE_MAX 512

static const struct kind {
    const char *name;
    uint8_t values[4];
    png_uint_32 format;
} kinds[] = {
    {"two", {0, 255, 255, 255}, PNG_FORMAT_GRAY}, {"numbers", {0, 1, 2, 255}, PNG_FORMAT_GRAY},
    {"sparse", {0, 50, 100, 255}, PNG_FORMAT_GRAY}, {"palette", {0, 1, 2, 0}, PNG_FORMAT_RGB_COLORMAP},
    {"colours", {0, 1, 2, 3}, PNG_FORMAT_RGB},
};
static const uint8_t colours[4][3] = {{0, 0, 0}, {128, 64, 128}, {0, 200, 0}, {255, 255, 255}};

/* The class of a pixel: 0 to 2; 3: the edge of a disc. */
static int class_at(int number, int h, int w, int y, int x)
{
    for (int class = 1; class < 3; class++) {
        if (number % (class + 1) != 0) continue;
        int cy = h / 2, cx = class == 1 ? w / 4 : 3 * w / 4, radius = (h < w / 2 ? h : w / 2) / 3;
        int d = (y - cy) * (y - cy) + (x - cx) * (x - cx);
        if (d < radius * radius) return class;
        if (d < (radius + 1) * (radius + 1)) return 3;
    }
    return 0;
}

static int write_png(const char *path, int h, int w, png_uint_32 format, const uint8_t *pixels)
{
    png_image image = {.version = PNG_IMAGE_VERSION, .format = format, .colormap_entries = 3};
    image.height = (png_uint_32)h;
    image.width = (png_uint_32)w;
    return png_image_write_to_file(&image, path, 0, pixels, 0, colours) ? 0 : 1;
}

static int write_pair(const struct kind *kind, int number, int h, int w, const char *image, const char *mask)
{
    static uint8_t pixels[3 * SIDE_MAX * SIDE_MAX], values[3 * SIDE_MAX * SIDE_MAX];
    uint32_t state = (uint32_t)number + 1;
    for (int i = 0; i < h * w; i++) {
        int class = class_at(number, h, w, i / w, i % w);
        for (int c = 0; c < 3; c++) {
            state = state * 1664525u + 1013904223u;
            pixels[3 * i + c] = (uint8_t)((class == 0 ? 30 : class == 1 ? 180 : 110) + (state >> 26));
            if (kind->format == PNG_FORMAT_RGB) values[3 * i + c] = colours[class][c];
        }
        if (kind->format != PNG_FORMAT_RGB) values[i] = kind->values[class];
    }
    return write_png(image, h, w, PNG_FORMAT_RGB, pixels) | write_png(mask, h, w, kind->format, values);
}

int main(int count, char **words)
{
    size_t k = 0;
    char image[4096], mask[4096];
    if (count < 6) return 2;
    while (k < sizeof kinds / sizeof *kinds && strcmp(kinds[k].name, words[2]) != 0) k++;
    int images = atoi(words[3]), h = atoi(words[4]), w = atoi(words[5]), failed = 0;
    if (k == sizeof kinds / sizeof *kinds || h < 1 || h > SIDE_MAX || w < 1 || w > SIDE_MAX) return 2;
    for (int i = 0; i < images; i++) {
        snprintf(image, sizeof image, "%s/%s/%d%s.png", words[1], count > 7 ? words[6] : "images", i,
                 count > 8 ? words[8] : "");
        snprintf(mask, sizeof mask, "%s/%s/%d%s.png", words[1], count > 7 ? words[7] : "masks", i,
                 count > 9 ? words[9] : "");
        failed |= write_pair(&kinds[k], i, h, w, image, mask);
    }
    return failed;
}
