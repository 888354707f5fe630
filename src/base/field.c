#include "field.h"

#include <assert.h>
#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "memory.h"
#include "search_paths.h"

struct unit {
    const char *name;
    double factor;
};
static const struct unit size_units[] = {
    {"T", 1099511627776.0}, {"G", 1073741824}, {"M", 1048576}, {"K", 1024}, {"", 1}, {NULL, 0},
};
static const struct unit duration_units[] = {
    {"d", 86400}, {"h", 3600}, {"m", 60}, {"s", 1}, {"", 1}, {NULL, 0},
};

static void *field_member(const struct field *field, void *object)
{
    return (char *)object + field->offset;
}

static const void *field_const_member(const struct field *field, const void *object)
{
    return (const char *)object + field->offset;
}

static const char *skip_space(const char *text)
{
    while (isspace((unsigned char)*text)) text++;
    return text;
}

/* Stores what a number's word stands for: field->word may list several, separated by '|'. */
static bool parse_word(const struct field *field, const char *text, double *value)
{
    size_t length = strlen(text);
    double stored = field->word_value;
    for (const char *word = field->word; word && length; stored--) {
        size_t word_length = strcspn(word, "|");
        if (word_length == length && strncmp(word, text, length) == 0) {
            *value = stored;
            return true;
        }
        word = word[word_length] ? word + word_length + 1 : NULL;
    }
    return false;
}

static bool print_word(const struct field *field, double value, struct text *out)
{
    double stored = field->word_value;
    for (const char *word = field->word; word; stored--) {
        size_t length = strcspn(word, "|");
        if (value == stored) {
            text_add(out, "%.*s", (int)length, word);
            return true;
        }
        word = word[length] ? word + length + 1 : NULL;
    }
    return false;
}

/* The fewest digits that read back as the same number. */
static void print_real(double value, struct text *out)
{
    char digits[40];
    if (value == floor(value) && fabs(value) < 1e15) {
        text_add(out, "%.0f", value);
        return;
    }
    for (int precision = 6; precision <= 17; precision++) {
        snprintf(digits, sizeof digits, "%.*g", precision, value);
        if (strtod(digits, NULL) == value) break;
    }
    text_add(out, "%s", digits);
}

static bool field_out_of_range(const struct field *field, const char *text, struct reason *reason)
{
    struct text range = {0};
    text_add(&range, isinf(field->max) ? "at least " : isinf(field->min) ? "at most " : "between ");
    if (!isinf(field->min)) print_real(field->min, &range);
    if (!isinf(field->min) && !isinf(field->max)) text_add(&range, " and ");
    if (!isinf(field->max)) print_real(field->max, &range);
    because(reason, "must be %s, not %.100s", range.data, text);
    text_free(&range);
    return false;
}

static bool field_in_range(const struct field *field, double value, const char *text, struct reason *reason)
{
    bool any = field->min == 0 && field->max == 0;
    if (any || (value >= field->min && value <= field->max)) return true;
    return field_out_of_range(field, text, reason);
}

static bool field_not_a(const char *kind, const struct field *field, const char *text, struct reason *reason)
{
    if (field->word) return because(reason, "must be %s or %s, not '%.100s'", kind, field->word, text);
    return because(reason, "must be %s, not '%.100s'", kind, text);
}

/* A finite decimal number at the start of *text, which moves behind it. Hexadecimal numbers, "inf"
 * and "nan", which strtod knows, are none. */
static bool read_number(const char **text, double *value)
{
    size_t length = strspn(*text, "0123456789+-.eE");
    char digits[64], *end;
    if (length == 0 || length >= sizeof digits) return false;
    memcpy(digits, *text, length);
    digits[length] = '\0';
    double number = strtod(digits, &end);
    if (end == digits || !isfinite(number)) return false;
    *text += end - digits;
    *value = number;
    return true;
}

static bool parse_text(const struct field *field, void *object, const char *text)
{
    char **target = field_member(field, object);
    char *copy = *text ? text_copy(text) : NULL;
    free(*target);
    *target = copy;
    return true;
}

