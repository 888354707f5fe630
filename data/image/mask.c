#include "data/image/mask.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* The colour type of grey without alpha, behind the number of bits in a PNG file's header. */
#define PNG_GREY 0

/* A value of a file, as messages name it. */
static void name_value(bool colour, uint32_t value, char *name, size_t room)
{
    struct reason text;
    if (colour) because(&text, "colour %u %u %u", value >> 16, value >> 8 & 255, value & 255);
    else because(&text, "value %u", value);
    memcpy(name, text.text, room);
    name[room - 1] = '\0';
}

/* A mask being decoded. */
struct reading {
    const struct image_samples *from;
    const struct mask_classes *classes;
    struct image *mask;
    bool colour;               /* values are colours */
};

static uint32_t value_at(const struct reading *reading, size_t pixel)
{
    const struct image_samples *from = reading->from;
    const uint8_t *at = from->image.pixels + pixel * (size_t)from->image.c;
    if (!reading->colour) return from->deep ? (uint32_t)at[0] << 8 | at[1] : at[0];
    if (from->channels < 3 && !from->palette) return at[0] * UINT32_C(0x10101);
    if (from->palette) at = from->colours[at[0]];
    return (uint32_t)at[0] << 16 | (uint32_t)at[1] << 8 | at[2];
}

static int class_of(const struct reading *reading, uint32_t value)
{
    return reading->colour ? mask_classes_colour(reading->classes, value) : reading->classes->numbers[value];
}

/* The first value that has no class, in the file's order. */
static bool refuse_value(const struct reading *reading, uint32_t value, struct reason *reason)
{
    char name[40];
    size_t pixels = (size_t)reading->mask->h * (size_t)reading->mask->w, same = 0, others = 0;
    for (size_t i = 0; i < pixels; i++) {
        uint32_t there = value_at(reading, i);
        if (there == value) same++;
        else if (class_of(reading, there) < 0) others++;
    }
    name_value(reading->colour, value, name, sizeof name);
    because(reason, "%s of the mask is no class: %zu pixel%s", name, same, same == 1 ? "" : "s");
    struct reason first = *reason;
    return others == 0 ? false : because(reason, "%s; %zu more have other such values", first.text, others);
}

static bool map_values(const struct reading *reading, bool *wrong, struct reason *reason)
{
    size_t pixels = (size_t)reading->mask->h * (size_t)reading->mask->w;
    uint32_t last = 0;
    int class = MASK_NONE;
    for (size_t i = 0; i < pixels; i++) {
        uint32_t value = value_at(reading, i);
        if (i == 0 || value != last) class = class_of(reading, value);
        last = value;
        if (class < 0) {
            *wrong = true;
            return refuse_value(reading, value, reason);
        }
        reading->mask->pixels[i] = (uint8_t)class;
    }
    return true;
}

/* False, with the reason: what is stored is no mask. */
static bool check_samples(const struct image_samples *from, bool colours, struct reason *reason)
{
    bool alpha = from->channels % 2 == 0;
    size_t pixels = (size_t)from->image.h * (size_t)from->image.w, c = (size_t)from->image.c;
    size_t bytes = from->deep ? 2 : 1;
    if (from->channels >= 3 && !colours)
        return because(reason, "the mask has colours; data.palette = FILE says which class each of them is");
    if (from->channels >= 3 && from->deep)
        return because(reason, "the mask has colours of 16 bits; only those of 8 bits can be classes");
    for (size_t i = 0; alpha && i < pixels; i++)
        for (size_t k = 0; k < bytes; k++)
            if (from->image.pixels[i * c + c - 1 - k] != 255)
                return because(reason, "the mask is transparent in places, which is no class");
    return true;
}

/* Grey of 8 bits, which most masks are, without libpng. False: the mask is of another kind, or has a value
 * that has no class. */
