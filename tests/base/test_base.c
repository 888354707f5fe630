/* Texts, JSON, names that are near, memory sizes, CRC-32C. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/crc32c.h"
#include "base/csv.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/status.h"
#include "base/text.h"
#include "base/text_form.h"
#include "tests/support/unit.h"

static void numbers_for_people(void **state)
{
    static const struct {
        double value;
        int decimals;
        const char *unit, *words;
    } cases[] = {
        {2.30258, 4, NULL, "2.3026"}, {27.5, 2, "%", "27.50 %"},      {-1, 0, NULL, "-1"},
        {NAN, 4, NULL, "not finite"}, {-NAN, 2, "%", "not finite"},   {INFINITY, 2, NULL, "not finite"},
        {1e300, 4, NULL, "1e+300"},   {-1e300, 4, "GB/s", "-1e+300 GB/s"},
    };
    char text[TEXT_NUMBER];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(text_number(cases[i].value, cases[i].decimals, cases[i].unit, text),
                            cases[i].words);
    assert_string_equal(text_energy(27.46, text), "27.5 J");
    assert_string_equal(text_energy(51120, text), "14.20 Wh");
    assert_string_equal(text_energy(3.672e6, text), "1.02 kWh");
}

static void text_grows(void **state)
{
    struct text text = {0};
    for (int i = 0; i < 1000; i++) text_add(&text, "%d,", i % 10);
    assert_int_equal(text.length, 2000);
    assert_int_equal(strlen(text.data), 2000);
    for (int i = 0; i < 1000; i++) assert_int_equal(text.data[2 * i], '0' + i % 10);
    text_free(&text);
    assert_null(text.data);
    assert_int_equal(text.length, 0);
}

/* Lengths around the sizes at which the memory grows: what ends in the wrong place shows up here
 * under a sanitizer. */
static void text_grows_at_every_length(void **state)
{
    for (size_t first = 0; first < 300; first++) {
        struct text text = {0};
        text_add(&text, "%*s", (int)first, "");
        text_add(&text, "%s", "x");
        assert_int_equal(text.length, first + 1);
        assert_int_equal(text.data[first], 'x');
        assert_int_equal(text.data[first + 1], '\0');
        text_free(&text);
    }
}

static void expect_json(const char *value, const char *json)
{
    struct text text = {0};
    text_json_string(&text, value);
    assert_string_equal(text.data, json);
    text_free(&text);
}

static void json_escapes(void **state)
{
    expect_json("", "\"\"");
    expect_json("plain/ text", "\"plain/ text\"");
    expect_json("a\"b\\c\n\t\x01\x7f", "\"a\\\"b\\\\c\\n\\t\\u0001\\u007f\"");
}

static void html_escapes(void **state)
{
    struct text text = {0};
    text_html(&text, "a<b> & \"c\"\n\x01\xff\xc3\xa9\xef\xbf\xbf");
    assert_string_equal(text.data, "a&lt;b&gt; &amp; &quot;c&quot;\n"
                        "\xef\xbf\xbd\xef\xbf\xbd\xc3\xa9\xef\xbf\xbd");
    text_free(&text);
}

/* The vectors of RFC 4648, section 10. */
static void base64(void **state)
{
    static const char *const coded[] = {"", "Zg==", "Zm8=", "Zm9v", "Zm9vYg==", "Zm9vYmE=", "Zm9vYmFy"};
    for (size_t i = 1; i < 7; i++) {
        struct text text = {0};
        text_base64(&text, (const uint8_t *)"foobar", i);
        assert_string_equal(text.data, coded[i]);
        text_free(&text);
    }
}

static void json_keeps_utf8(void **state)
{
    expect_json("\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x88", "\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x90\x88\"");
}

