/* ops.c: the list of ops, and settings from "key=value" text. */
#include "op.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define OP(name) extern const struct op name##_op;
#include "ops.def"
#undef OP

#define OP(name) &name##_op,
const struct op *const op_table[] = {
#include "ops.def"
    NULL,
};
#undef OP

const char *const phase_words[] = {
    [PHASE_FORWARD] = "forward", [PHASE_BACKWARD] = "backward",
    [PHASE_BACKWARD_DATA] = "backward_data", [PHASE_BACKWARD_PARAMS] = "backward_params",
    [PHASE_UPDATE] = "update", [PHASE_RECOMPUTE] = "recompute", NULL,
};

#define OPERAND(name, word, ...) [OPERAND_##name] = word,
const char *const operand_words[] = {
#include "kernels/operands.def"
    NULL,
};
#undef OPERAND

#define OPERAND(name, word, kind, of, forward, recompute, backward)                                      \
    [OPERAND_##name] = {OPERAND_KIND_##kind, OPERAND_##of, CALL_##forward, CALL_##recompute, \
                        CALL_##backward},
const struct operand_row operand_rows[] = {
#include "kernels/operands.def"
};
#undef OPERAND

#define ACTIVATION(name, op, ...) [ACTIVATION_##name] = #op,
const char *const activation_words[] = {
    [ACTIVATION_NONE] = "none",
#include "kernels/activations.def"
    NULL,
};
#undef ACTIVATION

const char *const epilogue_words[] = {
    [EPILOGUE_X_RELU6] = "x_relu6", [EPILOGUE_ADD] = "add", [EPILOGUE_MULTIPLY] = "multiply",
#define ACTIVATION(name, op, ...) [EPILOGUE_##name] = #op,
#include "kernels/activations.def"
#undef ACTIVATION
    [EPILOGUE_D_RELU6] = "d_relu6",
    [EPILOGUE_SUMS] = "sums", [EPILOGUE_MOMENTS] = "moments",
    [EPILOGUE_GRAM] = "gram", [EPILOGUE_PRODUCTS] = "products", [EPILOGUE_PICK] = "pick",
    [EPILOGUE_MASK] = "mask", [EPILOGUE_POOL] = "pool", NULL,
};

#define FIELDS_MAX 64
static const struct field no_fields[] = {{0}};

static const struct field *op_fields(const struct op *op)
{
    return op->fields ? op->fields : no_fields;
}

const struct op *op_find(const char *name)
{
    for (const struct op *const *op = op_table; *op; op++)
        if (strcmp((*op)->name, name) == 0) return *op;
    return NULL;
}

static bool unknown_setting(const struct op *op, const char *key, struct reason *reason)
{
    const char *names[FIELDS_MAX];
    int count = 0;
    for (const struct field *field = op_fields(op); field->name; field++) names[count++] = field->name;
    if (count == 0) return because(reason, "%s has no settings, so no '%s'", op->name, key);
    const char *near = text_nearest(key, names, count);
    if (!near) return because(reason, "%s has no setting '%s'", op->name, key);
    return because(reason, "%s has no setting '%s'; did you mean '%s'?", op->name, key, near);
}

/* `word` is "key=value" and is cut in two. */
static bool parse_word(const struct op *op, void *settings, char *word, bool *given, struct reason *reason)
{
    char *value = strchr(word, '=');
    if (!value) return because(reason, "'%s' is not of the form key=value", word);
    *value++ = '\0';
    const struct field *field = field_find(op_fields(op), word);
    if (!field) return unknown_setting(op, word, reason);
    bool *seen = &given[field - op->fields];
    if (*seen) return because(reason, "%s is given twice", word);
    *seen = true;
    struct reason why;
    return field_parse(field, settings, value, &why) || because(reason, "%s %s", word, why.text);
}

static bool parse_words(const struct op *op, void *settings, char *text, struct reason *reason)
{
    bool given[FIELDS_MAX] = {false};
    char *rest = NULL;
    for (char *word = strtok_r(text, " \t", &rest); word; word = strtok_r(NULL, " \t", &rest))
        if (!parse_word(op, settings, word, given, reason)) return false;
    for (const struct field *field = op_fields(op); field->name; field++)
        if (!field->initial && !given[field - op->fields])
            return because(reason, "%s needs %s=", op->name, field->name);
    return true;
}

void *op_settings_new(const struct op *op, const char *text, struct reason *reason)
{
    void *settings = memory_new(1, op->settings_size ? op->settings_size : 1);
    field_defaults(op_fields(op), settings);
    char *words = text_copy(text);
    bool good = parse_words(op, settings, words, reason);
    free(words);
    if (good) return settings;
    op_settings_free(op, settings);
    return NULL;
}

void op_settings_print(const struct op *op, const void *settings, struct text *out)
{
    if (!op->fields) return;
    void *initial = memory_new(1, op->settings_size);
    field_defaults(op->fields, initial);
    for (const struct field *field = op->fields; field->name; field++) {
        struct text is = {0}, usual = {0};
        field_print(field, settings, &is);
        field_print(field, initial, &usual);
        bool told = !field->initial || strcmp(is.data ? is.data : "", usual.data ? usual.data : "") != 0;
        if (told && is.data) text_add(out, " %s=%s", field->name, is.data);
        text_free(&is);
        text_free(&usual);
    }
    field_release(op->fields, initial);
    free(initial);
}

void *op_settings_copy(const struct op *op, const void *settings)
{
    if (!settings) return NULL;
    void *copy = memory_new(1, op->settings_size ? op->settings_size : 1);
    memcpy(copy, settings, op->settings_size);
    return copy;
}

void op_settings_free(const struct op *op, void *settings)
{
    if (!settings) return;
    field_release(op_fields(op), settings);
    free(settings);
}