static bool parse_int(const struct field *field, void *object, const char *text, struct reason *reason)
{
    double word;
    char *end;
    if (parse_word(field, text, &word)) {
        *(int64_t *)field_member(field, object) = (int64_t)word;
        return true;
    }
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (end == text || *end || isspace((unsigned char)*text)) {
        return field_not_a("a whole number", field, text, reason);
    }
    if (errno == ERANGE) return because(reason, "%.100s is too large", text);
    if (!field_in_range(field, (double)value, text, reason)) return false;
    *(int64_t *)field_member(field, object) = value;
    return true;
}

/* The digits of a number up to 99999999 at the start of *text, which moves behind them. */
static bool read_side(const char **text, int *side)
{
    size_t length = strspn(*text, "0123456789");
    if (length == 0 || length > 8) return false;
    *side = (int)strtol(*text, NULL, 10);
    *text += length;
    return true;
}

static bool parse_image_size(const struct field *field, void *object, const char *text, struct reason *reason)
{
    struct image_size size;
    double word;
    const char *rest = text;
    if (parse_word(field, text, &word)) {
        size.h = size.w = (int)word;
    } else {
        bool good = read_side(&rest, &size.h);
        size.w = size.h;
        if (good && *rest == 'x') {
            rest++;
            good = read_side(&rest, &size.w);
        }
        if (!good || *rest || (size.h == 0) != (size.w == 0))
            return field_not_a("a side (224) or a height and a width (128x384)", field, text, reason);
        if (!field_in_range(field, size.h, text, reason) || !field_in_range(field, size.w, text, reason))
            return false;
    }
    *(struct image_size *)field_member(field, object) = size;
    return true;
}

static bool parse_real(const struct field *field, void *object, const char *text, struct reason *reason)
{
    double value;
    if (!parse_word(field, text, &value)) {
        const char *rest = text;
        if (!read_number(&rest, &value) || *rest) return field_not_a("a number", field, text, reason);
        if (!field_in_range(field, value, text, reason)) return false;
    }
    *(double *)field_member(field, object) = value;
    return true;
}

static bool parse_bool(const struct field *field, void *object, const char *text, struct reason *reason)
{
    static const char *const words[] = {"no", "yes", "false", "true", "off", "on", "0", "1"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasecmp(text, words[i]) == 0) {
            *(bool *)field_member(field, object) = i % 2;
            return true;
        }
    return because(reason, "must be yes or no, not '%.100s'", text);
}

/* A number with an optional unit, converted to the base unit. */
static bool read_with_unit(const struct unit *units, const char *text, double *value)
{
    double number;
    if (!read_number(&text, &number)) return false;
    for (text = skip_space(text); units->name; units++)
        if (strcasecmp(text, units->name) == 0) {
            *value = number * units->factor;
            return isfinite(*value);
        }
    return false;
}

static bool parse_size(const struct field *field, void *object, const char *text, struct reason *reason)
{
    double value;
    if (!parse_word(field, text, &value)) {
        if (!read_with_unit(size_units, text, &value))
            return field_not_a("a size such as 512M or 8G", field, text, reason);
        /* Few fractions of a unit are whole bytes. */
        if (isalpha((unsigned char)text[strlen(text) - 1])) value = floor(value);
        if (value != floor(value) || value < 0)
            return because(reason, "must be a whole number of bytes, not %.100s", text);
        /* Doubles count bytes exactly up to 8 PiB. */
        if (value > 9007199254740992.0) return because(reason, "%.100s is too large", text);
        if (!field_in_range(field, value, text, reason)) return false;
    }
    *(int64_t *)field_member(field, object) = (int64_t)value;
    return true;
}

static bool parse_duration(const struct field *field, void *object, const char *text,
                           struct reason *reason)
{
    double value;
    if (!parse_word(field, text, &value)) {
        if (!read_with_unit(duration_units, text, &value))
            return field_not_a("a duration such as 90s, 30m, 12h or 2d", field, text, reason);
        if (value < 0) return because(reason, "must not be negative, but is %.100s", text);
        if (!field_in_range(field, value, text, reason)) return false;
    }
    *(double *)field_member(field, object) = value;
    return true;
}

