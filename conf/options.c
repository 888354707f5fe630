#include "options.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define RANGE(least, most) .field.min = (least), .field.max = (most)
#define AT_LEAST(least) .field.min = (least), .field.max = INFINITY
#define CHOICES(...) .field.choices = (const char *const[]){__VA_ARGS__, NULL}
#define WORD(words, value) .field.word = (words), .field.word_value = (value)
#define COUNT(numbers) .count = (numbers)
#define WORDS .words = true
#define RESUMABLE .resumable = true

const struct option option_table[] = {
#define SECTION(name_, help_)
#define OPTION(section_, name_, TYPE_, default_, help_, ...)                                        \
    {.section = #section_, .field.name = #name_, .field.type = FIELD_##TYPE_,                      \
     .field.offset = offsetof(struct settings, section_.name_), .field.initial = default_,         \
     .field.help = help_, ##__VA_ARGS__},
#define END(name_)
#include "conf/options.def"
#undef SECTION
#undef OPTION
#undef END
    {.section = NULL},
};

const struct option_section option_sections[] = {
#define SECTION(name_, help_) {#name_, help_},
#define OPTION(...)
#define END(name_)
#include "conf/options.def"
#undef SECTION
#undef OPTION
#undef END
    {NULL, NULL},
};

enum { OPTION_COUNT = sizeof option_table / sizeof *option_table - 1 };
enum { SECTION_COUNT = sizeof option_sections / sizeof *option_sections - 1 };

const struct option *option_find(const char *section, const char *key)
{
    for (const struct option *option = option_table; option->section; option++)
        if (strcmp(option->section, section) == 0 && strcmp(option->field.name, key) == 0) return option;
    return NULL;
}

const struct option *option_named(const char *key, int length)
{
    for (const struct option *option = option_table; option->section; option++) {
        const char *name = option->field.name;
        if (strncmp(name, key, (size_t)length) == 0 && name[length] == '\0') return option;
    }
    return NULL;
}

bool option_is_path(const struct option *option, const char *value)
{
    bool number = value[strspn(value, "0123456789")] == '\0';
    bool word = option->words && (number || strcmp(value, "auto") == 0 || strchr(value, ','));
    return option->field.type == FIELD_PATH && *value && !word;
}

bool option_section_known(const char *section)
{
    for (const struct option_section *known = option_sections; known->name; known++)
        if (strcmp(known->name, section) == 0) return true;
    return false;
}

void option_suggest_section(const char *section, struct text *out)
{
    const char *names[SECTION_COUNT];
    for (int i = 0; i < SECTION_COUNT; i++) names[i] = option_sections[i].name;
    const char *nearest = text_nearest(section, names, SECTION_COUNT);
    if (nearest) text_add(out, "; did you mean [%s]?", nearest);
}

void option_suggest_key(const char *section, const char *key, struct text *out)
{
    const char *names[OPTION_COUNT];
    int count = 0;
    for (int i = 0; i < OPTION_COUNT; i++)
        if (strcmp(option_table[i].section, section) == 0) names[count++] = option_table[i].field.name;
    const char *nearest = text_nearest(key, names, count);
    const struct option *elsewhere = option_named(key, (int)strlen(key));
    if (nearest) text_add(out, "; did you mean '%s'?", nearest);
    else if (elsewhere) text_add(out, "; did you mean %s.%s?", elsewhere->section, key);
}

char *option_value(const struct option *option, const struct settings *settings)
{
    struct text value = {0};
    field_print(&option->field, settings, &value);
    return value.data ? value.data : text_copy("");
}

/* A path may contain anything, and is quoted in a configuration; other texts are words for people. */
static bool acceptable(const struct option *option, const char *value, struct reason *reason)
{
    if (strlen(value) >= PATH_MAX) return because(reason, "the value is longer than %d bytes", PATH_MAX - 1);
    for (const char *c = value; option->field.type != FIELD_PATH && *c; c++)
        if (iscntrl((unsigned char)*c) && *c != '\t')
            return because(reason, "the value contains a control character");
    return true;
}

static bool count_fits(const struct option *option, const struct settings *settings,
                       struct reason *reason)
{
    if (option->count == 0) return true;
    const struct field_reals *reals = (const void *)((const char *)settings + option->field.offset);
    if (reals->count == 0 || reals->count == option->count) return true;
    return because(reason, "must be %d numbers, not %d", option->count, reals->count);
}

bool option_set(const struct option *option, struct settings *settings, const char *value,
                struct reason *reason)
{
    if (!acceptable(option, value, reason)) return false;
    if (!field_parse(&option->field, settings, value, reason)) return false;
    bool text = option->field.type == FIELD_TEXT || option->field.type == FIELD_LIST || option->words;
    if (text && !*value) option_reset(option, settings);
    return count_fits(option, settings, reason);
}

void option_reset(const struct option *option, struct settings *settings)
{
    const struct field alone[] = {option->field, {.name = NULL}};
    field_defaults(alone, settings);
}
