#include "input/sampled_sizes.h"

int sampled_count(const struct images *images)
{
    return images->count < SAMPLED_SIZES ? (int)images->count : SAMPLED_SIZES;
}

bool sampled_size(const struct images *images, int number, struct image_size *size, bool *deep)
{
    struct reason reason;
    int64_t index = images_index(images, number * images->count / sampled_count(images));
    return dataset_image_size(images->dataset, index, size, deep, &reason);
}
