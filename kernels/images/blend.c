/* blend.c: where tiles lie, and the CPU code. */
#include "kernels/images/blend.h"

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

static enum status blend_add(struct device *device, void *stream, const struct blend_tile *tile)
{
#pragma omp parallel for schedule(static)
    for (int row = 0; row < tile->h; row++)
        for (int column = 0; column < tile->w; column++) blend_add_pixel(tile, row, column);
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
