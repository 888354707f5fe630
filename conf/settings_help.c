#include <math.h>
#include <string.h>

#include "conf/settings.h"

/* What may stand behind '=', as the help shows it. */
static void option_kind(const struct field *field, struct text *out)
{
    if (field->word) text_add(out, "%s|", field->word);
    switch (field->type) {
    case FIELD_TEXT: text_add(out, "TEXT"); break;
    case FIELD_INT: text_add(out, "N"); break;
    case FIELD_REAL: text_add(out, "NUMBER"); break;
    case FIELD_BOOL: text_add(out, "yes|no"); break;
    case FIELD_SIZE: text_add(out, "SIZE"); break;
    case FIELD_DURATION: text_add(out, "DURATION"); break;
    case FIELD_REALS: text_add(out, "NUMBER,..."); break;
    case FIELD_EVERY: text_add(out, "N|N steps|DURATION"); break;
    case FIELD_CHOICE:
        for (int i = 0; field->choices[i]; i++)
            text_add(out, "%s%s", i ? "|" : "", field->choices[i]);
        break;
    }
}

static void range_end(const struct field *field, double value, struct text *out)
{
    struct field plain = {.type = field->type == FIELD_SIZE ? FIELD_SIZE : FIELD_REAL};
    int64_t bytes = (int64_t)value;
    field_print(&plain, field->type == FIELD_SIZE ? (void *)&bytes : (void *)&value, out);
}

static void option_range(const struct field *field, struct text *out)
{
    if (field->min == 0 && field->max == 0) return;
    text_add(out, isinf(field->max) ? "at least " : "from ");
    range_end(field, field->min, out);
    if (isinf(field->max)) return;
    text_add(out, " to ");
    range_end(field, field->max, out);
}

/* What of an option is not in this version. */
static void option_missing(const struct option *option, struct text *out)
{
    if (!option->later) return;
    if (option->works[0]) text_add(out, " In this version: %s.", option->works);
    else text_add(out, " Not in this version.");
}

void settings_help(struct text *out)
{
    const char *section = "";
    for (const struct option *option = option_table; option->section; option++) {
        if (strcmp(section, option->section) != 0)
            text_add(out, "%s[%s]\n", *section ? "\n" : "", option->section);
        section = option->section;
        text_add(out, "  %s=", option->field.name);
        option_kind(&option->field, out);
        if (option->field.initial[0]) text_add(out, "  (%s)", option->field.initial);
        text_add(out, "\n        %s", option->field.help);
        option_missing(option, out);
        text_add(out, "\n");
    }
}

/* Text in which troff sees no commands, in which '-' stays the character that is typed, and whose
 * lines are short, as mandoc likes its input. */
static void man_text(const char *text, struct text *out)
{
    int column = 0;
    for (; *text; text++, column++) {
        if (*text == ' ' && column > 60) {
            text_add(out, "\n");
            column = -1;
            continue;
        }
        if (column == 0 && (*text == '.' || *text == '\'')) text_add(out, "\\&");
        if (*text == '-') text_add(out, "\\-");
        else if (*text == '\\') text_add(out, "\\e");
        else text_add(out, "%c", *text);
    }
}

static void man_option(const struct option *option, struct text *out)
{
    const struct field *field = &option->field;
    struct text plain = {0};
    text_add(out, ".TP\n.BI \"%s = \" \"", field->name);
    option_kind(field, &plain);
    man_text(plain.data, out);
    text_add(out, "\"\n");
    man_text(field->help, out);
    text_add(out, "\n");
    text_free(&plain);
    if (field->initial[0]) text_add(&plain, "Default: %s", field->initial);
    else text_add(&plain, "Default: empty");
    if (field->min != 0 || field->max != 0) text_add(&plain, "; ");
    option_range(field, &plain);
    text_add(&plain, ".");
    option_missing(option, &plain);
    if (option->resumable) text_add(&plain, " May change when a run is resumed.");
    man_text(plain.data, out);
    text_add(out, "\n");
    text_free(&plain);
}

void settings_manual(struct text *out)
{
    const struct option *option = option_table;
    for (const struct option_section *section = option_sections; section->name; section++) {
        text_add(out, ".SS [%s]\n", section->name);
        man_text(section->help, out);
        text_add(out, "\n");
        for (; option->section && strcmp(option->section, section->name) == 0; option++)
            man_option(option, out);
    }
}
