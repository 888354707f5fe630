/* mask_classes_text.c: the meanings of masks as text, which weights files have: words such as 0-0=0 (numbers
 * from, to, their class), #804080=0:1 (a colour, its class, the line that names it), other=255; first comes
 * numbers, or colours: grey values and indices are none then. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "data/image/mask_classes.h"

void mask_classes_print(const struct mask_classes *classes, struct text *out)
{
    text_add(out, classes->by_number ? "numbers" : "colours");
    for (int i = 0, end; i < MASK_NUMBERS; i = end) {
        for (end = i; end < MASK_NUMBERS && classes->numbers[end] == classes->numbers[i]; end++) {}
        if (classes->numbers[i] != MASK_NONE) text_add(out, " %d-%d=%d", i, end - 1, classes->numbers[i]);
    }
    for (size_t i = 0; i < classes->colour_count; i++)
        text_add(out, " #%06" PRIx32 "=%d:%d", classes->colours[i].rgb, classes->colours[i].class,
                 classes->colours[i].line);
    if (classes->other != MASK_NONE) text_add(out, " other=%d", classes->other);
}

static bool read_word(const char *word, struct mask_classes *out)
{
    int first, last, class, line, end = 0;
    unsigned rgb;
    if (strcmp(word, "numbers") == 0 || strcmp(word, "colours") == 0) {
        out->by_number = *word == 'n';
        return true;
    }
    if (sscanf(word, "other=%d%n", &class, &end) == 1) out->other = class;
    else if (sscanf(word, "#%6x=%d:%d%n", &rgb, &class, &line, &end) == 3)
        *array_push(out->colours, out->colour_count) = (struct mask_colour){rgb, class, line};
    else if (sscanf(word, "%d-%d=%d%n", &first, &last, &class, &end) == 3) {
        if (first < 0 || last >= MASK_NUMBERS) return false;
        for (int i = first; i <= last; i++) out->numbers[i] = (int16_t)class;
    }
    return end > 0 && word[end] == '\0' && class >= 0 && (class < out->classes || class == MASK_IGNORE);
}

bool mask_classes_scan(const char *text, char *const *names, int count, struct mask_classes *out)
{
    char *copy = text_copy(text), *rest = NULL;
    bool good = count <= MASK_CLASSES_MAX;
    mask_classes_numbers(0, NULL, 0, false, out);
    text_list_free(out->names, 0);
    out->classes = count;
    out->names = text_list(names, count, count);
    for (char *word = strtok_r(copy, " ", &rest); word && good; word = strtok_r(NULL, " ", &rest))
        good = read_word(word, out);
    free(copy);
    if (!good) mask_classes_free(out);
    return good;
}
