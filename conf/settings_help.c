#include <string.h>

#include "conf/settings.h"

void settings_help(struct text *out)
{
    const char *section = "";
    for (const struct option *option = option_table; option->section; option++) {
        if (strcmp(section, option->section) != 0)
            text_add(out, "%s[%s]\n", *section ? "\n" : "", option->section);
        section = option->section;
        text_add(out, "  %s=", option->field.name);
        field_kind(&option->field, out);
        if (option->field.initial[0]) text_add(out, "  (%s)", option->field.initial);
        text_add(out, "\n        %s", option->field.help);
        text_add(out, "\n");
    }
}

static void man_option(const struct option *option, struct text *out)
{
    const struct field *field = &option->field;
    struct text plain = {0};
    text_add(out, ".TP\n.BI \"%s = \" \"", field->name);
    field_kind(field, &plain);
    text_manual(out, plain.data);
    text_add(out, "\"\n");
    text_manual(out, field->help);
    text_add(out, "\n");
    text_free(&plain);
    if (field->initial[0]) text_add(&plain, "Default: %s", field->initial);
    else text_add(&plain, "Default: empty");
    if (field->min != 0 || field->max != 0) text_add(&plain, "; ");
    field_range(field, &plain);
    text_add(&plain, ".");
    if (option->resumable) text_add(&plain, " May change when a run is resumed.");
    text_manual(out, plain.data);
    text_add(out, "\n");
    text_free(&plain);
}

void settings_manual(struct text *out)
{
    const struct option *option = option_table;
    for (const struct option_section *section = option_sections; section->name; section++) {
        text_add(out, ".SS [%s]\n", section->name);
        text_manual(out, section->help);
        text_add(out, "\n");
        for (; option->section && strcmp(option->section, section->name) == 0; option++)
            man_option(option, out);
    }
}