static void json_replaces_what_is_not_utf8(void **state)
{
    expect_json("a\xff""b", "\"a\\ufffdb\"");
    expect_json("\xc3", "\"\\ufffd\"");                            /* cut off */
    expect_json("\xc0\xaf", "\"\\ufffd\\ufffd\"");                 /* overlong */
    expect_json("\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\"");      /* surrogate */
    expect_json("\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\"");
}

/* Names from files are shown, not obeyed. */
static void terminals_are_not_steered(void **state)
{
    char out[64], small[8];
    assert_string_equal(text_visible("plain \xc3\xa9\t\xf0\x9f\x90\x88", out, sizeof out),
                        "plain \xc3\xa9\t\xf0\x9f\x90\x88");
    assert_string_equal(text_visible("\x1b[2J\r\n\x7f\b", out, sizeof out), "\\x1b[2J\\x0d\\x0a\\x7f\\x08");
    assert_string_equal(text_visible("\xc2\x9b" "31m \x9b \xff\xc3", out, sizeof out),
                        "\\x9b31m \\x9b \\xff\\xc3");
    assert_string_equal(text_visible("abc\x1b\x1b", small, sizeof small), "abc\\x1b");
    assert_string_equal(text_visible("", small, sizeof small), "");
    expect_json("\xc2\x9b", "\"\\u009b\"");
}

/* Text behind a name is not written backwards; letters of such scripts are not touched. */
static void names_do_not_reverse_what_follows(void **state)
{
    static const char *const steering[][2] = {
        {"\u061c", "\\u061c"}, {"\u200e", "\\u200e"}, {"\u200f", "\\u200f"}, {"\u2028", "\\u2028"},
        {"\u202a", "\\u202a"}, {"\u202e", "\\u202e"}, {"\u2066", "\\u2066"}, {"\u2069", "\\u2069"},
    };
    static const char *const letters[] = {"\u061b", "\u200d", "\u2010", "\u2027", "\u202f", "\u2065",
                                          "\u206a", "\u05d0\u05d1", "\u0627\u0644"};
    char out[64];
    for (size_t i = 0; i < sizeof steering / sizeof *steering; i++) {
        char json[16];
        struct text html = {0};
        assert_string_equal(text_visible(steering[i][0], out, sizeof out), steering[i][1]);
        snprintf(json, sizeof json, "\"%s\"", steering[i][1]);
        expect_json(steering[i][0], json);
        text_html(&html, steering[i][0]);
        assert_string_equal(html.data, "\xef\xbf\xbd");
        text_free(&html);
    }
    for (size_t i = 0; i < sizeof letters / sizeof *letters; i++)
        assert_string_equal(text_visible(letters[i], out, sizeof out), letters[i]);
}

static void json_marks(void **state)
{
    static const char json[] = "{\"a,[\":[1,{}],\"b\\\",\":2}";
    assert_int_equal(text_json_marks(json, strlen(json)), 5);
    assert_int_equal(text_json_marks("\"\\", 2), 0);
    assert_int_equal(text_json_marks("", 0), 0);
}

static void heard(void *context, enum log_level level, const char *line)
{
    (void)level;
    text_add(context, "[%s]", line);
}

static void csv_fields_are_harmless(void **state)
{
    static const char *const cases[][2] = {
        {"plain \xc3\xa9", "\"plain \xc3\xa9\""},       {"", "\"\""},
        {"a,\"b\"", "\"a,\"\"b\"\"\""},                 {"=cmd|' /C calc'!A0", "\"'=cmd|' /C calc'!A0\""},
        {"+1", "\"'+1\""}, {"-", "\"'-\""}, {"@x", "\"'@x\""}, {"\t=1", "\"'\t=1\""},
        {"'=1", "\"''=1\""},                            {"\u202egnp", "\"\\u202egnp\""},
        {"a=1", "\"a=1\""},                              {"\r=1", "\"\\x0d=1\""},
        {"a\nb\x1b[m", "\"a\\x0ab\\x1b[m\""},            {"\xff\xff\xff", "\"\\xff\\xff\\xff\""},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text line = {0};
        csv_text(&line, cases[i][0]);
        assert_string_equal(line.data, cases[i][1]);
        text_free(&line);
    }
}

