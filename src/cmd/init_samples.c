#include "cmd/init_samples.h"

#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"

#define FILES 32               /* that are looked at */
#define SAMPLES 2000           /* of each */
#define TAIL 0.001             /* the share of samples that may lie beyond either end */

struct look {
    float *samples;            /* [count] of deep images */
    int64_t count;
    int files, channels;       /* channels: -1: files differ, or are grey or colours */
    float low, high;           /* of the type of the files */
    bool whole;                /* samples are whole numbers */
};

static int compare_samples(const void *a, const void *b)
{
    float one = *(const float *)a, other = *(const float *)b;
    return (one > other) - (one < other);
}

static void add_file(const struct image *image, struct look *look)
{
    bool colours = image->c == 1 || image->c == 3 || image->alpha;
    size_t count = (size_t)image->h * (size_t)image->w * (size_t)image->c;
    if (look->files++ == 0) look->channels = colours ? -1 : image->c;
    else if (look->channels != image->c) look->channels = -1;
    if (!image->deep) return;
    look->low = image->low;
    look->high = image->high;
    size_t wanted = count < SAMPLES ? count : SAMPLES;
    for (size_t i = 0; i < wanted; i++) {
        float sample = image_numbers(image)[i * count / wanted];
        look->samples[look->count++] = sample;
        look->whole = look->whole && sample == floorf(sample);
    }
}

/* The ends between which nearly all samples lie; from 0 where the lower one is near it. */
static void choose_range(struct look *look, struct init_samples *found)
{
    qsort(look->samples, (size_t)look->count, sizeof *look->samples, compare_samples);
    double low = look->samples[(int64_t)((double)(look->count - 1) * TAIL)];
    double high = look->samples[(int64_t)((double)(look->count - 1) * (1 - TAIL))];
    if (low > 0 && low < 0.1 * (high - low)) low = 0;
    if (look->whole) low = floor(low), high = ceil(high);
    if (!(high > low)) return;
    found->range = (struct image_range){true, low, high};
    log_info("files have more than 8 bits a sample; 99.8 %% of those of %d lie between %.6g and %.6g, which "
             "is suggested as data.range (the type's is %.6g to %.6g)", look->files, low, high,
             (double)look->low, (double)look->high);
}

void init_samples_look(struct dataset *dataset, struct init_samples *found)
{
    struct dataset stored = *dataset;
    struct look look = {.whole = true};
    struct image image = {0};
    struct reason unsaid;
    int label;
    if (!dataset->decoded || !dataset->format->read_file) return;
    stored.c = 0;
    int64_t wanted = dataset->count < FILES ? dataset->count : FILES;
    look.samples = memory_new(FILES * SAMPLES, sizeof *look.samples);
    for (int64_t i = 0; i < wanted; i++)
        if (dataset->format->read(&stored, i * dataset->count / wanted, NULL, &image, &label, &unsaid))
            add_file(&image, &look);
    image_free(&image);
    if (look.count > 0) choose_range(&look, found);
    free(look.samples);
    found->deep = look.count > 0;
    if (look.channels <= 0) return;
    found->own_channels = dataset->bands.strict = true;
    dataset->c = look.channels;
    log_info("files have %d channels, all of which are used; data.bands names some of them", look.channels);
}
