/* images.c: GPU preprocessing of images in plain loops: the reference for other devices' code. */
#include "kernels/images/images.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment.h"
#include "data/augment/vary.h"

/* The source of outputs along one axis. */
struct axis {
    int size, target, most;
    float *weights;            /* of one output */
    struct pixel_range span;
};

static struct axis axis_make(int size, int target)
{
    struct axis axis = {.size = size, .target = target, .most = resample_taps(size, target)};
    axis.weights = memory_new((size_t)axis.most, sizeof *axis.weights);
    return axis;
}

static void axis_at(struct axis *axis, int i)
{
    axis->span = resample_pixels(axis->size, axis->target, i);
    resample_weights(axis->size, axis->target, i, axis->span, axis->weights);
}

/* One channel of one pixel of the resized image. */
static uint8_t resampled(const struct image_record *image, const uint8_t *first, int c, int k,
                         struct axis *down, const struct axis *across)
{
    int count = across->span.high - across->span.low;
    const uint8_t *top = first + (image->from.y + down->span.low) * image->stride;
    float *sums = memory_new((size_t)count, sizeof *sums);
    for (int i = 0; i < count; i++)
        sums[i] = resample_down(top + (image->from.x + across->span.low + i) * c + k, image->stride,
                                down->weights, down->span.high - down->span.low);
    uint8_t byte = resample_across(sums, 1, across->weights, count);
    free(sums);
    return byte;
}

static void images_put(const struct images_job *job, int64_t element, uint32_t bits)
{
    if (job->dtype == F32) ((uint32_t *)job->out)[element] = bits;
    else ((uint16_t *)job->out)[element] = (uint16_t)bits;
}

/* The window of an image as bytes, [window.h, window.w, c]. */
static void images_cut(const struct images_job *job, const struct image_record *image, uint8_t *to)
{
    const uint8_t *first = job->sources[image->source] + image->at;
    struct axis down = axis_make(image->from.h, image->h), across = axis_make(image->from.w, image->w);
    const struct box *window = &image->window;
    for (int y = 0; y < window->h; y++) {
        int from_y = image_record_pixel(window->y + (image->vflip ? window->h - 1 - y : y), image->h,
                                        image->reflect);
        bool row = from_y >= 0 && from_y < image->h;
        if (row) axis_at(&down, from_y);
        for (int x = 0; x < window->w; x++) {
            int column = window->x + (image->flip ? window->w - 1 - x : x);
            int from_x = image_record_pixel(column, image->w, image->reflect);
            bool seen = row && from_x >= 0 && from_x < image->w;
            if (seen) axis_at(&across, from_x);
            for (int k = 0; k < job->c; k++)
                *to++ = seen ? resampled(image, first, job->c, k, &down, &across) : 0;
        }
    }
    free(down.weights);
    free(across.weights);
}

static enum status images_preprocess_one(const struct images_job *job, int number)
{
    const struct image_record *image = &job->images[number];
    struct image picture = {0}, turned = {0}, copy = {0};
    struct intensity_scratch scratch = {0};
    struct reason reason;
    const struct box *window = &image->window;
    bool good = image->blank || image_resize_buffer(&picture, window->h, window->w, job->c, &reason);
    if (good && !image->blank) images_cut(job, image, picture.pixels);
    const struct variation *variation = job->variations ? &job->variations[number] : NULL;
    if (good && variation && variation->turned) {
        good = image_resize_buffer(&turned, job->h, job->w, job->c, &reason);
        if (good) augment_turn(&variation->turning, picture.pixels, job->c, turned.pixels);
    }
    struct image *last = turned.pixels ? &turned : &picture;
    if (good && variation) good = vary_apply(variation, last, &copy, &scratch, &reason);
    int64_t numbers = (int64_t)job->h * job->w * job->c;
    for (int64_t i = 0; good && i < numbers; i++) {
        int64_t pixel = i / job->c;
        bool zero = image->blank || image_record_erases(image, (int)(pixel / job->w), (int)(pixel % job->w));
        images_put(job, number * numbers + i, zero ? 0 : job->table[i % job->c][last->pixels[i]]);
    }
    image_free(&picture);
    image_free(&turned);
    image_free(&copy);
    intensity_scratch_free(&scratch);
    return good ? OK : fail(FAILED, "%s", reason.text);
}

static enum status images_preprocess(const struct images_job *job)
{
    for (int i = 0; i < job->count; i++) TRY(images_preprocess_one(job, i));
    const struct mix_batch batch = {job->out, job->dtype, job->count, job->h, job->w, job->c};
    if (job->mix) mix_rows(job->mix, &batch, 0, job->h);
    return OK;
}

const struct images_code images_cpu = {images_preprocess};
