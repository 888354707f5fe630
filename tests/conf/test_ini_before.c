/* INI files that were written for the parser that amptrain had before inih: they are read to the same
 * entries, or refused with the line and what to write instead. Tried on the configurations, models and names
 * that amptrain comes with, on the fuzzer's, and on variants of all of them. */
#include <ctype.h>
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"
#include "base/random.h"
#include "conf/ini.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

/* A line or a part of one. */
struct part {
    const char *start;
    size_t length;
};

static struct part part_trim(struct part part)
{
    while (part.length && isspace((unsigned char)*part.start)) part.start++, part.length--;
    while (part.length && isspace((unsigned char)part.start[part.length - 1])) part.length--;
    return part;
}

static struct part part_uncomment(struct part part)
{
    for (size_t i = 1; i < part.length; i++)
        if (part.start[i] == ';' && isspace((unsigned char)part.start[i - 1])) part.length = i;
    return part_trim(part);
}

/* Quotation marks were removed before comments: a value might hold any ';'. NULL: refused. */
static char *before_value(struct part part)
{
    struct part trimmed = part_trim(part);
    if (!trimmed.length || *trimmed.start != '"') {
        part = part_uncomment(part);
        return text_format("%.*s", (int)part.length, part.start);
    }
    char *copy = text_format("%.*s", (int)trimmed.length, trimmed.start), *end = copy + 1;
    while (*end && *end != '"') end += *end == '\\' && end[1] ? 2 : 1;
    if (*end) {
        struct part rest = {end + 1, strlen(end + 1)};
        bool more = part_uncomment(rest).length > 0;
        end[1] = '\0';
        if (!more && !ini_unquote(copy)) return copy;
    }
    free(copy);
    return NULL;
}

static bool before_key(struct ini *ini, const char *section, struct part line, int number)
{
    const char *equals = memchr(line.start, '=', line.length);
    if (!equals || !*section) return false;
    struct part key = part_trim((struct part){line.start, (size_t)(equals - line.start)});
    if (key.length == 0 || key.length > 100) return false;
    for (size_t i = 0; i < key.length; i++)
        if (isspace((unsigned char)key.start[i]) || strchr(":;[]#", key.start[i])) return false;
    char *value = before_value((struct part){equals + 1, line.length - (size_t)(equals + 1 - line.start)});
    if (!value) return false;
    char *name = text_format("%.*s", (int)key.length, key.start);
    bool twice = false;
    for (int i = 0; i < ini->count; i++)
        twice |= ini->entries[i].key && strcmp(ini->entries[i].key, name) == 0 &&
                 strcmp(ini->entries[i].section, section) == 0;
    struct ini_entry *entry = array_push(ini->entries, ini->count);
    *entry = (struct ini_entry){text_copy(section), name, value, number};
    return !twice;
}

static bool before_section(struct ini *ini, char section[49], struct part line, int number)
{
    const char *close = memchr(line.start, ']', line.length);
    if (!close) return false;
    struct part rest = {close + 1, line.length - (size_t)(close + 1 - line.start)};
    struct part name = part_trim((struct part){line.start + 1, (size_t)(close - line.start) - 1});
    if (part_uncomment(rest).length || name.length == 0 || name.length > 48) return false;
    if (memchr(name.start, ';', name.length) || memchr(name.start, '[', name.length)) return false;
    snprintf(section, 49, "%.*s", (int)name.length, name.start);
    struct ini_entry *entry = array_push(ini->entries, ini->count);
    *entry = (struct ini_entry){text_copy(section), NULL, NULL, number};
    return true;
}

/* The parser as it was; false: it refused the file. */
static bool before_read(const char *text, struct ini *ini)
{
    char section[49] = "";
    bool good = true;
    if (strncmp(text, "\xef\xbb\xbf", 3) == 0) text += 3;
    for (int number = 1; good && *text; number++) {
        struct part line = {text, strcspn(text, "\n")};
        text += line.length + (text[line.length] != '\0');
        if (line.length && line.start[line.length - 1] == '\r') line.length--;
        good = line.length <= 20000;
        for (size_t i = 0; i < line.length; i++)
            if (iscntrl((unsigned char)line.start[i]) && line.start[i] != '\t') good = false;
        line = part_trim(line);
        if (!good || line.length == 0 || *line.start == ';' || *line.start == '#') continue;
        good = *line.start == '[' ? before_section(ini, section, line, number)
                                  : before_key(ini, section, line, number);
    }
    return good;
}

static int same, refused, folds, newer;

static void expect_same(const struct ini *before, const struct ini *now)
{
    assert_int_equal(before->count, now->count);
    for (int i = 0; i < now->count; i++) {
        const struct ini_entry *old = &before->entries[i], *entry = &now->entries[i];
        assert_string_equal(old->section, entry->section);
        assert_int_equal(old->line, entry->line);
        assert_int_equal(!old->key, !entry->key);
        if (!old->key) continue;
        assert_string_equal(old->key, entry->key);
        assert_string_equal(old->value, entry->value);
    }
    same++;
}

/* The text's line of that number, from 1. */
static const char *line_of(const char *text, int line)
{
    while (text && line-- > 1) text = strchr(text, '\n') ? strchr(text, '\n') + 1 : NULL;
    return text ? text : "";
}

