#include "train/mistakes.h"

#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/members.h"
#include "data/resize.h"

#define SIDE_MAX 112         /* pixels */
#define QUALITY 80           /* libjpeg's */

/* Larger ones are shrunk; false if the image cannot be shown. */
static bool load_picture(const struct dataset *dataset, int64_t index, struct image *picture)
{
    struct reason reason;
    struct image image = {0};
    int label;
    bool good = dataset->format->read(dataset, index, NULL, &image, &label, &reason) &&
                (image.c == 1 || image.c == 3);
    int side = image.h > image.w ? image.h : image.w;
    double scale = side > SIDE_MAX ? (double)SIDE_MAX / side : 1;
    int h = (int)(image.h * scale + 0.5), w = (int)(image.w * scale + 0.5);
    if (h < 1) h = 1;
    if (w < 1) w = 1;
    const struct resizing resizing = {{0, 0, image.h, image.w}, h, w, {0, 0, h, w}};
    good = good && resize_image(&image, &resizing, picture, &reason);
    image_free(&image);
    return good;
}

static void add_picture(const struct dataset *dataset, int64_t index, struct text *out)
{
    struct reason reason;
    struct image picture = {0};
    uint8_t *bytes;
    size_t count;
    if (load_picture(dataset, index, &picture) &&
        image_encode_jpeg(&picture, QUALITY, &bytes, &count, &reason)) {
        text_add(out, ",\"width\":%d,\"height\":%d,\"picture\":\"", picture.w, picture.h);
        text_base64(out, bytes, count);
        text_add(out, "\"");
        free(bytes);
    }
    image_free(&picture);
}

static void add_mistake(const struct mistake *mistake, const struct images *images, char *const *class_names,
                        struct text *out)
{
    const struct dataset *dataset = images->dataset;
    int64_t index = images_index(images, mistake->image);
    char *path = dataset_image_path(dataset, index);
    text_add(out, "{");
    member_bytes(out, "image", path);
    member_integer(out, "index", index);
    member_bytes(out, "label", class_names[mistake->label]);
    member_bytes(out, "predicted", class_names[mistake->predicted]);
    member_number(out, "confidence", mistake->confidence);
    add_picture(dataset, index, out);
    text_add(out, "}");
    free(path);
}

enum status mistakes_write(const struct evaluation *evaluation, const struct images *images,
                           char *const *class_names, const struct directory *folder)
{
    struct text out = {0};
    text_add(&out, "[");
    for (int i = 0; i < evaluation->mistake_count; i++) {
        text_add(&out, i ? ",\n" : "");
        add_mistake(&evaluation->mistakes[i], images, class_names, &out);
    }
    text_add(&out, "]\n");
    enum status status = atomic_file_write(folder, MISTAKES_FILE, out.data, out.length);
    text_free(&out);
    return status;
}
