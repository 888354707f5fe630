#include "data/augment/augment_deep.h"

#include <math.h>
#include <string.h>

#include "data/augment/gpu_preprocessing.h"

void deep_scale_of(const struct image_range *range, const double *mean, const double *std, int channels,
                   struct deep_scale *scale)
{
    double width = range->high - range->low;
    for (int k = 0; k < channels; k++) {
        scale->scale[k] = 1 / (width * std[k]);
        scale->offset[k] = -(range->low / width + mean[k]) / std[k];
    }
}

void deep_scale_write(const struct deep_scale *scale, enum dtype dtype, const float *from, int count, int c,
                      void *to)
{
    float *numbers = to;
    uint16_t *halves = to;
    for (int i = 0; i < count; i++, from += c)
        for (int k = 0; k < c; k++) {
            float value = (float)(from[k] * scale->scale[k] + scale->offset[k]);
            if (dtype == F32) *numbers++ = value;
            else *halves++ = dtype == F16 ? f16_from_float(value) : bf16_from_float(value);
        }
}

/* A pixel of an image; NULL: beyond its edges. */
static const float *deep_pixel(const struct cut *cut, const struct image *image, int y, int x)
{
    y = image_record_pixel(y, image->h, cut->reflect);
    x = image_record_pixel(x, image->w, cut->reflect);
    if (y < 0 || y >= image->h || x < 0 || x >= image->w) return NULL;
    return image_numbers(image) + ((size_t)y * (size_t)image->w + (size_t)x) * (size_t)image->c;
}

/* Four pixels around a place, weighted bilinearly. */
static void deep_between(const struct cut *cut, const struct image *image, float black, struct place place,
                         float *out)
{
    double above = floor(place.y - 0.5), left = floor(place.x - 0.5);
    double down = place.y - 0.5 - above, across = place.x - 0.5 - left;
    const double weights[] = {(1 - down) * (1 - across), (1 - down) * across, down * (1 - across),
                              down * across};
    const float *pixels[4];
    for (int i = 0; i < 4; i++) pixels[i] = deep_pixel(cut, image, (int)above + i / 2, (int)left + i % 2);
    for (int k = 0; k < image->c; k++) {
        double sum = 0;
        for (int i = 0; i < 4; i++) sum += weights[i] * (double)(pixels[i] ? pixels[i][k] : black);
        out[k] = (float)sum;
    }
}

void augment_deep_row(const struct cut *cut, const struct image *image, float black, int y, float *row)
{
    const struct box *window = &cut->window;
    struct turning turning = turning_of(cut, (struct box){0});
    for (int x = 0; x < window->w; x++, row += image->c) {
        int from_y = window->y + (cut->vflip ? window->h - 1 - y : y);
        const float *pixel;
        if (cut_is_turned(cut))
            deep_between(cut, image, black, turning_place(&turning, y, x), row);
        else if ((pixel = deep_pixel(cut, image, from_y, window->x + (cut->flip ? window->w - 1 - x : x))))
            memcpy(row, pixel, (size_t)image->c * sizeof *row);
        else
            for (int k = 0; k < image->c; k++) row[k] = black;
    }
}
