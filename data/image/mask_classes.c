#include "data/image/mask_classes.h"

#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/text.h"

/* A larger palette, or list of names, is something else. */
#define FILE_BYTES_MAX (1 << 20)
#define NAME_ROOM 128

static void begin(int classes, struct mask_classes *out)
{
    *out = (struct mask_classes){.classes = classes, .other = MASK_NONE, .by_number = true};
    out->numbers = memory_new(MASK_NUMBERS, sizeof *out->numbers);
    for (int i = 0; i < MASK_NUMBERS; i++) out->numbers[i] = MASK_NONE;
}

void mask_classes_numbers(int classes, char *const *names, int named, bool ignore, struct mask_classes *out)
{
    begin(classes, out);
    out->names = text_list(names, named, classes);
    for (int i = 0; i < classes; i++) out->numbers[i] = (int16_t)i;
    if (ignore) out->numbers[MASK_IGNORE] = MASK_IGNORE;
}

void mask_classes_two(char *const *names, struct mask_classes *out)
{
    static char *const usual[] = {(char *)"background", (char *)"foreground"};
    begin(2, out);
    out->names = text_list(names ? names : usual, 2, 2);
    out->numbers[0] = 0;
    out->numbers[255] = 1;
}

void mask_classes_any(struct mask_classes *out)
{
    begin(0, out);
    for (int i = 0; i < 256; i++) out->numbers[i] = (int16_t)i;
}

void mask_classes_copy(const struct mask_classes *from, struct mask_classes *to)
{
    *to = *from;
    to->names = text_list(from->names, from->classes, from->classes);
    to->numbers = memory_new(MASK_NUMBERS, sizeof *to->numbers);
    memcpy(to->numbers, from->numbers, MASK_NUMBERS * sizeof *to->numbers);
    to->colours = memory_new(from->colour_count + 1, sizeof *to->colours);
    if (from->colour_count) memcpy(to->colours, from->colours, from->colour_count * sizeof *to->colours);
}

void mask_classes_free(struct mask_classes *classes)
{
    text_list_free(classes->names, (size_t)classes->classes);
    free(classes->numbers);
    free(classes->colours);
    *classes = (struct mask_classes){0};
}

static int by_colour(const void *a, const void *b)
{
    const struct mask_colour *x = a, *y = b;
    return (x->rgb > y->rgb) - (x->rgb < y->rgb);
}

int mask_classes_colour(const struct mask_classes *classes, uint32_t rgb)
{
    const struct mask_colour wanted = {.rgb = rgb}, *found = NULL;
    if (classes->colour_count > 0)
        found = bsearch(&wanted, classes->colours, classes->colour_count, sizeof wanted, by_colour);
    return found ? found->class : classes->other;
}

static int renumbered(const struct mask_classes *classes, const int *numbers, int class)
{
    return class >= 0 && class < classes->classes && class != MASK_IGNORE ? numbers[class] : class;
}

void mask_classes_renumber(struct mask_classes *classes, const int *numbers, char *const *names, int count)
{
    for (int i = 0; i < MASK_NUMBERS; i++)
        classes->numbers[i] = (int16_t)renumbered(classes, numbers, classes->numbers[i]);
    for (size_t i = 0; i < classes->colour_count; i++)
        classes->colours[i].class = renumbered(classes, numbers, classes->colours[i].class);
    classes->other = renumbered(classes, numbers, classes->other);
    text_list_free(classes->names, (size_t)classes->classes);
    classes->names = text_list(names, count, count);
    classes->classes = count;
}

uint64_t mask_classes_hash(const struct mask_classes *classes)
{
    uint64_t hash = hash_bytes((uint64_t)(classes->other + 1), classes->numbers,
                               MASK_NUMBERS * sizeof *classes->numbers);
    for (int i = 0; i < classes->classes; i++)
        hash = hash_bytes(hash, classes->names[i], strlen(classes->names[i]) + 1);
    for (size_t i = 0; i < classes->colour_count; i++) {
        const uint32_t words[] = {classes->colours[i].rgb, (uint32_t)classes->colours[i].class};
        hash = hash_bytes(hash, words, sizeof words);
    }
    return hash;
}

/* Palette files. */

/* A file of lines, being read. */
struct lines {
    const char *path;
    char *text, *next;         /* next: NULL at the end */
    int line;                  /* of the one read last, from 1 */
};

static enum status lines_open(const char *path, struct lines *lines)
{
    struct reason reason;
    size_t count;
    *lines = (struct lines){.path = path};
    if (!directory_read(&directory_working, path, FILE_BYTES_MAX, &lines->text, &count, &reason))
        return fail(USAGE, "%s: cannot be read: %s", path, reason.text);
    if (strlen(lines->text) == count) {
        lines->next = strncmp(lines->text, "\xef\xbb\xbf", 3) == 0 ? lines->text + 3 : lines->text;
        return OK;
    }
    free(lines->text);
    return fail(USAGE, "%s: is no text: it has zero bytes", path);
}

