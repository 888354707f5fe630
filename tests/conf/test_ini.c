/* INI files: what is read, what is refused and where. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/ini.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

static struct ini read_good(const char *text)
{
    struct ini ini = {0};
    assert_int_equal(ini_read_text("f.ini", text, &ini), OK);
    assert_string_equal(ini.file, "f.ini");
    return ini;
}

static void expect_entry(const struct ini *ini, int index, const char *section, const char *key,
                         const char *value, int line)
{
    assert_true(index < ini->count);
    const struct ini_entry *entry = &ini->entries[index];
    assert_string_equal(entry->section, section);
    assert_int_equal(entry->line, line);
    if (!key) {
        assert_null(entry->key);
        return;
    }
    assert_string_equal(entry->key, key);
    assert_string_equal(entry->value, value);
}

/* Refused with USAGE and these words, in so many messages; the output stays untouched. */
static void expect_refused(const char *text, const char *words, int errors)
{
    struct ini ini = {.count = 77};
    struct caught caught;
    caught_begin(&caught);
    enum status status = ini_read_text("f.ini", text, &ini);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    assert_int_equal(ini.count, 77);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, errors);
    text_free(&caught.words);
}

/* Whatever a file is full of, what is said stays short, and what is kept small. */
static void long_files_cost_little(void **state)
{
    struct text mistakes = {0}, doubles = {0}, entries = {0};
    text_add(&doubles, "[a]\n");
    text_add(&entries, "[a]\n");
    for (int i = 0; i < 1000; i++) text_add(&mistakes, "x\n");
    for (int i = 0; i < 1000; i++) text_add(&doubles, "x=\n");
    for (int i = 0; i < 200000; i++) text_add(&entries, "k%d=\n", i);
    expect_refused(mistakes.data, "f.ini: 980 more errors", 21);
    expect_refused(doubles.data, "f.ini:22: duplicate key 'x'", 20);
    expect_refused(entries.data, "f.ini:200001: the file has more than 200,000 sections and keys", 1);
    text_free(&mistakes);
    text_free(&doubles);
    text_free(&entries);
}

static void sections_keys_and_lines(void **state)
{
    struct ini ini = read_good("\n[run]\nname = a b c\n\n[block:basic]\nbn1=batchnorm conv1 eps=1e-5\n");
    assert_int_equal(ini.count, 4);
    expect_entry(&ini, 0, "run", NULL, NULL, 2);
    expect_entry(&ini, 1, "run", "name", "a b c", 3);
    expect_entry(&ini, 2, "block:basic", NULL, NULL, 5);
    expect_entry(&ini, 3, "block:basic", "bn1", "batchnorm conv1 eps=1e-5", 6);
    ini_free(&ini);
    ini_free(&ini);
}

static void empty_texts(void **state)
{
    static const char *const texts[] = {"", "\n", "   \n\t\n", "; x", "# x\n ; y\n", "\xef\xbb\xbf"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct ini ini = read_good(texts[i]);
        assert_int_equal(ini.count, 0);
        ini_free(&ini);
    }
}

static void comments(void **state)
{
    struct ini ini = read_good("; one\n# two\n  ; three\n[a] ; four\nb = c ; five ; six\nd = e;f\n"
                               "g = h # i\nj = ;k\nl =;m\n");
    expect_entry(&ini, 0, "a", NULL, NULL, 4);
    expect_entry(&ini, 1, "a", "b", "c", 5);
    expect_entry(&ini, 2, "a", "d", "e;f", 6);
    expect_entry(&ini, 3, "a", "g", "h # i", 7);
    expect_entry(&ini, 4, "a", "j", "", 8);
    expect_entry(&ini, 5, "a", "l", ";m", 9);
    ini_free(&ini);
}

static void line_ends_and_byte_order_mark(void **state)
{
    struct ini ini = read_good("\xef\xbb\xbf[a]\r\nb = c\r\n\r\nd = e");
    expect_entry(&ini, 1, "a", "b", "c", 2);
    expect_entry(&ini, 2, "a", "d", "e", 4);
    ini_free(&ini);
}

