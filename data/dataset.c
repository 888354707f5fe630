#include "data/dataset.h"

#include <stdlib.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "data/detect.h"

enum status dataset_open(const struct format *format, const struct dataset_options *options,
                         struct dataset *dataset)
{
    struct dataset opened = {.format = format, .ignore_orientation = options->ignore_orientation};
    struct reason reason;
    if (options->path && !detect_check(format->name, options->path, &reason))
        return fail(BAD_DATA, "%s", reason.text);
    enum status status = format->open(options, &opened);
    if (status == OK) status = dataset_number_classes(options, &opened);
    if (status != OK) {
        dataset_close(&opened);
        return status;
    }
    *dataset = opened;
    return OK;
}

void dataset_close(struct dataset *dataset)
{
    if (dataset->held) return;
    if (dataset->format) dataset->format->close(dataset);
    text_list_free(dataset->class_names, (size_t)dataset->classes);
    free(dataset->numbers);
    *dataset = (struct dataset){0};
}

char *dataset_image_path(const struct dataset *dataset, int64_t index)
{
    return dataset->format->image_path ? dataset->format->image_path(dataset, index) : NULL;
}

struct image_options dataset_image_options(const struct dataset *dataset)
{
    return (struct image_options){dataset->c, dataset->ignore_orientation};
}

/* The file's bytes if there is one, since other versions of decoders may round differently. */
static uint32_t add_image(uint32_t checksum, const struct dataset *dataset, int64_t index)
{
    const struct format *format = dataset->format;
    struct image image = {0};
    struct reason reason;
    uint8_t *bytes = NULL;
    size_t count = 0;
    int label;
    bool file = dataset->decoded && format->read_file;
    bool good = file ? format->read_file(dataset, index, &bytes, &count, &label, &reason)
                     : format->read(dataset, index, NULL, &image, &label, &reason);
    if (good && !file) count = (size_t)image.h * (size_t)image.w * (size_t)image.c;
    if (good) checksum = crc32c(crc32c(checksum, &label, sizeof label), file ? bytes : image.pixels, count);
    free(bytes);
    image_free(&image);
    return checksum;
}

uint32_t dataset_checksum(const struct dataset *dataset)
{
    enum { SAMPLES = 16 };
    uint32_t checksum = 0;
    int64_t samples = dataset->count < SAMPLES ? dataset->count : SAMPLES;
    for (int64_t i = 0; i < samples; i++)
        checksum = add_image(checksum, dataset, i * dataset->count / samples);
    return checksum;
}
