/* Fields: what each type accepts, refuses and prints. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/field.h"
#include "tests/support/unit.h"

struct thing {
    char *text;
    int64_t count, bytes, workers;
    double rate, scale, time;
    bool flag;
    int colour;
    struct field_reals reals;
    struct field_every every;
    struct image_size image;
};

enum { TEXT, COUNT, WORKERS, RATE, SCALE, FLAG, BYTES, TIME, COLOUR, REALS, EVERY, IMAGE, THE_END };

static const char *const colours[] = {"red", "green", "blue", NULL};
#define AT(member) .offset = offsetof(struct thing, member)
static const struct field fields[] = {
    [TEXT] = {"text", FIELD_TEXT, AT(text), .initial = "hello"},
    [COUNT] = {"count", FIELD_INT, AT(count), .initial = "3", .min = 1, .max = 10},
    [WORKERS] = {"workers", FIELD_INT, AT(workers), .initial = "auto", .min = 1, .max = 64, .word = "auto"},
    [RATE] = {"rate", FIELD_REAL, AT(rate), .initial = "0.5", .min = 0, .max = 1},
    [SCALE] = {"scale", FIELD_REAL, AT(scale), .initial = "auto", .min = 1, .max = INFINITY,
               .word = "dynamic|auto"},
    [FLAG] = {"flag", FIELD_BOOL, AT(flag), .initial = "yes"},
    [BYTES] = {"bytes", FIELD_SIZE, AT(bytes), .initial = "64M"},
    [TIME] = {"time", FIELD_DURATION, AT(time), .initial = "0"},
    [COLOUR] = {"colour", FIELD_CHOICE, AT(colour), .initial = "green", .choices = colours},
    [REALS] = {"reals", FIELD_REALS, AT(reals), .initial = ""},
    [EVERY] = {"every", FIELD_EVERY, AT(every), .initial = "1"},
    [IMAGE] = {"image", FIELD_IMAGE_SIZE, AT(image), .initial = "auto", .min = 0, .max = 512, .word = "auto",
                .word_value = -1},
    [THE_END] = {.name = NULL},
};

static int fresh(void **state)
{
    struct thing *thing = calloc(1, sizeof *thing);
    field_defaults(fields, thing);
    *state = thing;
    return 0;
}

static int release(void **state)
{
    field_release(fields, *state);
    free(*state);
    return 0;
}

/* Parses, prints, and expects `printed`; then reads the print back and expects it again. */
static void takes(struct thing *thing, int which, const char *text, const char *printed)
{
    struct reason reason = {0};
    const char *given = text;
    for (int round = 0; round < 2; round++, given = printed) {
        struct text out = {0};
        if (!field_parse(&fields[which], thing, given, &reason)) fail_msg("'%s': %s", given, reason.text);
        field_print(&fields[which], thing, &out);
        assert_string_equal(out.data ? out.data : "", printed);
        text_free(&out);
    }
}

/* Every field of it, printed: bytes between members have no value. */
static struct text whole(const struct thing *thing)
{
    struct text out = {0};
    for (const struct field *field = fields; field->name; field++) {
        text_add(&out, "%s = ", field->name);
        field_print(field, thing, &out);
        text_add(&out, "\n");
    }
    return out;
}

/* Refused, with `why` in the reason, and nothing changed. */
static void refuses(struct thing *thing, int which, const char *text, const char *why)
{
    struct reason reason = {0};
    struct text before = whole(thing);
    if (field_parse(&fields[which], thing, text, &reason)) fail_msg("'%s' was taken", text);
    if (!strstr(reason.text, why)) fail_msg("'%s': '%s' lacks '%s'", text, reason.text, why);
    struct text after = whole(thing);
    assert_string_equal(before.data, after.data);
    text_free(&before);
    text_free(&after);
}

static void defaults(void **state)
{
    struct thing *thing = *state;
    assert_string_equal(thing->text, "hello");
    assert_int_equal(thing->count, 3);
    assert_int_equal(thing->workers, 0);
    assert_true(thing->rate == 0.5);
    assert_true(thing->scale == -1);
    assert_true(thing->flag);
    assert_int_equal(thing->bytes, 64 << 20);
    assert_int_equal(thing->colour, 1);
    assert_int_equal(thing->reals.count, 0);
    assert_int_equal(thing->every.unit, UNIT_EPOCHS);
    field_defaults(fields, thing);
    assert_string_equal(thing->text, "hello");
}

static void find(void **state)
{
    assert_ptr_equal(field_find(fields, "rate"), &fields[RATE]);
    assert_null(field_find(fields, "rat"));
}

static void texts(void **state)
{
    takes(*state, TEXT, "a b", "a b");
    takes(*state, TEXT, "", "");
    assert_null(((struct thing *)*state)->text);
}