/* The first key of a section continues nothing. */
static void indented_lines_continue_a_value(void **state)
{
    struct ini ini = read_good("  [a]\n  b = 1\n  2 ; two\n\n; x\n\t3;4\n[c]\n  d: \n more\n"
                               "e = \"x\n  y\\x20\n ;\n z\" ; w\n");
    assert_int_equal(ini.count, 5);
    expect_entry(&ini, 0, "a", NULL, NULL, 1);
    expect_entry(&ini, 1, "a", "b", "1 2 3;4", 2);
    expect_entry(&ini, 2, "c", NULL, NULL, 7);
    expect_entry(&ini, 3, "c", "d", "more", 8);
    expect_entry(&ini, 4, "c", "e", "xy z", 10);
    ini_free(&ini);
    static const char *const entries[] = {"c = 2", "c=2", "c: 2", "[c]", "= 2", "c="};
    for (size_t i = 0; i < sizeof entries / sizeof *entries; i++) {
        char text[64];
        snprintf(text, sizeof text, "[a]\nb = 1\n\n %s\n d", entries[i]);
        expect_refused(text, "f.ini:4: indented lines continue the value above them; keys and sections must "
                             "not be indented", 1);
    }
    /* Lines of a key that was refused are no other key's. */
    expect_refused("[a]\nb = \"1\nc d = 2\n 3\"\n", "f.ini:2: the closing quotation mark", 2);
    expect_refused("[a]\nb = 1\nc d = 2\n 3 \\q\" = 4\n", "f.ini:3: a key must be one word", 1);
}

/* A key of any length is known again by the lines of its value, though inih cuts its name for them. */
static void values_of_long_keys(void **state)
{
    char key[101] = {0};
    memset(key, 'k', 100);
    char *text = text_format("[a]\n%s = 1\n 2\n", key);
    struct ini ini = read_good(text);
    expect_entry(&ini, 1, "a", key, "1 2", 2);
    ini_free(&ini);
    free(text);
}

/* The separators are = and :, whichever comes first. */
static void colons_separate(void **state)
{
    struct ini ini = read_good("[a]\nb: c = d\ne = f:g\nh:i\n");
    expect_entry(&ini, 1, "a", "b", "c = d", 2);
    expect_entry(&ini, 2, "a", "e", "f:g", 3);
    expect_entry(&ini, 3, "a", "h", "i", 4);
    ini_free(&ini);
}

static int lines_in(const char *text)
{
    int lines = 0;
    for (; *text; text++) lines += *text == '\n';
    return lines;
}

static void values_of_every_length(void **state)
{
    for (int length = 1; length < 3990; length += length < 420 ? 1 : 97) {
        char *value = memory_new((size_t)length + 1, 1);
        memset(value, 'v', (size_t)length);
        char *text = text_format("[a]\nkey = %s\nnext = 1\n", value);
        if (length > 191) {
            expect_refused(text, "f.ini:2: the line is longer than 197 bytes: continue its value", 1);
        } else {
            struct ini ini = read_good(text);
            assert_int_equal(ini.count, 3);
            expect_entry(&ini, 1, "a", "key", value, 2);
            expect_entry(&ini, 2, "a", "next", "1", 3);
            ini_free(&ini);
        }
        struct text written = {0};
        text_add(&written, "[a]\nkey = ");
        ini_add_value(&written, value);
        text_add(&written, "\nnext = 1\n");
        struct ini again = read_good(written.data);
        expect_entry(&again, 1, "a", "key", value, 2);
        expect_entry(&again, 2, "a", "next", "1", lines_in(written.data));
        ini_free(&again);
        text_free(&written);
        free(text);
        free(value);
    }
}

/* "[", a name of `length` letters, "]", a key of `length` letters likewise: read whole or refused. */
static void names_of_every_length(void **state)
{
    for (int length = 1; length < 300; length++) {
        char name[301];
        memset(name, 'n', 300);
        name[length] = '\0';
        char *section = text_format("[%s]\nk=1\n", name), *key = text_format("[a]\n%s=1\n", name);
        struct ini ini = {0};
        if (length > 48) {
            expect_refused(section, length > 195 ? "f.ini:1: the line is longer"
                                                 : "f.ini:1: the section's name is longer", 1);
        } else {
            ini = read_good(section);
            expect_entry(&ini, 1, name, "k", "1", 2);
            ini_free(&ini);
        }
        if (length > 100) {
            expect_refused(key, length > 195 ? "f.ini:2: the line is longer"
                                             : "f.ini:2: the key is longer", 1);
        } else {
            ini = read_good(key);
            expect_entry(&ini, 1, "a", name, "1", 2);
            ini_free(&ini);
        }
        free(section);
        free(key);
    }
}