static void log_lines_are_what_they_seem(void **state)
{
    struct text text = {0};
    log_set_sink((struct log_sink){heard, &text});
    log_detail("a '%s' b", "x\namptrain: \x1b[31mall is well\r");
    log_detail("two\nlines\n");
    log_set_sink((struct log_sink){NULL, NULL});
    assert_string_equal(text.data, "[a 'x\n  amptrain: \\x1b[31mall is well\\x0d' b][two\n  lines\n]");
    text_free(&text);
}

/* Bytes come back, whatever they are, and what is shown is UTF-8. */
static void bytes_are_escaped_and_come_back(void **state)
{
    static const char *const cases[][2] = {
        {"", ""},
        {"caf\xc3\xa9", "caf\xc3\xa9"},
        {"caf\xe9", "caf\\xe9"},
        {"caf\\xe9", "caf\\x5cxe9"},
        {"\\x5cxe9\xff", "\\x5cx5cxe9\\xff"},
        {"a\\n\\", "a\\n\\"},
        {"\xed\xa0\x80", "\\xed\\xa0\\x80"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct text text = {0};
        text_escape(&text, cases[i][0]);
        assert_string_equal(text.data, cases[i][1]);
        text_unescape(text.data);
        assert_string_equal(text.data, cases[i][0]);
        text_free(&text);
    }
    char other[] = "\\x00 \\x41 \\x \\xe \\xg0";
    text_unescape(other);
    assert_string_equal(other, "\\x00 \\x41 \\x \\xe \\xg0");
}

static void json_numbers_read_back(void **state)
{
    const float numbers[] = {0.1f, 1.0f / 3, 16777217.0f, 1e-38f, 3.4e38f, -0.0f, 65504};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        struct text text = {0};
        text_json_number(&text, numbers[i]);
        assert_true(strtof(text.data, NULL) == numbers[i]);
        text_free(&text);
    }
}

static void json_has_no_infinity(void **state)
{
    struct text text = {0};
    text_json_number(&text, INFINITY);
    text_add(&text, ",");
    text_json_number(&text, NAN);
    assert_string_equal(text.data, "null,null");
    text_free(&text);
}

static const char *near(const char *word)
{
    static const char *const names[] = {"epochs", "batch", "accumulate", "lr", "ema", "momentum"};
    return text_nearest(word, names, 6);
}

static void nearest_finds_slips(void **state)
{
    assert_string_equal(near("epoch"), "epochs");
    assert_string_equal(near("epcohs"), "epochs");
    assert_string_equal(near("Batch"), "batch");
    assert_string_equal(near("acumulate"), "accumulate");
    assert_string_equal(near("lrr"), "lr");
    assert_string_equal(near("mom"), "momentum");
    assert_string_equal(near("batch_size"), "batch");
    assert_string_equal(near("num_epochs"), "epochs");
}

static void nearest_leaves_strangers(void **state)
{
    assert_null(near("xyz"));
    assert_null(near("batches_size"));
    assert_null(near("set_lr_now"));
    assert_null(near(""));
    assert_null(near("a-very-long-word-that-is-not-near-to-any-name-and-longer-than-any-name-is"));
    assert_null(text_nearest("lr", NULL, 0));
}

/* The distance to a longer name decides, not the part that a shorter one shares. */
static void nearest_prefers_small_slips(void **state)
{
    static const char *const names[] = {"crop",        "val_crop", "cache",
                                        "cache_limit", "freeze",   "freeze_epochs"};
    assert_string_equal(text_nearest("vl_crop", names, 6), "val_crop");
    assert_string_equal(text_nearest("cache_limi", names, 6), "cache_limit");
    assert_string_equal(text_nearest("feeze_epochs", names, 6), "freeze_epochs");
    assert_string_equal(text_nearest("crop_size", names, 6), "crop");
}

