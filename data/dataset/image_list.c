#include "data/dataset/image_list.h"

#include <stdlib.h>

#include "base/memory.h"

static const struct listed_image *listed(const struct dataset *dataset, int64_t index)
{
    const struct listed_image *images = dataset->state;
    return &images[index];
}

static bool list_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                      struct image *image, int *label, struct reason *reason)
{
    const struct listed_image *from = listed(dataset, index);
    const struct image_options options = dataset_image_options(dataset);
    *label = 0;
    if (from->problem) return because(reason, "%s", from->problem);
    return from->bytes ? image_decode(from->bytes, from->count, options, choice, image, reason)
                       : image_load(from->name, options, choice, image, reason);
}

static int list_label(const struct dataset *dataset, int64_t index)
{
    return 0;
}

static char *list_image_path(const struct dataset *dataset, int64_t index)
{
    return text_copy(listed(dataset, index)->name);
}

static void list_close(struct dataset *dataset)
{
    struct listed_image *images = dataset->state;
    for (int64_t i = 0; i < dataset->count; i++) free((char *)images[i].name);
    free(images);
}

/* Not in the table of formats: there is no path that it could be opened by. */
static const struct format format_list = {
    .name = "list",
    .read = list_read,
    .label = list_label,
    .image_path = list_image_path,
    .close = list_close,
};

void image_list_open(const struct listed_image *images, int64_t count, struct image_options options,
                     struct dataset *dataset)
{
    struct listed_image *copies = memory_new((size_t)count, sizeof *copies);
    for (int64_t i = 0; i < count; i++) {
        copies[i] = images[i];
        copies[i].name = text_copy(images[i].name);
    }
    *dataset = (struct dataset){
        .format = &format_list, .count = count, .c = options.channels,
        .ignore_orientation = options.ignore_orientation, .decoded = true, .state = copies,
    };
}
