#include "data/dataset/image_list.h"

#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"

static const struct listed_image *listed(const struct dataset *dataset, int64_t index)
{
    const struct listed_image *images = dataset->state;
    return &images[index];
}

static void copy_pixels(const struct listed_pixels *from, uint8_t *to)
{
    size_t row = (size_t)from->w * (size_t)from->c;
    bool whole = from->channel == 1 && from->pixel == from->c;
    for (int y = 0; whole && y < from->h; y++) memcpy(to + (size_t)y * row, from->first + y * from->row, row);
    for (int y = 0; !whole && y < from->h; y++)
        for (int x = 0; x < from->w; x++) {
            const uint8_t *pixel = from->first + y * from->row + x * from->pixel;
            for (int k = 0; k < from->c; k++) *to++ = pixel[k * from->channel];
        }
}

/* Converts as image_decode does. */
static bool read_pixels(const struct listed_pixels *from, int channels, struct image *image,
                        struct reason *reason)
{
    bool same = from->c == channels, alpha = !same && (from->c == 2 || from->c == 4);
    int colours = alpha ? from->c - 1 : from->c;
    size_t count = (size_t)from->h * (size_t)from->w;
    if (!same && (colours > 3 || channels > 3))
        return because(reason, "has %d channels, not %d", from->c, channels);
    if (!image_resize_buffer(image, from->h, from->w, from->c > channels ? from->c : channels, reason))
        return false;
    uint8_t *pixels = image->pixels;
    copy_pixels(from, pixels);
    if (alpha) image_over_white(pixels, pixels, count, colours);
    if (colours == 3 && channels == 1) image_grey_from_rgb(pixels, pixels, count);
    for (size_t i = colours == 1 && channels == 3 ? count : 0; i-- > 0;)
        pixels[3 * i] = pixels[3 * i + 1] = pixels[3 * i + 2] = pixels[i];
    image->c = channels;
    return true;
}

static bool list_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                      struct image *image, int *label, struct reason *reason)
{
    const struct listed_image *from = listed(dataset, index);
    const struct image_options options = dataset_image_options(dataset);
    *label = 0;
    if (from->problem) return because(reason, "%s", from->problem);
    if (from->pixels) return read_pixels(from->pixels, options.channels, image, reason);
    bool good = from->bytes ? image_decode(from->bytes, from->count, options, choice, image, reason)
                            : image_load(from->name, options, choice, image, reason);
    if (good && image->pages > 1)
        log_warning("%s: has %d pages, of which the first is used", from->name, image->pages);
    return good;
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
        .ignore_orientation = options.ignore_orientation, .bands = options.bands, .decoded = true,
        .state = copies,
    };
}
