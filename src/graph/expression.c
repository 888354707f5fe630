#include "expression.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define DEPTH_MAX 64                        /* nested parentheses and signs */
#define VALUE_MAX INT64_C(1000000000000)    /* limit of absolute values, so that overflows are detected */

const char *bindings_find(const struct bindings *bindings, const char *name, size_t length)
{
    for (int i = 0; i < bindings->count; i++) {
        const struct binding *binding = &bindings->entries[i];
        if (strncmp(binding->name, name, length) == 0 && !binding->name[length]) return binding->text;
    }
    return NULL;
}

void bindings_add(struct bindings *bindings, const char *name, const char *text)
{
    *array_push(bindings->entries, bindings->count) =
        (struct binding){.name = text_copy(name), .text = text_copy(text)};
}

void bindings_free(struct bindings *bindings)
{
    for (int i = 0; i < bindings->count; i++) {
        free(bindings->entries[i].name);
        free(bindings->entries[i].text);
    }
    free(bindings->entries);
    *bindings = (struct bindings){0};
}

static size_t name_length(const char *text)
{
    size_t length = 0;
    if (isdigit((unsigned char)text[0])) return 0;
    while (isalnum((unsigned char)text[length]) || text[length] == '_') length++;
    return length;
}

const char *expression_next(const char *text, size_t *length)
{
    for (text = strchr(text, '$'); text; text = strchr(text, '$')) {
        text++;
        *length = name_length(text);
        if (*length > 0) return text;
    }
    return NULL;
}

/* A recursive-descent parser: sum = product {+- product}, product = factor {*\/ factor}. */
struct parser {
    const char *whole, *at;
    const struct bindings *bindings;
    struct reason *reason;
    int depth;
};

static bool parse_sum(struct parser *parser, int64_t *value);

static bool parse_digits(const char *text, const char **end, int64_t *value)
{
    *value = 0;
    for (*end = text; isdigit((unsigned char)**end) && *value <= VALUE_MAX; ++*end)
        *value = 10 * *value + (**end - '0');
    return *end != text && *value <= VALUE_MAX;
}

static bool parse_number(struct parser *parser, int64_t *value)
{
    if (parse_digits(parser->at, &parser->at, value)) return true;
    return because(parser->reason, "'%s' is not an integer expression", parser->whole);
}

static bool expression_unbound(const char *name, size_t length, struct reason *reason)
{
    if (length == 0) return because(reason, "'$' must be followed by the name of a parameter");
    return because(reason, "there is no parameter $%.*s here", (int)length, name);
}

static bool parse_parameter(struct parser *parser, int64_t *value)
{
    const char *name = ++parser->at;
    size_t length = name_length(name);
    const char *text = bindings_find(parser->bindings, name, length), *end;
    if (!text) return expression_unbound(name, length, parser->reason);
    parser->at += length;
    bool negative = *text == '-';
    if (!parse_digits(text + negative, &end, value) || *end)
        return because(parser->reason, "$%.*s is '%s', but '%s' needs integers", (int)length, name, text,
                       parser->whole);
    if (negative) *value = -*value;
    return true;
}

static bool parse_parentheses(struct parser *parser, int64_t *value)
{
    parser->at++;
    if (!parse_sum(parser, value)) return false;
    if (*parser->at != ')') return because(parser->reason, "'%s' has no closing ')'", parser->whole);
    parser->at++;
    return true;
}

static bool parse_factor(struct parser *parser, int64_t *value)
{
    bool good;
    if (parser->depth++ == DEPTH_MAX)
        return because(parser->reason, "'%s' is nested too deeply", parser->whole);
    if (*parser->at == '$') good = parse_parameter(parser, value);
    else if (*parser->at == '(') good = parse_parentheses(parser, value);
    else if (*parser->at == '-') {
        parser->at++;
        good = parse_factor(parser, value);
        if (good) *value = -*value;
    } else good = parse_number(parser, value);
    parser->depth--;
    return good;
}

static bool expression_combine(struct parser *parser, char sign, int64_t *left, int64_t right)
{
    bool overflow = false;
    if (sign == '+') *left += right;
    if (sign == '-') *left -= right;
    if (sign == '*') overflow = __builtin_mul_overflow(*left, right, left);
    if (sign == '/') {
        if (right == 0) return because(parser->reason, "'%s' divides by zero", parser->whole);
        *left /= right;
    }
    if (!overflow && *left <= VALUE_MAX && *left >= -VALUE_MAX) return true;
    return because(parser->reason, "'%s' is too large", parser->whole);
}

static bool parse_product(struct parser *parser, int64_t *value)
{
    int64_t right;
    if (!parse_factor(parser, value)) return false;
    while (*parser->at == '*' || *parser->at == '/') {
        char sign = *parser->at++;
        if (!parse_factor(parser, &right) || !expression_combine(parser, sign, value, right)) return false;
    }
    return true;
}

static bool parse_sum(struct parser *parser, int64_t *value)
{
    int64_t right;
    if (!parse_product(parser, value)) return false;
    while (*parser->at == '+' || *parser->at == '-') {
        char sign = *parser->at++;
        if (!parse_product(parser, &right) || !expression_combine(parser, sign, value, right)) return false;
    }
    return true;
}

char *expression_text(const char *text, const struct bindings *bindings, struct reason *reason)
{
    if (!strchr(text, '$')) return text_copy(text);
    size_t length = name_length(text + 1);
    if (text[0] == '$' && !text[1 + length]) {
        const char *bound = bindings_find(bindings, text + 1, length);
        if (!bound) expression_unbound(text + 1, length, reason);
        return text_copy(bound);
    }
    struct parser parser = {.whole = text, .at = text, .bindings = bindings, .reason = reason};
    int64_t value;
    if (!parse_sum(&parser, &value)) return NULL;
    if (!*parser.at) return text_format("%" PRId64, value);
    because(reason, "'%s' is not an integer expression", text);
    return NULL;
}
