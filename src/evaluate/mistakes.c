#include "evaluate/mistakes.h"

#include <math.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/members.h"
#include "data/augment/heat_map.h"
#include "data/augment/resize.h"

#define SIDE_MAX 112         /* pixels */
#define QUALITY 80           /* libjpeg's */

/* Larger ones are shrunk. */
static bool shrink(const struct image *image, struct image *picture, struct reason *reason)
{
    int side = image->h > image->w ? image->h : image->w;
    double scale = side > SIDE_MAX ? (double)SIDE_MAX / side : 1;
    int h = (int)(image->h * scale + 0.5), w = (int)(image->w * scale + 0.5);
    if (h < 1) h = 1;
    if (w < 1) w = 1;
    const struct resizing resizing = {{0, 0, image->h, image->w}, h, w, {0, 0, h, w},
                                      RESIZE_BILINEAR};
    return resize_image(image, &resizing, picture, reason);
}

static void add_jpeg(const struct image *picture, struct text *out)
{
    struct reason unsaid;
    uint8_t *bytes;
    size_t count;
    if (!image_encode_jpeg(picture, QUALITY, &bytes, &count, &unsaid)) return;
    text_add(out, ",\"width\":%d,\"height\":%d,\"picture\":\"", picture->w, picture->h);
    text_base64(out, bytes, count);
    text_add(out, "\"");
    free(bytes);
}

static bool encode(const struct image *image, struct image *picture, uint8_t **bytes, size_t *count)
{
    struct reason unsaid;
    return shrink(image, picture, &unsaid) && image_encode_jpeg(picture, QUALITY, bytes, count, &unsaid);
}

static void add_picture(const struct mistakes *mistakes, const struct image *image, struct text *out)
{
    struct image picture = {0}, bytes = {0};
    struct reason unsaid;
    bool good = !image->deep || image_reduce(image, &mistakes->data->augment.range, &bytes, &unsaid);
    if (good && shrink(image->deep ? &bytes : image, &picture, &unsaid)) add_jpeg(&picture, out);
    image_free(&picture);
    image_free(&bytes);
}

static void add_said(const char *key, const struct data *data, const float *values, struct text *out)
{
    struct text said = {0};
    task_of(data)->say(data, values, &said);
    member_bytes(out, key, said.data);
    text_free(&said);
}

static void add_answer(const struct mistakes *mistakes, const struct mistake *mistake, struct text *out)
{
    const struct data *data = mistakes->data;
    const struct task_outputs *outputs = &mistakes->evaluation->outputs;
    int64_t at = mistake->row * outputs->outputs;
    if (!outputs->values) {
        member_bytes(out, "label", data->class_names[mistake->label]);
        member_bytes(out, "predicted", data->class_names[mistake->predicted]);
        member_number(out, "confidence", mistake->confidence);
        return;
    }
    add_said("label", data, outputs->targets + at, out);
    add_said("predicted", data, outputs->values + at, out);
    member_number(out, "loss", mistake->confidence);
}

static void add_explanation(const struct mistakes *mistakes, int number, const struct image *image,
                            struct text *out)
{
    int64_t first = (int64_t)number * mistakes->h * mistakes->w;
    const float *values = mistakes->maps ? mistakes->maps + first : NULL;
    const struct heat_map map = {values, mistakes->h, mistakes->w};
    struct image drawn = {0}, picture = {0};
    struct reason unsaid;
    uint8_t *bytes;
    size_t count;
    if (!values || isnan(values[0])) return;
    if (heat_map_draw(&mistakes->data->augment, image, &map, mistakes->images->h, mistakes->images->w, &drawn,
                      &unsaid) &&
        encode(&drawn, &picture, &bytes, &count)) {
        text_add(out, ",\"explanation\":\"");
        text_base64(out, bytes, count);
        text_add(out, "\"");
        free(bytes);
    }
    image_free(&drawn);
    image_free(&picture);
}

static void add_pictures(const struct mistakes *mistakes, int number, int64_t index, struct text *out)
{
    const struct dataset *dataset = mistakes->images->dataset;
    struct reason unsaid;
    struct image image = {0};
    int label;
    bool good = dataset->format->read(dataset, index, NULL, &image, &label, &unsaid) &&
                (image.c == 1 || image.c == 3);
    if (good) add_picture(mistakes, &image, out);
    if (good) add_explanation(mistakes, number, &image, out);
    image_free(&image);
}

static void add_strip(const struct mistakes *mistakes, int number, struct text *out)
{
    member_number(out, "loss", mistakes->evaluation->mistakes[number].confidence);
    if (!mistakes->strips) return;
    member_number(out, "miou", mistakes->strips[number].miou);
    if (mistakes->strips[number].picture.pixels) add_jpeg(&mistakes->strips[number].picture, out);
}

static void add_mistake(const struct mistakes *mistakes, int number, struct text *out)
{
    const struct mistake *mistake = &mistakes->evaluation->mistakes[number];
    int64_t index = images_index(mistakes->images, mistake->image);
    char *path = dataset_image_path(mistakes->images->dataset, index);
    text_add(out, "{");
    member_bytes(out, "image", path);
    member_integer(out, "index", index);
    if (mistakes->data->target == TARGET_MASK) {
        add_strip(mistakes, number, out);
    } else {
        add_answer(mistakes, mistake, out);
        add_pictures(mistakes, number, index, out);
    }
    text_add(out, "}");
    free(path);
}

enum status mistakes_write(const struct mistakes *mistakes, const struct directory *folder)
{
    struct text out = {0};
    text_add(&out, "[");
    for (int i = 0; i < mistakes->evaluation->mistake_count; i++) {
        text_add(&out, i ? ",\n" : "");
        add_mistake(mistakes, i, &out);
    }
    text_add(&out, "]\n");
    enum status status = atomic_file_write(folder, MISTAKES_FILE, out.data, out.length);
    text_free(&out);
    return status;
}