static void long_lines_are_refused(void **state)
{
    char *value = memory_new(20101, 1);
    memset(value, 'v', 20100);
    char *text = text_format("[a]\nb = 1\nkey = %s\nc = [\n[d\ne\n", value);
    char *comment = text_format("[a]\n; %s\n  # %s\nb = 1\n", value, value);
    expect_refused(text, "f.ini:3: the line is longer", 2);
    struct ini ini = read_good(comment);
    expect_entry(&ini, 1, "a", "b", "1", 4);
    ini_free(&ini);
    struct text lines = {0};
    text_add(&lines, "[a]\nb = 1\n");
    for (int i = 0; i < 20000; i++) text_add(&lines, " x\n");
    expect_refused(lines.data, "f.ini:10002: the value is longer than 20,000 bytes", 1);
    text_free(&lines);
    free(comment);
    free(text);
    free(value);
}

static void malformed_lines_are_refused(void **state)
{
    expect_refused("[a]\njust words\n", "f.ini:2: not a [section]", 1);
    expect_refused("[a]\n= c\n", "f.ini:2: there is no key", 1);
    expect_refused("[a]\nb c = d\n", "f.ini:2: a key must be one word", 1);
    expect_refused("[a]\nb;c = d\n", "f.ini:2: a key must be one word", 1);
    expect_refused("[a]\nb ;c = d\n", "f.ini:2: not a [section]", 1);
    expect_refused("[a]\n: c\n", "f.ini:2: there is no key", 1);
    expect_refused("[a\nb = c\n", "f.ini:1: ']' is missing", 1);
    expect_refused("[a] b\n", "f.ini:1: nothing may follow", 1);
    expect_refused("[a] b = c\n", "f.ini:1: nothing may follow", 1);
    expect_refused("[a]]\n", "f.ini:1: nothing may follow", 1);
    expect_refused("[a];b\n", "f.ini:1: nothing may follow", 1);
    expect_refused("[a ]\n", "f.ini:1: blanks beside the section's name", 1);
    expect_refused("[ a]\n", "f.ini:1: blanks beside the section's name", 1);
    expect_refused("[]\n", "f.ini:1: the section has no name", 1);
    expect_refused("[a[b]\n", "f.ini:1: the name of a section cannot", 1);
    expect_refused("[a ;b]\n", "f.ini:1: the name of a section cannot", 1);
    expect_refused("b = c\n[a]\n", "f.ini:1: this key is not in", 1);
}

static void every_mistake_is_reported(void **state)
{
    expect_refused("x\n[a]\ny\nb=1\nb=2\n", "f.ini:1:", 3);
    expect_refused("x\n[a]\ny\nb=1\nb=2\n", "f.ini:3:", 3);
    expect_refused("x\n[a]\ny\nb=1\nb=2\n", "f.ini:5:", 3);
}

static void keys_stand_once(void **state)
{
    expect_refused("[a]\nb=1\nc=2\nb=3\n", "f.ini:4: duplicate key 'b' in [a]; first set in line 2", 1);
    expect_refused("[a]\nb=1\n[c]\n[a]\nb=3\n", "f.ini:5: duplicate key 'b'", 1);
    struct ini ini = read_good("[a]\nb=1\n[c]\nb=1\n[a]\nd=1\n");
    assert_int_equal(ini.count, 6);
    ini_free(&ini);
}

static void control_characters_are_refused(void **state)
{
    expect_refused("[a]\nb = \x01\n", "f.ini:2: a control character", 1);
    expect_refused("[a]\nb = c\rd\n", "f.ini:2: a control character", 1);
    expect_refused("[a]\n\x1b\n\x1b\n\x1b\n", "f.ini:2: a control character", 1);
}

/* Writes `length` bytes to a file, reads it, and removes it. */
static enum status read_bytes(const char *bytes, size_t length, struct ini *ini)
{
    char path[] = "/tmp/test_ini.XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0);
    assert_int_equal(write(descriptor, bytes, length), (ssize_t)length);
    close(descriptor);
    enum status status = ini_read(path, ini);
    unlink(path);
    return status;
}

static void files(void **state)
{
    struct ini ini;
    assert_int_equal(read_bytes("[a]\nb=c", 7, &ini), OK);
    expect_entry(&ini, 1, "a", "b", "c", 2);
    ini_free(&ini);
    assert_int_equal(read_bytes("", 0, &ini), OK);
    ini_free(&ini);
}

