/* test_dump: each pass and each rule, shown on the text of a small program, as the program before and after it.
 *
 * dumps/NAME.txt has a program and, after a line "after PASS", what the pass or rule makes of it, without the
 * network, which only fuse changes; and so on, after further such lines. Where that is another one, the text with
 * what is made is written to tests/NAME.dump in the build folder, to be compared and, if it is right, taken as
 * the new expectation. */
#include <dirent.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/status.h"
#include "compile/ir/dump.h"
#include "compile/ir/parse.h"
#include "compile/pass_text.h"
#include "compile/passes.h"
#include "compile/rewrite/rule.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define FOLDER SOURCEDIR "/tests/dumps"

static const char after[] = "\nafter ";

/* Code that supports what the CUDA code of ops does, wherever the test runs. */
static const struct op_code *code_of(const struct op *op)
{
    static struct op_code codes[128];
    int i = 0;
    while (op_table[i] != op) i++;
    codes[i] = (struct op_code){.supports = op->supports_cuda, .backward = op->reference->backward};
    return &codes[i];
}

static char *file_read(const char *path)
{
    struct text text = {0};
    char piece[4096];
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    for (size_t count; (count = fread(piece, 1, sizeof piece - 1, file)) > 0;) {
        piece[count] = '\0';
        text_add(&text, "%s", piece);
    }
    fclose(file);
    return text.data;
}

static void file_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

/* A program that is read from its text has the same text. */
static void check_again(const char *text)
{
    struct program program;
    struct text again = {0};
    assert_int_equal(program_parse("text", text, &program), OK);
    program_dump(&program, &again);
    assert_string_equal(again.data, text);
    text_free(&again);
    program_free(&program);
}

/* Appends what a pass makes of `before`; returns that with its network, as the next pass's program. The caller
 * frees it. */
static char *pass_add(const char *path, const char *before, const char *pass, struct text *whole)
{
    struct text made = {0};
    assert_int_equal(pass_text(path, before, pass, code_of, &made), OK);
    check_again(made.data);
    bool network = strcmp(pass, "fuse") == 0;
    const char *program = network ? made.data : strstr(made.data, "\nprogram ") + 1;
    const char *end = strstr(before, "\nprogram ");
    if (rules_find(pass)) assert_string_not_equal(program, end + 1);
    text_add(whole, "\nafter %s\n%s", pass, program);
    char *next = text_format("%.*s\n%s", (int)(end - before), before, program);
    text_free(&made);
    return next;
}

static void test_pass(void **state)
{
    const char *name = *state;
    char *path = text_format(FOLDER "/%s.txt", name), *text = file_read(path);
    const char *mark = strstr(text, after);
    assert_non_null(mark);
    char *before = text_format("%.*s", (int)(mark - text), text);
    struct text whole = {0};
    text_add(&whole, "%s", before);
    for (; mark; mark = strstr(mark + 1, after)) {
        char *pass = text_format("%.*s", (int)strcspn(mark + strlen(after), "\n"), mark + strlen(after));
        char *next = pass_add(path, before, pass, &whole);
        free(before);
        free(pass);
        before = next;
    }
    bool same = strcmp(whole.data, text) == 0;
    char *other = text_format("tests/%s.dump", name);
    if (!same) file_write(other, whole.data);
    text_free(&whole);
    free(before);
    free(text);
    free(path);
    if (!same) fail_msg("diff %s/%s.txt %s", FOLDER, name, other);
    free(other);
}

/* Cases by name, without ".txt". */
static char **cases_find(int *count)
{
    DIR *folder = opendir(FOLDER);
    char **names = NULL;
    assert_non_null(folder);
    *count = 0;
    for (struct dirent *at; (at = readdir(folder));) {
        char *end = strstr(at->d_name, ".txt");
        if (end) *array_push(names, *count) = text_format("%.*s", (int)(end - at->d_name), at->d_name);
    }
    closedir(folder);
    text_list_sort(names, (size_t)*count);
    return names;
}

static bool is_pass(const char *name)
{
    int count;
    const struct pass *passes = passes_table(&count);
    for (int i = 0; i < count; i++)
        if (strcmp(passes[i].name, name) == 0) return passes[i].run == RULES;
    return false;
}

/* The rules of each pass that applies some are next to each other. */
static void test_passes(void **state)
{
    (void)state;
    int count;
    const struct rule *rules = rules_table(&count);
    for (int r = 0; r < count; r++) {
        assert_true(is_pass(rules[r].pass));
        for (int before = 0; before < r - 1; before++)
            if (strcmp(rules[before].pass, rules[r].pass) == 0)
                assert_string_equal(rules[r - 1].pass, rules[r].pass);
    }
}

/* Some text is about each rule: by its own name, or by that of a pass that applies no other. */
static void test_rules(void **state)
{
    const struct text *all = *state;
    int count;
    const struct rule *rules = rules_table(&count);
    for (int r = 0; r < count; r++) {
        char *line = text_format("%s%s\n", after, rules[r].name);
        bool shown = strstr(all->data, line) != NULL;
        free(line);
        if (!shown) fail_msg("no text in %s is about the rule %s", FOLDER, rules[r].name);
    }
}

int main(void)
{
    int count;
    char **names = cases_find(&count);
    struct text all = {0};
    struct CMUnitTest *tests = memory_new((size_t)count + 2, sizeof *tests);
    for (int c = 0; c < count; c++) {
        char *path = text_format(FOLDER "/%s.txt", names[c]), *text = file_read(path);
        tests[c] = (struct CMUnitTest){names[c], test_pass, NULL, NULL, names[c]};
        text_add(&all, "%s", text);
        free(text);
        free(path);
    }
    tests[count] = (struct CMUnitTest){"rules", test_rules, NULL, NULL, &all};
    tests[count + 1] = (struct CMUnitTest)cmocka_unit_test(test_passes);
    int failed = _cmocka_run_group_tests("dump", tests, (size_t)count + 2, NULL, NULL);
    text_list_free(names, (size_t)count);
    text_free(&all);
    free(tests);
    return failed;
}
