#include "input/sampled_sizes.h"

/* Called by the decoder for the part of an image to decode: none, only the size is needed. */
static bool note_size(void *context, int h, int w, struct box *part, struct reason *reason)
{
    *(struct image_size *)context = (struct image_size){h, w};
    return because(reason, "only its size was wanted");
}

int sampled_count(const struct images *images)
{
    return images->count < SAMPLED_SIZES ? (int)images->count : SAMPLED_SIZES;
}

bool sampled_size(const struct images *images, int number, struct image_size *size, bool *deep)
{
    const struct dataset *dataset = images->dataset;
    const struct image_choice choice = {note_size, size};
    struct image image = {0};
    struct reason reason;
    int label;
    *size = (struct image_size){0};
    int64_t index = images_index(images, number * images->count / sampled_count(images));
    dataset->format->read(dataset, index, &choice, &image, &label, &reason);
    *deep = image.deep;
    image_free(&image);
    return size->h > 0;
}