static void whole_numbers(void **state)
{
    takes(*state, COUNT, "10", "10");
    takes(*state, COUNT, "+7", "7");
    takes(*state, WORKERS, "auto", "auto");
    takes(*state, WORKERS, "64", "64");
    refuses(*state, COUNT, "0", "between 1 and 10, not 0");
    refuses(*state, COUNT, "11", "between 1 and 10");
    refuses(*state, COUNT, "1.5", "whole number");
    refuses(*state, COUNT, "1e1", "whole number");
    refuses(*state, COUNT, "", "whole number");
    refuses(*state, COUNT, " 5", "whole number");
    refuses(*state, COUNT, "5 ", "whole number");
    refuses(*state, COUNT, "0x5", "whole number");
    refuses(*state, COUNT, "99999999999999999999", "too large");
    refuses(*state, WORKERS, "aut", "whole number or auto");
    refuses(*state, WORKERS, "0", "between");
}

static void numbers(void **state)
{
    takes(*state, RATE, "1e-3", "0.001");
    takes(*state, RATE, ".1", "0.1");
    takes(*state, RATE, "0.30000000000000004", "0.30000000000000004");
    takes(*state, RATE, "1", "1");
    refuses(*state, RATE, "1.0001", "between 0 and 1");
    refuses(*state, RATE, "-1e-9", "between 0 and 1");
    refuses(*state, RATE, "nan", "a number");
    refuses(*state, RATE, "inf", "a number");
    refuses(*state, RATE, "0x1p-3", "a number");
    refuses(*state, RATE, "1e999", "a number");
    refuses(*state, RATE, "0,5", "a number");
    refuses(*state, RATE, "1..2", "a number");
    refuses(*state, RATE, "e", "a number");
}

static void words(void **state)
{
    struct thing *thing = *state;
    takes(thing, SCALE, "dynamic", "dynamic");
    assert_true(thing->scale == 0);
    takes(thing, SCALE, "auto", "auto");
    assert_true(thing->scale == -1);
    takes(thing, SCALE, "65536", "65536");
    refuses(thing, SCALE, "0", "at least 1");
    refuses(thing, SCALE, "dynamic|auto", "dynamic|auto");
    refuses(thing, SCALE, "", "a number");
    refuses(thing, SCALE, "dyn", "a number");
}

static void flags(void **state)
{
    static const char *const yes[] = {"yes", "true", "on", "1", "Yes", "TRUE"};
    static const char *const no[] = {"no", "false", "off", "0", "No"};
    for (size_t i = 0; i < sizeof yes / sizeof *yes; i++) takes(*state, FLAG, yes[i], "yes");
    for (size_t i = 0; i < sizeof no / sizeof *no; i++) takes(*state, FLAG, no[i], "no");
    refuses(*state, FLAG, "2", "yes or no");
    refuses(*state, FLAG, "", "yes or no");
}

static void sizes(void **state)
{
    struct thing *thing = *state;
    takes(thing, BYTES, "1024", "1K");
    takes(thing, BYTES, "1.5g", "1536M");
    assert_int_equal(thing->bytes, 1610612736);
    takes(thing, BYTES, "1.3M", "1363148");
    takes(thing, BYTES, "3 M", "3M");
    takes(thing, BYTES, "1000", "1000");
    takes(thing, BYTES, "0", "0");
    takes(thing, BYTES, "4T", "4T");
    refuses(thing, BYTES, "-1", "whole number of bytes");
    refuses(thing, BYTES, "0.3", "whole number of bytes");
    refuses(thing, BYTES, "1Q", "a size such as");
    refuses(thing, BYTES, "M", "a size such as");
    refuses(thing, BYTES, "99999999T", "too large");
}

static void durations(void **state)
{
    struct thing *thing = *state;
    takes(thing, TIME, "90", "90s");
    takes(thing, TIME, "90m", "90m");
    takes(thing, TIME, "1.5h", "90m");
    takes(thing, TIME, "2 d", "2d");
    assert_true(thing->time == 172800);
    takes(thing, TIME, "0.25", "0.25s");
    refuses(thing, TIME, "1y", "a duration such as");
    refuses(thing, TIME, "-1s", "negative");
}

static void choices(void **state)
{
    takes(*state, COLOUR, "blue", "blue");
    refuses(*state, COLOUR, "bleu", "did you mean 'blue'?");
    refuses(*state, COLOUR, "zzz", "one of red, green, blue");
    refuses(*state, COLOUR, "", "one of");
}