static void bytes_for_people(void **state)
{
    char text[TEXT_BYTES];
    assert_string_equal(text_bytes(0, text), "0 B");
    assert_string_equal(text_bytes(1023, text), "1023 B");
    assert_string_equal(text_bytes(1024, text), "1.0 KiB");
    assert_string_equal(text_bytes(1024 * 1024 - 1, text), "1.0 MiB");
    assert_string_equal(text_bytes(10522669875, text), "9.8 GiB");
    assert_string_equal(text_bytes(UINT64_MAX, text), "16.0 EiB");
}

static void manual_text_is_no_command(void **state)
{
    struct text text = {0};
    text_manual(&text, ".a -b \\c");
    assert_string_equal(text.data, "\\&.a \\-b \\ec");
    text_free(&text);
    struct text words = {0};
    for (int i = 0; i < 50; i++) text_add(&words, "'word. ");
    text_manual(&text, words.data);
    text_free(&words);
    for (char *line = strtok(text.data, "\n"); line; line = strtok(NULL, "\n"))
        assert_true(strlen(line) < 80 && line[0] != '.' && line[0] != '\'');
    text_free(&text);
}

static void reasons_keep_the_end_of_a_path(void **state)
{
    struct reason reason;
    char path[400], why[400];
    assert_false(because_of(&reason, "a/b.png", "empty"));
    assert_string_equal(reason.text, "a/b.png: empty");
    memset(path, 'p', sizeof path);
    memset(why, 'w', sizeof why);
    path[sizeof path - 1] = why[sizeof why - 1] = '\0';
    memcpy(path + sizeof path - 6, "/name", 5);
    because_of(&reason, path, "empty");
    assert_int_equal(strlen(reason.text), REASON_SIZE - 1);
    assert_memory_equal(reason.text, "...pp", 5);
    assert_string_equal(reason.text + REASON_SIZE - 1 - 12, "/name: empty");
    because_of(&reason, path, why);
    assert_int_equal(strlen(reason.text), REASON_SIZE - 1);
    assert_non_null(strstr(reason.text, "ppp/name: www"));
    because(&reason, "late");
    because_of(&reason, "early", reason.text);
    assert_string_equal(reason.text, "early: late");
}

static void array_push_grows(void **state)
{
    int *numbers = NULL, count = 0;
    for (int i = 0; i < 1000; i++) *array_push(numbers, count) = i;
    assert_int_equal(count, 1000);
    for (int i = 0; i < 1000; i++) assert_int_equal(numbers[i], i);
    free(numbers);
}

/* The examples of RFC 3720, appendix B.4, and the check value of every catalogue of CRCs. */
static void crc32c_examples(void **state)
{
    unsigned char bytes[32];
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    memset(bytes, 0, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, 32);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++) bytes[i] = (unsigned char)i;
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794e);
    assert_int_equal(crc32c(0, bytes, 0), 0);
}

static void crc32c_by_table_is_the_same(void **state)
{
    unsigned char bytes[300];
    for (int i = 0; i < 300; i++) bytes[i] = (unsigned char)(i * 37 + i / 7);
    for (size_t start = 0; start < 9; start++)
        for (size_t length = 0; start + length <= 300; length++)
            assert_int_equal(crc32c((uint32_t)length, bytes + start, length),
                             crc32c_by_table((uint32_t)length, bytes + start, length));
}

static void crc32c_goes_on(void **state)
{
    const char *digits = "123456789";
    for (size_t cut = 0; cut <= 9; cut++)
        assert_int_equal(crc32c(crc32c(0, digits, cut), digits + cut, 9 - cut), 0xe3069283);
}