static bool decode_grey(const uint8_t *bytes, size_t count, const struct mask_classes *classes,
                        struct image *mask)
{
    static const uint8_t grey[] = {8, PNG_GREY};
    uint8_t class[256], none = 0;
    bool known[256];
    if (count < 26 || memcmp(bytes + 24, grey, sizeof grey) != 0 || !classes->by_number) return false;
    if (!image_decode_png_plain(bytes, count, 1, mask)) return false;
    for (int i = 0; i < 256; i++) {
        known[i] = classes->numbers[i] >= 0;
        class[i] = (uint8_t)classes->numbers[i];
    }
    size_t pixels = (size_t)mask->h * (size_t)mask->w;
    for (size_t i = 0; i < pixels; i++) {
        none |= !known[mask->pixels[i]];
        mask->pixels[i] = class[mask->pixels[i]];
    }
    return !none;
}

static bool read_samples(const uint8_t *bytes, size_t count, struct image_samples *samples, bool *wrong,
                         struct reason *reason)
{
    enum image_kind kind = image_sniff(bytes, count);
    const char *foreign = kind == IMAGE_JPEG ? "JPEG" : kind == IMAGE_WEBP ? "WebP" : kind == IMAGE_TIFF
                          ? "TIFF" : image_foreign(bytes, count);
    if (kind == IMAGE_PNG) return image_png_samples(bytes, count, samples, reason);
    *wrong = foreign != NULL;
    return because(reason, foreign ? "the mask is a %s file; masks are PNG files, which keep every value"
                                   : "the mask is no PNG file", foreign);
}

bool mask_decode(const uint8_t *bytes, size_t count, const struct mask_classes *classes, struct image *mask,
                 bool *wrong, struct reason *reason)
{
    *wrong = false;
    if (image_sniff(bytes, count) == IMAGE_PNG && decode_grey(bytes, count, classes, mask)) return true;
    struct image_samples samples = {0};
    bool good = read_samples(bytes, count, &samples, wrong, reason);
    if (good) *wrong = !(good = check_samples(&samples, classes->colour_count > 0, reason));
    good = good && image_resize_buffer(mask, samples.image.h, samples.image.w, 1, reason);
    bool colour = samples.channels >= 3 || !classes->by_number;
    if (good && colour && samples.deep)
        *wrong = !(good = because(reason, "the mask has 16 bits, but the palette is one of colours"));
    const struct reading reading = {&samples, classes, mask, colour};
    good = good && map_values(&reading, wrong, reason);
    image_free(&samples.image);
    return good;
}

/* Values of masks. */

#define VALUES_MAX 4096        /* more are no classes */

static void add_value(struct mask_values *values, uint32_t value, int64_t pixels)
{
    size_t low = 0, high = values->count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (values->list[middle].value < value) low = middle + 1;
        else high = middle;
    }
    if (low == values->count || values->list[low].value != value) {
        (void)*array_push(values->list, values->count);
        memmove(values->list + low + 1, values->list + low, (values->count - 1 - low) * sizeof *values->list);
        values->list[low] = (struct mask_value){value, 0};
    }
    values->list[low].pixels += pixels;
}

bool mask_values_add(const uint8_t *bytes, size_t count, struct mask_values *values, struct reason *reason)
{
    struct image_samples samples = {0};
    bool wrong, good = read_samples(bytes, count, &samples, &wrong, reason) &&
                       check_samples(&samples, true, reason);
    bool colour = samples.channels >= 3;
    const struct reading reading = {.from = &samples, .colour = colour};
    size_t pixels = good ? (size_t)samples.image.h * (size_t)samples.image.w : 0;
    for (size_t i = 0, end; i < pixels && good; i = end) {
        uint32_t value = value_at(&reading, i);
        for (end = i + 1; end < pixels && value_at(&reading, end) == value; end++) {}
        add_value(values, value, (int64_t)(end - i));
        if (values->count > VALUES_MAX)
            good = because(reason, "the mask has more than %d different values, which are no classes",
                           VALUES_MAX);
    }
    if (good && colour) values->colours = true;
    else if (good) values->numbers = true, values->palette |= samples.palette;
    image_free(&samples.image);
    return good;
}

void mask_values_merge(const struct mask_values *from, struct mask_values *values)
{
    for (size_t i = 0; i < from->count; i++) add_value(values, from->list[i].value, from->list[i].pixels);
    values->colours |= from->colours;
    values->numbers |= from->numbers;
    values->palette |= from->palette;
}

void mask_values_free(struct mask_values *values)
{
    free(values->list);
    *values = (struct mask_values){0};
}