static bool parse_choice(const struct field *field, void *object, const char *text,
                         struct reason *reason)
{
    struct text all = {0};
    int count = 0;
    for (; field->choices[count]; count++) {
        if (strcmp(text, field->choices[count]) == 0) {
            *(int *)field_member(field, object) = count;
            text_free(&all);
            return true;
        }
        text_add(&all, "%s%s", count ? ", " : "", field->choices[count]);
    }
    const char *nearest = text_nearest(text, field->choices, count);
    if (nearest) because(reason, "no such choice: '%.60s'; did you mean '%s'?", text, nearest);
    else because(reason, "must be one of %s, not '%.60s'", all.data, text);
    text_free(&all);
    return false;
}

static bool parse_reals(const struct field *field, void *object, const char *text,
                        struct reason *reason)
{
    struct field_reals reals = {0};
    const char *whole = text;
    if (field->word && strcmp(text, field->word) == 0) text = "";
    for (text = skip_space(text); *text;) {
        double value;
        if (reals.count == FIELD_REALS_MAX)
            return because(reason, "must be at most %d numbers", FIELD_REALS_MAX);
        if (!read_number(&text, &value) || (*text && *text != ',' && !isspace((unsigned char)*text)))
            return because(reason, "must be numbers separated by commas, not '%.100s'", whole);
        if (!field_in_range(field, value, whole, reason)) return false;
        reals.value[reals.count++] = value;
        text = skip_space(text);
        if (*text != ',') continue;
        text = skip_space(text + 1);
        if (!*text) return because(reason, "ends with a comma: '%.100s'", whole);
    }
    *(struct field_reals *)field_member(field, object) = reals;
    return true;
}

/* "5", "5 epochs", "100 steps", "10m". Epochs and steps are whole. */
static bool read_every(const char *text, struct field_every *every)
{
    static const struct unit counted[] = {
        {"", UNIT_EPOCHS}, {"epoch", UNIT_EPOCHS}, {"epochs", UNIT_EPOCHS},
        {"step", UNIT_STEPS}, {"steps", UNIT_STEPS},
    };
    const char *rest = text;
    if (!read_number(&rest, &every->amount) || every->amount < 0) return false;
    rest = skip_space(rest);
    for (size_t i = 0; i < sizeof counted / sizeof *counted; i++)
        if (strcmp(rest, counted[i].name) == 0) {
            every->unit = (enum field_unit)counted[i].factor;
            return every->amount == floor(every->amount) && every->amount <= 1e15;
        }
    every->unit = UNIT_SECONDS;
    return read_with_unit(duration_units, text, &every->amount);
}

static bool parse_every(const struct field *field, void *object, const char *text,
                        struct reason *reason)
{
    struct field_every every;
    if (!read_every(text, &every))
        return because(reason, "must be epochs (5), steps (100 steps) or a duration (30m), not '%.100s'",
                       text);
    if (!field_in_range(field, every.amount, text, reason)) return false;
    *(struct field_every *)field_member(field, object) = every;
    return true;
}

static bool parse_path(const struct field *field, void *object, const char *text)
{
    char *path = search_paths_expand(text);
    bool good = parse_text(field, object, path);
    free(path);
    return good;
}

bool field_parse(const struct field *field, void *object, const char *text, struct reason *reason)
{
    switch (field->type) {
    case FIELD_TEXT:
    case FIELD_LIST: return parse_text(field, object, text);
    case FIELD_PATH: return parse_path(field, object, text);
    case FIELD_INT: return parse_int(field, object, text, reason);
    case FIELD_REAL: return parse_real(field, object, text, reason);
    case FIELD_BOOL: return parse_bool(field, object, text, reason);
    case FIELD_SIZE: return parse_size(field, object, text, reason);
    case FIELD_DURATION: return parse_duration(field, object, text, reason);
    case FIELD_CHOICE: return parse_choice(field, object, text, reason);
    case FIELD_REALS: return parse_reals(field, object, text, reason);
    case FIELD_IMAGE_SIZE: return parse_image_size(field, object, text, reason);
    case FIELD_EVERY: return parse_every(field, object, text, reason);
    }
    assert(!"a field of unknown type");
    return false;
}

/* In the largest unit of which the value is a whole multiple. */
static void print_with_unit(const struct unit *units, double value, struct text *out)
{
    while (units->factor != 1 && (value == 0 || fmod(value, units->factor) != 0)) units++;
    print_real(value / units->factor, out);
    if (value != 0) text_add(out, "%s", units->name);
}