/* Forms are those of Python's unicodedata: Latin, Greek, Cyrillic, kana, Hangul; and what has but one. */
static void forms_of_names(void **state)
{
    static const char *const rows[][2] = {
        {"caf\xc3\xa9",
         "cafe\xcc\x81"},
        {"\xc3\x85ngstr\xc3\xb6m",
         "A\xcc\x8angstro\xcc\x88m"},
        {"\xe1\xba\xad\xe1\xba\xa4\xe1\xbb\x85 \xc7\x98\xc7\xba",
         "a\xcc\xa3\xcc\x82" "A\xcc\x82\xcc\x81" "e\xcc\x82\xcc\x83 u\xcc\x88\xcc\x81" "A\xcc\x8a\xcc\x81"},
        {"\xce\xae\xce\x90",
         "\xce\xb7\xcc\x81\xce\xb9\xcc\x88\xcc\x81"},
        {"\xd0\xb9\xd0\x87\xd1\x91",
         "\xd0\xb8\xcc\x86\xd0\x86\xcc\x88\xd0\xb5\xcc\x88"},
        {"\xe3\x81\x8c\xe3\x81\xb1\xe3\x83\xb4",
         "\xe3\x81\x8b\xe3\x82\x99\xe3\x81\xaf\xe3\x82\x9a\xe3\x82\xa6\xe3\x82\x99"},
        {"\xed\x95\x9c\xea\xb5\xad\xec\x96\xb4 \xea\xb0\x92",
         "\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab\xe1\x84\x80\xe1\x85\xae\xe1"
          "\x86\xa8\xe1\x84\x8b\xe1\x85\xa5 \xe1\x84\x80\xe1\x85\xa1\xe1\x86\xb9"},
        {"\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80",
         "\xe6\x97\xa5\xe6\x9c\xac\xf0\x9f\x98\x80"},
        {"a\xc3\x9f\xc5\x82",
         "a\xc3\x9f\xc5\x82"},
        {"\xc3", "\xc3"}, {"\xe3\x81", "\xe3\x81"}, {"\xff\xed\x9e", "\xff\xed\x9e"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        char *apart = text_decomposed(rows[i][0], false), *again = text_decomposed(apart, false);
        assert_string_equal(apart, rows[i][1]);
        assert_string_equal(again, rows[i][1]);
        free(apart);
        free(again);
    }
    char *folded = text_decomposed("CAF\xc3\x89", true);
    assert_string_equal(folded, "cafe\xcc\x81");
    free(folded);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(forms_of_names),
        cmocka_unit_test(numbers_for_people),
        cmocka_unit_test(text_grows),
        cmocka_unit_test(text_grows_at_every_length),
        cmocka_unit_test(html_escapes), cmocka_unit_test(base64), cmocka_unit_test(json_escapes),
        cmocka_unit_test(json_keeps_utf8),
        cmocka_unit_test(json_replaces_what_is_not_utf8),
        cmocka_unit_test(json_marks),
        cmocka_unit_test(terminals_are_not_steered),
        cmocka_unit_test(csv_fields_are_harmless),
        cmocka_unit_test(names_do_not_reverse_what_follows),
        cmocka_unit_test(log_lines_are_what_they_seem),
        cmocka_unit_test(bytes_are_escaped_and_come_back),
        cmocka_unit_test(json_numbers_read_back),
        cmocka_unit_test(json_has_no_infinity),
        cmocka_unit_test(nearest_finds_slips),
        cmocka_unit_test(nearest_prefers_small_slips),
        cmocka_unit_test(nearest_leaves_strangers),
        cmocka_unit_test(bytes_for_people),
        cmocka_unit_test(manual_text_is_no_command),
        cmocka_unit_test(reasons_keep_the_end_of_a_path),
        cmocka_unit_test(array_push_grows),
        cmocka_unit_test(crc32c_examples),
        cmocka_unit_test(crc32c_by_table_is_the_same),
        cmocka_unit_test(crc32c_goes_on),
    };
    return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
