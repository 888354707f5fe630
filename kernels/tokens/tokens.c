#include "kernels/tokens/tokens.h"

#include "kernels/cpu.h"
#include "kernels/support/pixels_cpu.h"

const char *const token_inits[] = {"zero", "normal", "truncated_normal", NULL};

enum init token_init(const struct token_init *settings)
{
    static const enum init inits[] = {INIT_ZERO, INIT_NORMAL, INIT_TRUNCATED_NORMAL};
    return inits[settings->choice];
}

void tokens_sum_images(const struct tensor *from, const struct tensor *to)
{
    int64_t images = from->shape.n, image = shape_count(from->shape) / images;
    for (int64_t i = 0; i < shape_count(to->shape); i++) {
        double sum = 0;
        for (int64_t n = 0; n < images; n++) sum += tensor_get(from, n * image + i);
        tensor_set(to, i, sum);
    }
}

void tokens_sum_images_cpu(const struct tensor *from, const struct tensor *to)
{
    int64_t images = from->shape.n, image = shape_count(from->shape) / images, count = shape_count(to->shape);
#pragma omp parallel for schedule(static) if (images * count > PARALLEL)
    for (int64_t i = 0; i < count; i += BLOCK) {
        ALIGNED float sum[BLOCK] = {0}, line[BLOCK];
        int64_t length = min_count(BLOCK, count - i);
        for (int64_t n = 0; n < images; n++)
            pixels_add(block_load(from, n * image + i, length, line), sum, length);
        dtype_convert(to->dtype, block_address(to, i), F32, sum, (size_t)length);
    }
}