static char *trim(char *text)
{
    text += strspn(text, " \t\r");
    size_t length = strlen(text);
    while (length > 0 && strchr(" \t\r", text[length - 1])) text[--length] = '\0';
    return text;
}

/* The next line that is not empty, without its comment; NULL at the end. */
static char *lines_next(struct lines *lines)
{
    while (lines->next) {
        char *line = lines->next, *end = strchr(line, '\n');
        lines->next = end ? end + 1 : NULL;
        lines->line++;
        if (end) *end = '\0';
        line[strcspn(line, ";")] = '\0';
        line = trim(line);
        if (*line) return line;
    }
    return NULL;
}

static enum status lines_refuse(const struct lines *lines, const char *why)
{
    return fail(USAGE, "%s:%d: %s", lines->path, lines->line, why);
}

#define REFUSE(lines, ...)                           \
    do {                                             \
        struct reason refused_;                      \
        because(&refused_, __VA_ARGS__);             \
        return lines_refuse(lines, refused_.text);   \
    } while (0)

/* Whole numbers from 0 to `most` between blanks; how many, -1: it is not made of such. */
static int read_numbers(const char *text, long most, long numbers[3])
{
    int count = 0;
    while (*text) {
        char *end;
        if (count == 3 || *text < '0' || *text > '9') return -1;
        numbers[count] = strtol(text, &end, 10);
        if (numbers[count++] > most || (*end && !strchr(" \t", *end))) return -1;
        text = end + strspn(end, " \t");
    }
    return count;
}

/* The left side of a line. */
struct value {
    enum { VALUE_NUMBER, VALUE_COLOUR, VALUE_OTHER } kind;
    uint32_t value;            /* a number, or a colour */
};

static bool read_value(const char *text, struct value *value)
{
    long n[3];
    size_t length = strlen(text);
    *value = (struct value){VALUE_OTHER, 0};
    if (strcmp(text, "other") == 0) return true;
    value->kind = VALUE_COLOUR;
    if (*text == '#') {
        value->value = (uint32_t)strtoul(text + 1, NULL, 16);
        return length == 7 && strspn(text + 1, "0123456789abcdefABCDEF") == 6;
    }
    if (read_numbers(text, 255, n) == 3) {
        value->value = (uint32_t)(n[0] << 16 | n[1] << 8 | n[2]);
        return true;
    }
    value->kind = VALUE_NUMBER;
    if (read_numbers(text, MASK_NUMBERS - 1, n) != 1) return false;
    value->value = (uint32_t)n[0];
    return true;
}

/* The number of a class by its name, which is added if it is new. */
static enum status find_class(const struct lines *lines, const char *name, struct mask_classes *out,
                              int *class)
{
    *class = MASK_IGNORE;
    if (strcmp(name, "ignore") == 0) return OK;
    for (*class = 0; *class < out->classes; ++*class)
        if (strcmp(out->names[*class], name) == 0) return OK;
    if (out->classes == MASK_CLASSES_MAX) REFUSE(lines, "more than %d classes", MASK_CLASSES_MAX);
    *array_push(out->names, out->classes) = text_copy(name);
    return OK;
}

/* A palette file, being read. */
struct palette {
    struct lines lines;
    struct mask_classes *out;
    int *number_lines;         /* [MASK_NUMBERS] 0: not there */
    int other_line;
    bool colours;
};

static int line_of(const struct palette *palette, struct value value)
{
    const struct mask_classes *out = palette->out;
    switch (value.kind) {
    case VALUE_NUMBER: return palette->number_lines[value.value];
    case VALUE_OTHER: return palette->other_line;
    case VALUE_COLOUR: break;
    }
    for (size_t i = 0; i < out->colour_count; i++)
        if (out->colours[i].rgb == value.value) return out->colours[i].line;
    return 0;
}

static void set_class(struct palette *palette, struct value value, int class)
{
    struct mask_classes *out = palette->out;
    int line = palette->lines.line;
    switch (value.kind) {
    case VALUE_NUMBER:
        out->numbers[value.value] = (int16_t)class;
        palette->number_lines[value.value] = line;
        break;
    case VALUE_COLOUR:
        *array_push(out->colours, out->colour_count) = (struct mask_colour){value.value, class, line};
        break;
    case VALUE_OTHER:
        out->other = class;
        palette->other_line = line;
        break;
    }
    if (value.kind == VALUE_NUMBER) out->by_number = true;
}