/* A regular file, of comments: as long as may be, and longer. */
static void large_files(void **state)
{
    enum { MOST = 16 << 20 };
    struct ini ini;
    struct caught caught;
    char *lines = malloc(MOST + 1);
    assert_non_null(lines);
    memset(lines, ';', MOST + 1);
    for (int i = 4000; i < MOST; i += 4001) lines[i] = '\n';
    assert_int_equal(read_bytes(lines, MOST, &ini), OK);
    ini_free(&ini);
    caught_begin(&caught);
    enum status status = read_bytes(lines, MOST + 1, &ini);
    caught_end(&caught);
    free(lines);
    assert_int_equal(status, USAGE);
    assert_true(caught_has(&caught, ": too large: it exceeds 16 MiB"));
    assert_int_equal(caught.errors, 1);
    text_free(&caught.words);
}

static void files_that_cannot_be_read(void **state)
{
    struct ini ini;
    struct caught caught;
    caught_begin(&caught);
    enum status missing = ini_read("/nonexistent/x.ini", &ini), folder = ini_read("/tmp", &ini);
    enum status endless = ini_read("/dev/zero", &ini), nul = read_bytes("[a]\nb=\0\n[c\n", 11, &ini);
    caught_end(&caught);
    assert_int_equal(missing, USAGE);
    assert_int_equal(folder, USAGE);
    assert_int_equal(endless, USAGE);
    assert_int_equal(nul, USAGE);
    assert_true(caught_has(&caught, "cannot read /nonexistent/x.ini: No such file or directory"));
    assert_true(caught_has(&caught, "cannot read /tmp: Is a directory"));
    assert_true(caught_has(&caught, "cannot read /dev/zero: not a regular file"));
    assert_true(caught_has(&caught, ":2: a NUL byte"));
    assert_int_equal(caught.errors, 4);
    text_free(&caught.words);
}

/* Entries must say the same when they are written and read again. */
static void expect_stable(const struct ini *ini)
{
    struct text text = {0};
    text_add(&text, "%s", "");
    for (int i = 0; i < ini->count; i++) {
        const struct ini_entry *entry = &ini->entries[i];
        assert_true(entry->line > 0 && (i == 0 || entry->line > ini->entries[i - 1].line));
        text_add(&text, entry->key ? "%s=" : "[%s]", entry->key ? entry->key : entry->section);
        if (entry->key) ini_add_value(&text, entry->value);
        text_add(&text, "\n");
    }
    struct ini again = read_good(text.data);
    assert_int_equal(again.count, ini->count);
    for (int i = 0; i < ini->count; i++) {
        assert_string_equal(again.entries[i].section, ini->entries[i].section);
        if (ini->entries[i].key) assert_string_equal(again.entries[i].value, ini->entries[i].value);
    }
    ini_free(&again);
    text_free(&text);
}

static void noise(void **state)
{
    static const char *const pieces[] = {"[a]", "[", "]", "=", "\n", "\n", "\n", " ", "\t", ";", "#", "b",
                                         "k1", "k2=", "\r", "\xef\xbb\xbf", "\xff", "[c:d]\n", "e = f\n",
                                         ":"};
    uint32_t random = 99;
    int taken = 0;
    for (int round = 0; round < 20000; round++) {
        struct text text = {0};
        text_add(&text, "%s", "");
        random = random * 1664525 + 1013904223;
        for (int i = (int)(random >> 27); i > 0; i--) {
            random = random * 1664525 + 1013904223;
            text_add(&text, "%s", pieces[(random >> 8) % (sizeof pieces / sizeof *pieces)]);
        }
        struct ini ini;
        struct caught caught;
        caught_begin(&caught);
        enum status status = ini_read_text("noise", text.data, &ini);
        caught_end(&caught);
        text_free(&text);
        text_free(&caught.words);
        assert_int_equal(status, caught.errors ? USAGE : OK);
        if (status != OK) continue;
        expect_stable(&ini);
        ini_free(&ini);
        taken++;
    }
    assert_true(taken > 500);
}

/* Any bytes at all, NUL among them: never taken for more than they are, never a crash. */
static void noise_of_bytes(void **state)
{
    uint32_t random = 4;
    for (int round = 0; round < 2000; round++) {
        char bytes[200];
        size_t length = (size_t)round % sizeof bytes;
        for (size_t i = 0; i < length; i++) {
            random = random * 1664525 + 1013904223;
            /* Half of them from the characters that mean something. */
            bytes[i] = random >> 31 ? (char)(random >> 16) : "[]=;# \na"[random >> 20 & 7];
        }
        struct ini ini;
        struct caught caught;
        caught_begin(&caught);
        enum status status = read_bytes(bytes, length, &ini);
        caught_end(&caught);
        text_free(&caught.words);
        assert_int_equal(status, caught.errors ? USAGE : OK);
        if (status == OK) ini_free(&ini);
    }
}

