/* blend.c: where tiles lie, and the CPU code. */
#include "kernels/images/blend.h"

#include <string.h>

#include "data/image/mask_classes.h"

int blend_count(int length, int tile, double overlap)
{
    int step = (int)(tile * (1 - overlap) + 1e-6);
    if (step < 1) step = 1;
    return length <= tile ? 1 : 1 + (length - tile + step - 1) / step;
}

void blend_window(int tile, float *window)
{
    for (int i = 0; i < tile; i++) {
        double off = (i - (tile - 1) / 2.0) / (tile / 8.0);
        window[i] = (float)exp(-off * off / 2);
    }
}

static void add_pixel(const struct blend_tile *tile, int row, int column)
{
    int classes = tile->band.classes;
    float *sums = blend_target(tile, row, column), numbers[MASK_CLASSES_MAX];
    if (!sums) return;
    memcpy(numbers, tile->logits + ((int64_t)row * tile->w + column) * classes,
           (size_t)classes * sizeof *numbers);
    blend_weigh(tile, row, column, numbers);
    for (int c = 0; c < classes; c++) sums[c] += numbers[c];
}

static enum status blend_add(struct device *device, void *stream, const struct blend_tile *tile)
{
#pragma omp parallel for schedule(static)
    for (int row = 0; row < tile->h; row++)
        for (int column = 0; column < tile->w; column++) add_pixel(tile, row, column);
    return OK;
}

static enum status blend_finish(struct device *device, void *stream, const struct blend_part *part)
{
#pragma omp parallel for schedule(static)
    for (int row = 0; row < part->box.h; row++) {
        double loss = 0;
        for (int column = 0; column < part->box.w; column++)
            loss += (double)blend_finish_pixel(part, row, column);
        part->losses[row] = loss;
    }
    return OK;
}

const struct blend_code blend_cpu = {blend_add, blend_finish};