static void print_reals(const struct field_reals *reals, struct text *out)
{
    for (int i = 0; i < reals->count; i++) {
        text_add(out, "%s", i ? "," : "");
        print_real(reals->value[i], out);
    }
}

static void print_image_size(const struct field *field, const struct image_size *size, struct text *out)
{
    if (size->h != size->w) text_add(out, "%dx%d", size->h, size->w);
    else if (!print_word(field, size->h, out)) text_add(out, "%d", size->h);
}

static void print_every(const struct field_every *every, struct text *out)
{
    if (every->unit == UNIT_SECONDS) {
        print_with_unit(duration_units, every->amount, out);
        if (every->amount == 0) text_add(out, "s");
        return;
    }
    print_real(every->amount, out);
    if (every->unit == UNIT_STEPS) text_add(out, every->amount == 1 ? " step" : " steps");
}

void field_print(const struct field *field, const void *object, struct text *out)
{
    const void *value = field_const_member(field, object);
    switch (field->type) {
    case FIELD_TEXT:
    case FIELD_LIST:
    case FIELD_PATH:
        text_add(out, "%s", *(char *const *)value ? *(char *const *)value : "");
        break;
    case FIELD_INT:
        if (!print_word(field, (double)*(const int64_t *)value, out))
            text_add(out, "%" PRId64, *(const int64_t *)value);
        break;
    case FIELD_REAL:
        if (!print_word(field, *(const double *)value, out)) print_real(*(const double *)value, out);
        break;
    case FIELD_BOOL:
        text_add(out, *(const bool *)value ? "yes" : "no");
        break;
    case FIELD_SIZE:
        if (!print_word(field, (double)*(const int64_t *)value, out))
            print_with_unit(size_units, (double)*(const int64_t *)value, out);
        break;
    case FIELD_DURATION:
        if (!print_word(field, *(const double *)value, out))
            print_with_unit(duration_units, *(const double *)value, out);
        break;
    case FIELD_CHOICE:
        text_add(out, "%s", field->choices[*(const int *)value]);
        break;
    case FIELD_REALS:
        if (!field->word || ((const struct field_reals *)value)->count > 0) print_reals(value, out);
        else text_add(out, "%s", field->word);
        break;
    case FIELD_IMAGE_SIZE:
        print_image_size(field, value, out);
        break;
    case FIELD_EVERY:
        print_every(value, out);
        break;
    }
}

static size_t member_bytes(enum field_type type)
{
    switch (type) {
    case FIELD_TEXT:
    case FIELD_LIST:
    case FIELD_PATH: return sizeof(char *);
    case FIELD_INT: return sizeof(int64_t);
    case FIELD_REAL: return sizeof(double);
    case FIELD_BOOL: return sizeof(bool);
    case FIELD_SIZE: return sizeof(int64_t);
    case FIELD_DURATION: return sizeof(double);
    case FIELD_CHOICE: return sizeof(int);
    case FIELD_REALS: return sizeof(struct field_reals);
    case FIELD_IMAGE_SIZE: return sizeof(struct image_size);
    case FIELD_EVERY: return sizeof(struct field_every);
    }
    assert(!"a field of unknown type");
    return 0;
}

void field_release(const struct field *fields, void *object)
{
    for (; fields->name; fields++) {
        enum field_type type = fields->type;
        if (type != FIELD_TEXT && type != FIELD_LIST && type != FIELD_PATH) continue;
        char **text = field_member(fields, object);
        free(*text);
        *text = NULL;
    }
}

void field_defaults(const struct field *fields, void *object)
{
    field_release(fields, object);
    for (; fields->name; fields++) {
        struct reason reason;
        memset(field_member(fields, object), 0, member_bytes(fields->type));
        if (!fields->initial) continue;
        bool good = fields->initial[0] == '\0' || field_parse(fields, object, fields->initial, &reason);
        assert(good && "a default that its own row refuses");
    }
}

const struct field *field_find(const struct field *fields, const char *name)
{
    for (; fields->name; fields++)
        if (strcmp(fields->name, name) == 0) return fields;
    return NULL;
}