static enum status read_line(struct palette *palette, char *line)
{
    char shown[NAME_ROOM];
    struct value value;
    int class;
    char *equals = strchr(line, '=');
    if (!equals)
        REFUSE(&palette->lines, "'%s' is no line VALUE = CLASS", text_visible(line, shown, sizeof shown));
    *equals = '\0';
    char *left = trim(line), *right = trim(equals + 1);
    if (!read_value(left, &value))
        REFUSE(&palette->lines, "'%s' is no value: a number up to %d, a colour such as 128 64 128 or "
               "#804080, or other", text_visible(left, shown, sizeof shown), MASK_NUMBERS - 1);
    if (!*right) REFUSE(&palette->lines, "no class behind '%s ='", left);
    int before = line_of(palette, value);
    if (before > 0) REFUSE(&palette->lines, "'%s' is already in line %d", left, before);
    TRY(find_class(&palette->lines, right, palette->out, &class));
    set_class(palette, value, class);
    return OK;
}

static enum status read_palette(struct palette *palette)
{
    for (char *line; (line = lines_next(&palette->lines));) TRY(read_line(palette, line));
    struct mask_classes *out = palette->out;
    if (out->classes == 0) return fail(USAGE, "%s: names no class", palette->lines.path);
    for (int i = 0; i < MASK_NUMBERS; i++)
        if (out->numbers[i] == MASK_NONE) out->numbers[i] = (int16_t)out->other;
    if (out->colour_count > 0) qsort(out->colours, out->colour_count, sizeof *out->colours, by_colour);
    else out->by_number = true;
    return OK;
}

static enum status parse(struct lines lines, struct mask_classes *out)
{
    struct mask_classes read;
    struct palette palette = {.out = &read, .lines = lines};
    begin(0, &read);
    read.by_number = false;
    palette.number_lines = memory_new(MASK_NUMBERS, sizeof *palette.number_lines);
    enum status status = read_palette(&palette);
    free(palette.number_lines);
    free(lines.text);
    if (status == OK) *out = read;
    else mask_classes_free(&read);
    return status;
}

enum status mask_classes_read(const char *path, struct mask_classes *out)
{
    struct lines lines;
    TRY(lines_open(path, &lines));
    return parse(lines, out);
}

enum status mask_classes_parse(const char *text, struct mask_classes *out)
{
    char *copy = text_copy(text);
    return parse((struct lines){.path = "palette", .text = copy, .next = copy}, out);
}

/* data.classes. */

static enum status add_name(const char *where, const char *name, char ***names, int *count)
{
    char shown[NAME_ROOM];
    text_visible(name, shown, sizeof shown);
    if (!*name) return fail(USAGE, "%s: a class without a name", where);
    for (int i = 0; i < *count; i++)
        if (strcmp((*names)[i], name) == 0) return fail(USAGE, "%s: class '%s' is named twice", where, shown);
    if (*count == MASK_CLASSES_MAX) return fail(USAGE, "%s: more than %d classes", where, MASK_CLASSES_MAX);
    *array_push(*names, *count) = text_copy(name);
    return OK;
}

static enum status split_names(const char *spec, char ***names, int *count)
{
    char *copy = text_copy(spec);
    enum status status = OK;
    for (char *at = copy, *end; at && status == OK; at = end) {
        end = strchr(at, ',');
        if (end) *end++ = '\0';
        status = add_name("data.classes", trim(at), names, count);
    }
    free(copy);
    return status;
}

static enum status read_names(const char *path, char ***names, int *count)
{
    struct lines lines;
    enum status status = OK;
    TRY(lines_open(path, &lines));
    for (char *line; status == OK && (line = lines_next(&lines));)
        status = add_name(path, line, names, count);
    free(lines.text);
    if (status == OK && *count == 0) status = fail(USAGE, "%s: names no class", path);
    return status;
}

enum status mask_class_names(const char *spec, const char *path, char ***names, int *count)
{
    char **list = NULL;
    int listed = 0;
    long n[3];
    enum status status = OK;
    if (read_numbers(spec, MASK_CLASSES_MAX, n) == 1 && n[0] > 0)
        list = text_list(NULL, 0, listed = (int)n[0]);
    else if (strspn(spec, "0123456789") == strlen(spec))
        status = fail(USAGE, "data.classes: must be from 1 to %d, not '%s'", MASK_CLASSES_MAX, spec);
    else if (strchr(spec, ','))
        status = split_names(spec, &list, &listed);
    else if (strcmp(spec, "auto") != 0)
        status = read_names(path, &list, &listed);
    if (status != OK) {
        text_list_free(list, (size_t)listed);
        return status;
    }
    *names = list;
    *count = listed;
    return OK;
}
