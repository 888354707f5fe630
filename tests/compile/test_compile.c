/* The compiler: which passes run and in what order, and that each leaves a right program, whatever the model,
 * number type, strategy and limit. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "compile/compile.h"
#include "compile/ir/dump.h"
#include "compile/memory/fit_memory.h"
#include "compile/ir/parse.h"
#include "conf/settings.h"
#include "graph/graph_text.h"
#include "graph/model.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define BATCH 4
#define INSTRUCTIONS_FEW 400     /* of a step whose limits are searched in a moment */

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};

static struct graph load(const char *name)
{
    struct model_options model = {.arch = name, .folders = folders, .outputs = OUTPUTS_ANY, .dropout = -1};
    struct graph graph;
    assert_int_equal(model_load(&model, &graph), OK);
    return graph;
}

static struct compile_options options_for(enum dtype storage, enum fit_mode fit)
{
    return (struct compile_options){
        .lower = {.batch = BATCH, .micro_batches = 2, .training = true, .storage = storage},
        .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)},
        .streams = 2,
        .fit = fit,
        .budget.batches = 1,
        .verify_each = true,
    };
}

/* Its text is that of the program which is read from it, and of which as much is alive. */
static void check_text(const char *pass, const struct program *program, void *context)
{
    struct text text = {0}, again = {0};
    struct program read;
    (void)pass, (void)context;
    program_dump(program, &text);
    assert_int_equal(program_parse("text", text.data, &read), OK);
    program_dump(&read, &again);
    assert_string_equal(again.data, text.data);
    assert_int_equal(plan_live_peak(&read), plan_live_peak(program));
    text_free(&text);
    text_free(&again);
    program_free(&read);
}

/* Compiles; returns how many bytes the step takes. */
static int64_t check(const struct graph *graph, const struct compile_options *options)
{
    struct compiled compiled;
    assert_int_equal(compile_plan(graph, options, &compiled), OK);
    check_text(NULL, &compiled.program, NULL);
    int64_t arena = compiled.plan.arena_bytes;
    struct budget exact = options->budget;
    exact.total = budget_taken(&options->budget, &compiled.program, arena).total;
    assert_int_equal(budget_allowed(&exact, &compiled.program).arena, arena);
    compiled_free(&compiled);
    return exact.total;
}

static bool is_small(const struct graph *graph, const struct compile_options *options)
{
    struct program program;
    assert_int_equal(compile(graph, options, &program), OK);
    int count = program.count;
    program_free(&program);
    return count <= INSTRUCTIONS_FEW;
}

/* Limits that may be met, and one that cannot, by what the step takes without one. Returns whether the first
 * is met. */
static bool check_limits(const struct graph *graph, struct compile_options options, int64_t bytes)
{
    options.budget.total = bytes / 10 * 9;
    int64_t limited = check(graph, &options);
    assert_true(limited <= bytes);
    bool met = limited <= options.budget.total;
    options.budget.total = 1;
    assert_true(check(graph, &options) <= bytes);
    return met;
}

/* Returns how many limits were met. */
static int check_model(const char *name)
{
    int met = 0;
    static const enum fit_mode strategies[] = {FIT_AUTO, FIT_KEEP, FIT_RECOMPUTE, FIT_OFFLOAD};
    struct graph graph = load(name);
    bool dense = graph.nodes[graph.output].shape.h > 1;
    for (int s = 0; s < 4 && !dense; s++) {
        struct compile_options options = options_for(s % 2 ? F16 : F32, strategies[s]);
        options.lower.all_micro_batches = s == 1 ? 0 : 4;     /* two ranks */
        if (s > 1)
            options.cut = (struct cut_options){.stages = s, .stage = 1, .schedule = PIPELINE_V,
                                               .in_mail = true};
        if (s == 2) options.cut.schedule = PIPELINE_1F1B;
        int64_t bytes = check(&graph, &options);
        if (is_small(&graph, &options)) met += check_limits(&graph, options, bytes);
    }
    struct compile_options evaluation = options_for(F16, FIT_AUTO);
    evaluation.lower = (struct lower_options){.batch = BATCH, .micro_batches = 1, .storage = F16,
                                              .logits = true, .features = dense};
    check(&graph, &evaluation);
    graph_free(&graph);
    return met;
}

