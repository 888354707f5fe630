/* The handwritten digits that come with the program: 8 x 8 pixels as comma-separated text (digits/README
 * names the source). Every fifth image is for validation. */
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/directory.h"
#include "base/memory.h"
#include "data/dataset/dataset.h"
#include "data/formats/gzip_file.h"

#define SIDE 8
#define PIXELS (SIDE * SIDE)
#define CLASSES 10
#define BRIGHTEST 16
#define VAL_EVERY 5

struct digit {
    uint8_t pixels[PIXELS];
    uint8_t label;
};

struct digits {
    struct digit *digit;
    int count;
};

/* Reads a number from 0 to `most` that ends in `end` (a last line may end in '\0'), and steps
 * over the end. */
static bool read_number(const char **text, int most, char end, uint8_t *value)
{
    char *after;
    if (**text < '0' || **text > '9') return false;
    long number = strtol(*text, &after, 10);
    if (number > most) return false;
    if (end == '\n' && *after == '\r') after++;
    if (*after != end && !(end == '\n' && *after == '\0')) return false;
    *text = *after ? after + 1 : after;
    *value = (uint8_t)number;
    return true;
}

static bool read_line(const char **text, struct digit *digit)
{
    for (int i = 0; i < PIXELS; i++) {
        uint8_t value;
        if (!read_number(text, BRIGHTEST, ',', &value)) return false;
        digit->pixels[i] = (uint8_t)((value * 255 + BRIGHTEST / 2) / BRIGHTEST);
    }
    return read_number(text, CLASSES - 1, '\n', &digit->label);
}

static bool read_lines(const char *text, const char *path, enum split split, struct digits *digits,
                       struct reason *reason)
{
    for (int line = 1; *text; line++) {
        struct digit digit;
        if (!read_line(&text, &digit))
            return because(reason, "%s:%d: not %d numbers from 0 to %d and a digit", path, line, PIXELS,
                           BRIGHTEST);
        bool val = line % VAL_EVERY == 0;
        if (val == (split == SPLIT_VAL)) *array_push(digits->digit, digits->count) = digit;
    }
    return digits->count > 0 || because(reason, "%s: contains no images", path);
}

static char *find_file(const struct dataset_options *options)
{
    if (!options->path) return text_format("%s/digits/digits.csv.gz", options->installed);
    if (directory_is(options->path))
        return text_format("%s/digits.csv.gz", options->path);
    return text_copy(options->path);
}

static bool read_digits(const char *path, enum split split, struct digits *digits, struct reason *reason)
{
    struct gzip_file file;
    char *text = NULL;
    size_t count;
    if (!gzip_file_open(NULL, path, &file, reason)) return false;
    bool good = gzip_file_text(&file, &text, &count, reason) && read_lines(text, path, split, digits, reason);
    gzip_file_close(&file);
    free(text);
    return good;
}

static enum status digits_open(const struct dataset_options *options, struct dataset *dataset)
{
    struct digits *digits = dataset->state = memory_new(1, sizeof *digits);
    struct reason reason;
    if (!options->path && !options->installed)
        return fail(BAD_DATA, "digits: no folder is given; set data.train");
    char *path = find_file(options);
    bool good = read_digits(path, options->split, digits, &reason);
    free(path);
    if (!good) return fail(BAD_DATA, "%s", reason.text);
    dataset->count = digits->count;
    dataset->h = dataset->w = SIDE;
    dataset->c = 1;
    dataset->classes = CLASSES;
    dataset->numbered = true;
    dataset->class_names = gzip_file_class_names(NULL, NULL, CLASSES);
    return OK;
}

static int digits_label(const struct dataset *dataset, int64_t index)
{
    const struct digits *digits = dataset->state;
    return dataset_number(dataset, digits->digit[index].label);
}

static bool digits_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    const struct digits *digits = dataset->state;
    if (!image_resize_buffer(image, SIDE, SIDE, 1, reason)) return false;
    memcpy(image->pixels, digits->digit[index].pixels, PIXELS);
    *label = digits_label(dataset, index);
    return true;
}

static void digits_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents)
{
    const struct digits *digits = dataset->state;
    contents->crc = crc32c(0, digits->digit[index].pixels, PIXELS);
    contents->known = true;
}

static void digits_close(struct dataset *dataset)
{
    struct digits *digits = dataset->state;
    if (!digits) return;
    free(digits->digit);
    free(digits);
}

const struct format format_digits = {
    .name = "digits",
    .one_size = true,
    .help = "1,797 handwritten digits of 8x8 pixels, which come with amptrain (a path: their folder)",
    .open = digits_open,
    .read = digits_read,
    .label = digits_label,
    .contents = digits_contents,
    .close = digits_close,
};
