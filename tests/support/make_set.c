/* make_set.c: writes a small set of PNG files with a table, FOLDER/labels.csv, of something that can be seen:
 * make_set FOLDER classify|multilabel|regress COUNT SIDE CHANNELS [A [B]]: A classes (3), of which the first
 * has the share B; numbers around A with the deviation B. */
#include <math.h>
#include <png.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static uint32_t state = 1;
static double uniform(void) { return (state = state * 1664525u + 1013904223u) / 4294967296.0; }

/* About normal. */
static double normal(void)
{
    double sum = -6;
    for (int i = 0; i < 12; i++) sum += uniform();
    return sum;
}

struct picture {
    double disc;               /* its radius */
    int wave;                  /* 0: none */
    int labels[3];             /* of stripes at the top, in the middle, at the bottom */
};

static double light(const struct picture *picture, int side, int y, int x)
{
    double light = 110 + 25 * normal(), dy = y - side / 2.0, dx = x - side / 2.0;
    if (dy * dy + dx * dx < picture->disc * picture->disc) light += 90;
    if (picture->wave) light += 45 * sin((picture->wave % 2 ? x : y) * (0.3 + 0.25 * picture->wave));
    if (picture->labels[3 * y / side]) light += y % 3 ? 30 : -80;
    return fmin(255, fmax(0, light));
}

static int write_picture(const char *path, const struct picture *picture, int side, int channels)
{
    uint8_t *pixels = malloc((size_t)(side * side * channels)), *to = pixels;
    png_image image = {.version = PNG_IMAGE_VERSION, .height = (unsigned)side, .width = (unsigned)side,
                       .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    for (int i = 0; i < side * side; i++)
        for (int c = 0; c < channels; c++) *to++ = (uint8_t)light(picture, side, i / side, i % side);
    int written = png_image_write_to_file(&image, path, 0, pixels, 0, NULL);
    free(pixels);
    return written ? 0 : 1;
}

int main(int count, char **words)
{
    if (count < 6) return 2;
    const char *folder = words[1], *kind = words[2];
    int images = atoi(words[3]), side = atoi(words[4]), channels = atoi(words[5]);
    double a = count > 6 ? atof(words[6]) : 3, b = count > 7 ? atof(words[7]) : 0;
    char path[4096];
    snprintf(path, sizeof path, "%s/labels.csv", folder);
    int failed = mkdir(folder, 0777);
    FILE *table = fopen(path, "w");
    if (!table) return 1;
    fprintf(table, *kind == 'r' ? "path,value\n" : *kind == 'm' ? "path,a,b,c\n" : "path,label\n");
    for (int i = 0; i < images; i++) {
        struct picture picture = {0};
        double number = normal();
        fprintf(table, "%d.png", i);
        if (*kind == 'r') {
            picture.disc = side * 0.25 * exp(0.3 * number);
            fprintf(table, ",%.9g\n", a + b * number);
        } else if (*kind == 'm') {
            for (int c = 0; c < 3; c++) fprintf(table, ",%d", picture.labels[c] = uniform() < 0.5 / (c + 1));
            fprintf(table, "\n");
        } else {
            int class = uniform() < b ? 0 : i % (int)a;
            picture.wave = class + 1;
            fprintf(table, ",c%d\n", class);
        }
        snprintf(path, sizeof path, "%s/%d.png", folder, i);
        failed |= write_picture(path, &picture, side, channels);
    }
    return fclose(table) || failed ? 1 : 0;
}
