#include "field.h"

#include <math.h>

void field_kind(const struct field *field, struct text *out)
{
    if (field->word) text_add(out, "%s|", field->word);
    switch (field->type) {
    case FIELD_TEXT: text_add(out, "TEXT"); break;
    case FIELD_LIST: text_add(out, "LIST"); break;
    case FIELD_PATH: text_add(out, "PATH"); break;
    case FIELD_INT: text_add(out, "N"); break;
    case FIELD_REAL: text_add(out, "NUMBER"); break;
    case FIELD_BOOL: text_add(out, "yes|no"); break;
    case FIELD_SIZE: text_add(out, "SIZE"); break;
    case FIELD_DURATION: text_add(out, "DURATION"); break;
    case FIELD_REALS: text_add(out, "NUMBER,..."); break;
    case FIELD_IMAGE_SIZE: text_add(out, "N|HxW"); break;
    case FIELD_EVERY: text_add(out, "N|N steps|DURATION"); break;
    case FIELD_CHOICE:
        for (int i = 0; field->choices[i]; i++)
            text_add(out, "%s%s", i ? "|" : "", field->choices[i]);
        break;
    }
}

static void range_end(const struct field *field, double value, struct text *out)
{
    if (field->type == FIELD_SIZE) {
        int64_t bytes = (int64_t)value;
        field_print(&(struct field){.type = FIELD_SIZE}, &bytes, out);
    } else {
        field_print(&(struct field){.type = FIELD_REAL}, &value, out);
    }
}

void field_range(const struct field *field, struct text *out)
{
    if (field->min == 0 && field->max == 0) return;
    text_add(out, isinf(field->max) ? "at least " : "from ");
    range_end(field, field->min, out);
    if (isinf(field->max)) return;
    text_add(out, " to ");
    range_end(field, field->max, out);
}
