#include "data/loader/mask_targets.h"

#include <string.h>

size_t mask_targets_bytes(const struct mask_targets *targets, int images)
{
    size_t labels = (size_t)images * (size_t)targets->h * (size_t)targets->w;
    size_t numbers = (size_t)targets->outputs * (size_t)targets->classes;
    return numbers == 0 ? labels : mask_targets_table(labels) + numbers * sizeof(float);
}

/* Neighbours, which are mostly of one class, are counted in different places. */
static void count_row(const uint8_t *row, int w, int stride, uint32_t counts[2][256])
{
    int i = 0, odd = 0;
    for (; i < w; i += stride, odd = !odd) counts[odd][row[i]]++;
}

static void count_output(const struct mask_targets *targets, int stride, const uint8_t *labels, int images,
                         double *counts)
{
    for (int i = 0; i < images; i++) {
        const uint8_t *image = labels + (size_t)i * (size_t)targets->h * (size_t)targets->w;
        uint32_t here[2][256] = {{0}};
        for (int y = 0; y < targets->h; y += stride)
            count_row(image + (size_t)y * (size_t)targets->w, targets->w, stride, here);
        for (int c = 0; c < targets->classes && c < 255; c++)
            counts[c] += (double)here[0][c] + (double)here[1][c];
    }
}

void mask_targets_count(const struct mask_targets *targets, const uint8_t *labels, int images, double *counts)
{
    memset(counts, 0, (size_t)targets->outputs * (size_t)targets->classes * sizeof *counts);
    for (int o = 0; o < targets->outputs; o++)
        count_output(targets, targets->stride[o], labels, images, counts + o * targets->classes);
}

/* The order of the sum is that of the classes, so no bit depends on how the batch is divided. */
void mask_targets_weigh(const struct mask_targets *targets, const double *counts, int images, int all,
                        uint8_t *labels)
{
    size_t pixels = (size_t)images * (size_t)targets->h * (size_t)targets->w;
    float *table = (float *)(labels + mask_targets_table(pixels));
    for (int o = 0; o < targets->outputs; o++, counts += targets->classes, table += targets->classes) {
        double sum = 0;
        for (int c = 0; c < targets->classes; c++)
            sum += counts[c] * (targets->weights ? targets->weights[c] : 1);
        for (int c = 0; c < targets->classes; c++)
            table[c] = sum > 0 ? (float)((targets->weights ? targets->weights[c] : 1) * all / sum) : 0;
    }
}
