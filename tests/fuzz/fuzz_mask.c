/* Masks and palettes: a palette file, a zero byte, and the PNG that is read by it, and by number. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/image/mask.h"
#include "data/image/mask_palette.h"

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* A mask is written with the values that it was read with. */
static void write_again(const struct image *mask, const struct mask_classes *classes)
{
    struct mask_palette palette;
    struct image again = {0};
    struct reason reason = fuzz_reason();
    uint8_t *bytes;
    size_t count;
    bool wrong, read = false;
    mask_palette_of(classes, &palette);
    fuzz_must(mask_encode(mask, &palette, &bytes, &count, &reason));
    read = mask_decode(bytes, count, classes, &again, &wrong, &reason);
    fuzz_must(!read || (again.h == mask->h && again.w == mask->w));
    image_free(&again);
    free(bytes);
}

static void look_at_values(const uint8_t *data, size_t size)
{
    struct mask_values values = {0};
    struct reason reason = fuzz_reason();
    if (mask_values_add(data, size, &values, &reason)) fuzz_must(values.numbers != values.colours);
    else fuzz_check_reason(&reason);
    for (size_t i = 1; i < values.count; i++) fuzz_must(values.list[i - 1].value < values.list[i].value);
    mask_values_free(&values);
}

static void decode(const uint8_t *data, size_t size, const struct mask_classes *classes)
{
    struct image mask = {0};
    struct reason reason = fuzz_reason();
    bool wrong, any = classes->classes == 0;
    if (mask_decode(data, size, classes, &mask, &wrong, &reason)) {
        fuzz_must(!wrong && mask.c == 1 && mask.h > 0 && mask.w > 0);
        for (int i = 0; !any && i < mask.h * mask.w; i++)
            fuzz_must(mask.pixels[i] < classes->classes || mask.pixels[i] == MASK_IGNORE);
        if (!any) write_again(&mask, classes);
    } else {
        fuzz_check_reason(&reason);
    }
    image_free(&mask);
}

static void check_classes(const struct mask_classes *classes)
{
    fuzz_must(classes->classes > 0 && classes->classes <= MASK_CLASSES_MAX);
    for (int i = 0; i < classes->classes; i++) fuzz_must(*classes->names[i]);
    for (int i = 0; i < MASK_NUMBERS; i++)
        fuzz_must(classes->numbers[i] < classes->classes || classes->numbers[i] == MASK_IGNORE);
    for (size_t i = 1; i < classes->colour_count; i++)
        fuzz_must(classes->colours[i - 1].rgb < classes->colours[i].rgb);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const uint8_t *zero = size > 0 ? memchr(data, 0, size) : NULL;
    size_t length = zero ? (size_t)(zero - data) : size, rest = zero ? size - length - 1 : 0;
    const uint8_t *png = data + (size - rest);
    struct mask_classes classes;
    if (fuzz_good(mask_classes_read(fuzz_write("palette.txt", data, length), &classes), "palette.txt")) {
        check_classes(&classes);
        decode(png, rest, &classes);
        mask_classes_free(&classes);
    }
    look_at_values(png, rest);
    mask_classes_any(&classes);
    decode(png, rest, &classes);
    mask_classes_free(&classes);
    char **names;
    int count;
    const char *path = fuzz_write("names.txt", data, length);
    if (fuzz_good(mask_class_names(path, path, &names, &count), "names.txt"))
        text_list_free(names, (size_t)count);
    return 0;
}