static void test_models(void **state)
{
    (void)state;
    int count, met = 0, step = getenv("AMPTRAIN_SANITIZED") ? 8 : getenv("AMPTRAIN_TORTURE") ? 1 : 2;
    char **names = model_names(folders, &count);
    assert_true(count >= 10);
    for (int i = 0; i < count; i++) {
        if (i % step == 0) met += check_model(names[i]);
        free(names[i]);
    }
    free(names);
    assert_true(met > 10 / step);
}

/* All gradients but those of the stem are exchanged together, while its backward goes on. */
static void test_buckets(void **state)
{
    (void)state;
    struct graph graph = load("resnet50");
    struct compile_options options = options_for(F16, FIT_KEEP);
    options.lower = (struct lower_options){.batch = 256, .micro_batches = 1, .all_micro_batches = 2,
                                           .training = true, .storage = F16};
    options.verify_each = false;
    struct program program;
    int64_t bytes[8] = {0};
    int count = 0;
    assert_int_equal(passes_lower(&graph, &options, &program), OK);
    for (int i = 0; i < program.count && count < 8; i++)
        if (program.instructions[i].kind == INSTRUCTION_ALL_TO_ALL)
            bytes[count++] = program.values[operand_x(&program.instructions[i], 0)].bytes;
    assert_int_equal(count, 2);
    assert_true(bytes[0] > 100 * 1000 * 1000 && bytes[1] < 1000 * 1000);
    program_free(&program);
    graph_free(&graph);
}

static void note_pass(const char *pass, const struct program *program, void *context)
{
    assert_true(program->count > 0 || strcmp(pass, "fuse") == 0);   /* which works on the graph */
    text_add(context, "%s ", pass);
}

static void check_passes(const struct compile_options *options, const char *expected)
{
    struct graph graph = load("lenet5");
    struct compile_options noting = *options;
    struct text names = {0};
    noting.after = note_pass;
    noting.context = &names;
    check(&graph, &noting);
    assert_string_equal(names.data, expected);
    text_free(&names);
    graph_free(&graph);
}

#define LOWERED \
    "fuse lower autocast fuse_activations saved differentiate running_statistics fuse_gradient_sums " \
    "relu_mask fuse_data_and_weight_gradients join_residual_gradients gradient_products add_gradients " \
    "fuse_pooling fuse_relu add_residual bias_gradients "

static void test_passes(void **state)
{
    (void)state;
    struct compile_options options = options_for(F16, FIT_AUTO);
    check_passes(&options, LOWERED "recompute fuse_recompute streams ");
    options.budget.total = INT64_C(1) << 40;   /* tries on copies are not told of */
    check_passes(&options, LOWERED "recompute fuse_recompute streams ");
    options.lower.fold_least = 1;
    check_passes(&options, "fuse lower autocast fuse_activations fold_concat_conv fold_conv_batchnorm "
                 "fold_maxpool saved differentiate running_statistics fuse_gradient_sums relu_mask "
                 "fuse_data_and_weight_gradients "
                 "join_residual_gradients gradient_products add_gradients fuse_pooling fuse_relu "
                 "add_residual bias_gradients recompute fuse_recompute streams ");
    options.lower.fold_least = 0;
    options.budget.total = 0;
    options.fit = FIT_OFFLOAD;
    options.streams = 1;
    check_passes(&options, LOWERED "recompute fuse_recompute offload ");
    options.lower = (struct lower_options){.batch = BATCH, .micro_batches = 1, .storage = F16};
    check_passes(&options, "fuse lower autocast fuse_activations saved fuse_gradient_sums relu_mask "
                 "fuse_relu add_residual ");
}

static void test_table(void **state)
{
    (void)state;
    int count;
    const struct pass *passes = passes_table(&count);
    for (int i = 0; i < count; i++) {
        assert_true(passes[i].name[0] && passes[i].when[0] && passes[i].keeps[0]);
        for (int j = 0; j < i; j++) assert_string_not_equal(passes[i].name, passes[j].name);
    }
}