static void lists(void **state)
{
    struct thing *thing = *state;
    takes(thing, REALS, "0.485, 0.456,0.406", "0.485,0.456,0.406");
    takes(thing, REALS, "1 2  3", "1,2,3");
    assert_int_equal(thing->reals.count, 3);
    takes(thing, REALS, "", "");
    refuses(thing, REALS, "1,,2", "separated by commas");
    refuses(thing, REALS, "1,2,", "ends with a comma");
    refuses(thing, REALS, ",1", "separated by commas");
    refuses(thing, REALS, "1;2", "separated by commas");
    refuses(thing, REALS, "1 x", "separated by commas");
}

static void lists_end(void **state)
{
    struct text many = {0};
    for (int i = 0; i < FIELD_REALS_MAX; i++) text_add(&many, "%s7", i ? "," : "");
    takes(*state, REALS, many.data, many.data);
    text_add(&many, ",7");
    refuses(*state, REALS, many.data, "at most 256");
    text_free(&many);
}

static void image_sizes(void **state)
{
    struct thing *thing = *state;
    assert_int_equal(thing->image.h, -1);
    takes(thing, IMAGE, "224", "224");
    takes(thing, IMAGE, "96x288", "96x288");
    assert_int_equal(thing->image.h, 96);
    assert_int_equal(thing->image.w, 288);
    takes(thing, IMAGE, "64x64", "64");
    takes(thing, IMAGE, "0", "0");
    takes(thing, IMAGE, "auto", "auto");
    refuses(thing, IMAGE, "96x", "must be a side (224) or a height and a width (128x384) or auto, not '96x'");
    refuses(thing, IMAGE, "x96", "a side");
    refuses(thing, IMAGE, "96x0", "a side");
    refuses(thing, IMAGE, "96x-1", "a side");
    refuses(thing, IMAGE, "96x32x3", "a side");
    refuses(thing, IMAGE, "96 x 32", "a side");
    refuses(thing, IMAGE, "", "a side");
    refuses(thing, IMAGE, "999999999", "a side");
    refuses(thing, IMAGE, "96x513", "between 0 and 512, not 96x513");
}

static void every(void **state)
{
    struct thing *thing = *state;
    takes(thing, EVERY, "5", "5");
    takes(thing, EVERY, "2 epochs", "2");
    assert_int_equal(thing->every.unit, UNIT_EPOCHS);
    takes(thing, EVERY, "100 steps", "100 steps");
    assert_int_equal(thing->every.unit, UNIT_STEPS);
    takes(thing, EVERY, "1step", "1 step");
    takes(thing, EVERY, "30m", "30m");
    assert_int_equal(thing->every.unit, UNIT_SECONDS);
    assert_true(thing->every.amount == 1800);
    takes(thing, EVERY, "0", "0");
    takes(thing, EVERY, "0s", "0s");
    refuses(thing, EVERY, "1.5", "must be epochs");
    refuses(thing, EVERY, "-1", "must be epochs");
    refuses(thing, EVERY, "10 foos", "must be epochs");
    refuses(thing, EVERY, "", "must be epochs");
}

/* Bytes that came from nowhere: whatever is taken must print as something that reads back as the
 * same, and nothing must fall over. */
static void noise(void **state)
{
    static const char letters[] = "0123456789+-.eE ,;KMGTsmhdxnaifuto|\t\xff";
    struct thing *thing = *state;
    uint32_t random = 1;
    for (int round = 0; round < 100000; round++) {
        char text[24] = "";
        int length = 0;
        for (random = random * 1664525 + 1013904223; length < (int)(random >> 28); length++) {
            random = random * 1664525 + 1013904223;
            text[length] = letters[(random >> 8) % (sizeof letters - 1)];
        }
        const struct field *field = &fields[COUNT + round % (THE_END - COUNT)];
        struct reason reason;
        if (!field_parse(field, thing, text, &reason)) continue;
        struct text once = {0}, twice = {0};
        field_print(field, thing, &once);
        if (!field_parse(field, thing, once.data ? once.data : "", &reason))
            fail_msg("%s: '%s' printed as '%s': %s", field->name, text, once.data, reason.text);
        field_print(field, thing, &twice);
        assert_string_equal(once.data ? once.data : "", twice.data ? twice.data : "");
        text_free(&once);
        text_free(&twice);
    }
}

#define CASE(function) cmocka_unit_test_setup_teardown(function, fresh, release)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(defaults), CASE(find),  CASE(texts),     CASE(whole_numbers), CASE(numbers),
        CASE(words),    CASE(flags), CASE(sizes),     CASE(durations),     CASE(choices),
        CASE(lists),    CASE(every), CASE(lists_end), CASE(image_sizes),       CASE(noise),
    };
    return cmocka_run_group_tests_name("field", tests, NULL, NULL);
}
