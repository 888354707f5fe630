#include "input/sampled_sizes.h"

struct sample {
    int count;
    struct image_size *sizes;
};

/* Called by the decoder for the part of an image to decode: none, only the size is needed. */
static bool note_size(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct sample *sample = context;
    sample->sizes[sample->count++] = (struct image_size){h, w};
    return because(reason, "only its size was wanted");
}

int sampled_sizes(const struct images *images, struct image_size sizes[SAMPLED_SIZES], int *deep)
{
    const struct dataset *dataset = images->dataset;
    struct sample sample = {.sizes = sizes};
    const struct image_choice choice = {note_size, &sample};
    int64_t some = images->count < SAMPLED_SIZES ? images->count : SAMPLED_SIZES;
    *deep = 0;
    for (int64_t i = 0; i < some; i++) {
        struct image image = {0};
        struct reason reason;
        int label;
        int64_t index = images_index(images, i * images->count / some);
        dataset->format->read(dataset, index, &choice, &image, &label, &reason);
        *deep += image.deep;
        image_free(&image);
    }
    return sample.count;
}