static void quoted_values(void **state)
{
    struct ini ini = read_good("[a]\nb = \"x \\x3by;z\" ; comment\n"
                               "c=\" \\\"\\\\\\t\\n\\r\\x41\\xe9 \"\nd = \"\"\n"
                               "e = x\"y\"\n");
    expect_entry(&ini, 1, "a", "b", "x ;y;z", 2);
    expect_entry(&ini, 2, "a", "c", " \"\\\t\n\rA\xe9 ", 3);
    expect_entry(&ini, 3, "a", "d", "", 4);
    expect_entry(&ini, 4, "a", "e", "x\"y\"", 5);
    ini_free(&ini);
    static const char *const open[] = {"\"", "\"x", "\"x\\\"", "\"x ; comment", "\"x ;y\""};
    static const char *const more[] = {"\"x\" y", "\"x\"y", "\"\"\"", "\"x\";y"};
    static const char *const wrong[] = {"\"\\q\"", "\"\\x4\"", "\"\\xg0\"", "\"\\x00\"", "\"\\", "\"\\x"};
    char text[64];
    for (size_t i = 0; i < sizeof open / sizeof *open; i++) {
        snprintf(text, sizeof text, "[a]\nb = %s\n", open[i]);
        expect_refused(text, "f.ini:2: the closing quotation mark is missing; a ; behind a blank must be "
                             "written as \\x3b", 1);
    }
    for (size_t i = 0; i < sizeof more / sizeof *more; i++) {
        snprintf(text, sizeof text, "[a]\nb = %s\n", more[i]);
        expect_refused(text, "f.ini:2: nothing may follow the closing quotation mark", 1);
    }
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        snprintf(text, sizeof text, "[a]\nb = %s\n", wrong[i]);
        expect_refused(text, "f.ini:2: a backslash in quotation marks must be followed by", 1);
    }
}

/* Every byte, alone and in company, and values of any length up to that of a path. */
static void values_read_back(void **state)
{
    static const char *const plain[] = {"", "a", "a=b", "a # b", "a\"b", "a\\b", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof plain / sizeof *plain; i++) {
        struct text text = {0};
        text_add(&text, "%s", "");
        ini_add_value(&text, plain[i]);
        assert_string_equal(text.data, plain[i]);
        text_free(&text);
    }
    srand(3);
    for (int round = 0; round < 4000; round++) {
        char value[4096];
        size_t length = round < 255 ? 1 : round == 255 ? 4095 : (size_t)(rand() % (round < 2000 ? 20 : 900));
        for (size_t i = 0; i < length; i++)
            value[i] = (char)(round < 255 ? round + 1 : round == 255 ? 1 : rand() % 3 ? rand() % 255 + 1
                                                                      : " ;\"\\\t\nx=:[#"[rand() % 11]);
        value[length] = '\0';
        struct text text = {0};
        text_add(&text, "[a]\nb = ");
        ini_add_value(&text, value);
        ini_add_comment(&text, 1, "comment");
        text_add(&text, "\n");
        for (const char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1)
            assert_true(end - at <= INI_LINE_LIMIT);
        struct ini ini = read_good(text.data);
        expect_entry(&ini, 1, "a", "b", value, 2);
        ini_free(&ini);
        text_free(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sections_keys_and_lines),
        cmocka_unit_test(long_files_cost_little),
        cmocka_unit_test(empty_texts),
        cmocka_unit_test(comments),
        cmocka_unit_test(line_ends_and_byte_order_mark),
        cmocka_unit_test(indented_lines_continue_a_value),
        cmocka_unit_test(values_of_long_keys),
        cmocka_unit_test(colons_separate),
        cmocka_unit_test(values_of_every_length),
        cmocka_unit_test(quoted_values),
        cmocka_unit_test(values_read_back),
        cmocka_unit_test(names_of_every_length),
        cmocka_unit_test(long_lines_are_refused),
        cmocka_unit_test(malformed_lines_are_refused),
        cmocka_unit_test(every_mistake_is_reported),
        cmocka_unit_test(keys_stand_once),
        cmocka_unit_test(control_characters_are_refused),
        cmocka_unit_test(files),
        cmocka_unit_test(large_files),
        cmocka_unit_test(files_that_cannot_be_read),
        cmocka_unit_test(noise),
        cmocka_unit_test(noise_of_bytes),
    };
    return cmocka_run_group_tests_name("ini", tests, NULL, NULL);
}