/* Appends as many words as fit into the width, and spaces up to it; returns the rest. */
static const char *add_column(struct text *out, const char *words, int width)
{
    int length = (int)strlen(words);
    if (length > width)
        for (length = width; words[length] != ' ';) length--;
    text_add(out, " %-*.*s", width, length, words);
    return words + length + strspn(words + length, " ");
}

/* The table of passes, as ARCHITECTURE has it. */
static void passes_print(struct text *out)
{
    int count;
    const struct pass *passes = passes_table(&count);
    for (int i = 0; i < count; i++) {
        const char *name = passes[i].name, *when = passes[i].when, *keeps = passes[i].keeps;
        while (*name || *when || *keeps) {
            text_add(out, " ");
            name = add_column(out, name, 31);
            when = add_column(out, when, 20);
            keeps = add_column(out, keeps, 46);
            while (out->data[out->length - 1] == ' ') out->data[--out->length] = '\0';
            text_add(out, "\n");
        }
    }
}

/* On a difference the table is in tests/passes.dump of the build folder. */
static void test_architecture(void **state)
{
    (void)state;
    struct text table = {0}, file = {0};
    char line[256];
    FILE *in = fopen(SOURCEDIR "/ARCHITECTURE", "r"), *out = NULL;
    assert_non_null(in);
    while (fgets(line, sizeof line, in)) text_add(&file, "%s", line);
    fclose(in);
    passes_print(&table);
    bool same = strstr(file.data, table.data) != NULL;
    if (!same) out = fopen("tests/passes.dump", "w");
    if (out) fputs(table.data, out), fclose(out);
    text_free(&table);
    text_free(&file);
    if (!same) fail_msg("ARCHITECTURE's table of passes is not that of tests/passes.dump");
}

/* True if a pass of this name is among the first `count`. */
static bool comes_before(const struct pass *passes, int count, const char *name, size_t length)
{
    for (int i = 0; i < count; i++)
        if (strlen(passes[i].name) == length && strncmp(passes[i].name, name, length) == 0) return true;
    return false;
}

/* Each pass comes after those that its row names. */
static void test_order(void **state)
{
    (void)state;
    int count, named = 0;
    const struct pass *passes = passes_table(&count);
    for (int i = 0; i < count; i++)
        for (const char *word = passes[i].after; *word; word += strspn(word, " ")) {
            size_t length = strcspn(word, " ");
            assert_true(comes_before(passes, i, word, length));
            word += length;
            named++;
        }
    assert_true(named >= count - 1);
}

/* Fusion is the program's: the graph stays as written, and parameters are the same ones. */
static void test_fused(void **state)
{
    (void)state;
    struct graph graph = load("resnet20");
    struct text before = {0}, after = {0};
    struct compile_options options = options_for(F32, FIT_AUTO);
    struct program program;
    graph_text(&graph, &before);
    assert_int_equal(compile(&graph, &options, &program), OK);
    graph_text(&graph, &after);
    assert_string_equal(after.data, before.data);
    assert_true(program.graph->count < graph.count);
    assert_int_equal(program.graph->param_count, graph.param_count);
    for (int p = 0; p < graph.param_count; p++)
        assert_string_equal(program.graph->params[p].name, graph.params[p].name);
    program_free(&program);
    text_free(&before);
    text_free(&after);
    graph_free(&graph);
}

/* A graph that cannot be lowered leaves nothing behind. */
static void test_refused(void **state)
{
    (void)state;
    struct graph graph = load("lenet5");
    struct compile_options options = options_for(F32, FIT_AUTO);
    struct program program;
    options.lower.micro_batches = 3;
    assert_int_equal(compile(&graph, &options, &program), USAGE);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_models), cmocka_unit_test(test_buckets),
        cmocka_unit_test(test_passes),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_architecture),
        cmocka_unit_test(test_order),
        cmocka_unit_test(test_fused),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
