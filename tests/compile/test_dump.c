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
#include "kernels/conv/conv.h"
#include "kernels/folded/conv_batchnorm.h"
#include "kernels/linear/linear.h"
#include "kernels/norm/batchnorm.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define FOLDER SOURCEDIR "/tests/dumps"

static const char after[] = "\nafter ";

/* What the CUDA code of ops supports, wherever the test runs. */
static bool conv_code_supports(const struct call *call)
{
    bool relu = call_epilogue(call, EPILOGUE_RELU), moments = call_operand(call, OPERAND_Y_MOMENTS);
    if (call->phase == PHASE_BACKWARD_PARAMS) return call_is_plain(call);
    if (call->phase != PHASE_FORWARD) return conv_supports(call);
    return !(relu && moments) &&
           call_has_only(call, AS_BIT(OPERAND_Y_MOMENTS),
                         AS_BIT(EPILOGUE_RELU) | AS_BIT(EPILOGUE_MOMENTS) | AS_BIT(EPILOGUE_X_RELU6));
}

/* Products of channels, of at most 8. */
static bool batchnorm_code_supports(const struct call *call)
{
    struct call without = *call;
    bool gram = call_epilogue(call, EPILOGUE_GRAM);
    if (gram && call->x[0].shape.c > 8) return false;
    if (gram) call_put(&without, OPERAND_Y_SUMS)->shape.dim[0] = 1;
    call_drop(&without, OPERAND_X_MOMENTS);
    return batchnorm_supports(&without);
}

/* Products, of whatever number of channels. */
static bool conv_batchnorm_code_supports(const struct call *call)
{
    struct call without = *call;
    if (call_operand(call, OPERAND_X_PRODUCTS)) without.epilogue_count--;
    call_drop(&without, OPERAND_X_PRODUCTS);
    return conv_batchnorm_supports(&without);
}

static const struct op_code *code_of(const struct op *op)
{
    static const struct op_code conv = {.supports = conv_code_supports, .backward = batchnorm_update},
        maximum = {.supports = call_sums_gradient},
        batchnorm = {.supports = batchnorm_code_supports},
        conv_batchnorm = {.supports = conv_batchnorm_code_supports},
        layernorm = {.supports = call_adds_to_gradient}, linear = {.supports = call_adds_residual},
        linear_scale = {.supports = linear_supports}, others = {.supports = NULL};
    if (strcmp(op->name, "conv") == 0) return &conv;
    if (strcmp(op->name, "layernorm") == 0) return &layernorm;
    if (strcmp(op->name, "linear") == 0) return &linear;
    if (strcmp(op->name, "linear_scale") == 0) return &linear_scale;
    if (strcmp(op->name, "gelu") == 0) return &maximum;
    if (strcmp(op->name, "conv_batchnorm") == 0) return &conv_batchnorm;
    if (strcmp(op->name, "relu") == 0 || strcmp(op->name, "maxpool_relu") == 0) return &maximum;
    return strcmp(op->name, "batchnorm") == 0 ? &batchnorm : &others;
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

/* What is read from a program's text has the same text. */
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

/* By name, without ".txt". */
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