/* Keys that amptrain wrote, without blanks before them, are all read. */
static void try_folded(const char *text, const struct ini *before)
{
    struct ini now = {0};
    struct caught caught;
    char *folded = ini_fold(text);
    int line;
    caught_begin(&caught);
    enum status status = ini_read_text("f.ini", folded, &now);
    caught_end(&caught);
    if (status != OK) {
        assert_int_equal(sscanf(caught.words.data, "f.ini:%d:", &line), 1);
        if (!strchr("[ \t", *line_of(folded, line))) fail_msg("%s\n%s", caught.words.data, folded);
    }
    bool equal = status != OK || before->count == now.count;
    for (int i = 0; equal && i < now.count; i++)
        equal = strcmp(before->entries[i].section, now.entries[i].section) == 0 &&
                (!now.entries[i].key || strcmp(before->entries[i].value, now.entries[i].value) == 0);
    if (!equal && !strstr(text, "\n ") && !strstr(text, "\n\t")) fail_msg("read otherwise:\n%s", folded);
    folds += status == OK && strcmp(text, folded) != 0;
    ini_free(&now);
    free(folded);
    text_free(&caught.words);
}

static void expect_remedies(const char *words)
{
    static const char *const remedies[] = {
        "indented lines continue the value above them; keys and sections must not be indented",
        "the line is longer than 197 bytes: continue its value in indented lines",
        "blanks beside the section's name",
        "the closing quotation mark is missing; a ; behind a blank must be written as \\x3b",
    };
    int line = 0;
    char why[200];
    assert_int_equal(sscanf(words, "f.ini:%d: %199[^\n]", &line, why), 2);
    bool known = false;
    for (size_t i = 0; i < sizeof remedies / sizeof *remedies; i++) known |= strcmp(why, remedies[i]) == 0;
    if (!known) print_message("%s\n", words);
    assert_true(known && line > 0);
    refused++;
}

static void try_text(const char *text)
{
    struct ini before = {0}, now = {0};
    if (before_read(text, &before)) {
        struct caught caught;
        caught_begin(&caught);
        enum status status = ini_read_text("f.ini", text, &now);
        caught_end(&caught);
        if (status == OK) expect_same(&before, &now);
        else expect_remedies(caught.words.data);
        text_free(&caught.words);
        ini_free(&now);
        try_folded(text, &before);
    } else {
        newer++;                     /* perhaps; the old parser knew no lines that continue a value */
    }
    ini_free(&before);
}

#define LONG "vvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvvv"

/* A few changes to the text; the caller frees it. */
static char *text_variant(const char *text, struct random *random)
{
    static const char *const pieces[] = {
        "", " ", "\t", "\n", "\n ", "\n\t", "\r\n", ";", " ;", "#", "\n;", "\"", " \"", "\" ", "\\", "\\x3b",
        "=", ":", "[", "]", "\n[a]\n", "\n[a ]\n", "\nb = c\n", "\n  b = c\n", "\nd =\n", " = \"x ;y\"\n",
        "\nf = \"\\\" ; \" ; z", "\n  e f\n", LONG,
    };
    char *variant = text_copy(text);
    for (uint32_t left = 1 + random_below(random, 4); left > 0; left--) {
        size_t length = strlen(variant), at = random_below(random, (uint32_t)length + 1);
        /* Half of them at the end of a line, where comments and values end. */
        if (random_below(random, 2)) at += strcspn(variant + at, "\n");
        size_t left_over = length - at < 9 ? length - at : 9;
        size_t gone = random_below(random, 3) ? 0 : random_below(random, (uint32_t)left_over + 1);
        const char *piece = pieces[random_below(random, sizeof pieces / sizeof *pieces)];
        char *next = text_format("%.*s%s%s", (int)at, variant, piece, variant + at + gone);
        free(variant);
        variant = next;
    }
    return variant;
}

static void try_file(const char *path, int variants, struct random *random)
{
    struct reason reason;
    char *bytes;
    size_t length;
    if (!directory_read(&directory_working, path, 1 << 20, &bytes, &length, &reason)) return;
    if (strlen(bytes) == length) {
        try_text(bytes);
        for (int i = 0; i < variants; i++) {
            char *variant = text_variant(bytes, random);
            try_text(variant);
            free(variant);
        }
    }
    free(bytes);
}

static int try_folder(const char *name, const char *ending, int variants)
{
    const char *top = getenv("top_srcdir");
    char *folder = text_format("%s/%s", top ? top : ".", name);
    struct dirent **files;
    struct random random = random_open(44, PURPOSE_TEST, 0, 0);
    int count = scandir(folder, &files, NULL, alphasort), tried = 0;
    assert_true(count > 0);
    for (int i = 0; i < count; i++) {
        char *path = text_format("%s/%s", folder, files[i]->d_name);
        if (*files[i]->d_name != '.' && (!*ending || text_ends_in(path, ending))) {
            try_file(path, variants, &random);
            tried++;
        }
        free(path);
        free(files[i]);
    }
    free(files);
    free(folder);
    return tried;
}

/* All that comes with amptrain, unchanged, is read to the same, but for files that were written since. */
static void files_that_come_with_amptrain(void **state)
{
    same = refused = newer = 0;
    int files = try_folder("conf", ".ini", 0) + try_folder("conf/models", "", 0);
    assert_int_equal(same + newer, files);
    assert_true(same >= 76);
    assert_int_equal(refused, 0);
}

static void variants_of_them(void **state)
{
    same = refused = folds = 0;
    try_folder("conf", ".ini", 400);
    try_folder("conf/models", "", 100);
    assert_true(same > 2000 && refused > 200 && folds > 50);
}

static void variants_of_the_fuzzer(void **state)
{
    same = refused = 0;
    try_folder("tests/fuzz/corpus/ini", "", 400);
    try_folder("tests/fuzz/corpus/model", "", 200);
    assert_true(same > 500 && refused > 50);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_that_come_with_amptrain),
        cmocka_unit_test(variants_of_them),
        cmocka_unit_test(variants_of_the_fuzzer),
    };
    return cmocka_run_group_tests_name("ini before", tests, NULL, NULL);
}
