/* test_autotune: how kernel plans are chosen on CUDA: by timing, remembered by device and file; in the order
 * of the list where bits must repeat, or where there is no memory to time with. Runs where AMPTRAIN_DEVICE
 * names a GPU. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "device/cuda_tuning.h"
#include "tests/support/op_case.h"
#include "tests/support/place.h"

/* Behind our headers: it has a macro called fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define PATH_BYTES 256
#define NAME_BYTES 256
#define WORKSPACE_MAX ((size_t)512 << 20)

static const struct op_example conv = {"filters=32 kernel=3 pad=1", 1, {{.rank = 4, .dim = {4, 14, 14, 16}}}};
static const struct op_example linear = {"units=64", 1, {{.rank = 4, .dim = {32, 1, 1, 96}}}};

/* Every test has a cache folder of its own, which is empty. */
static int folder_open(void **state)
{
    static char folder[PATH_BYTES];
    const char *temporary = getenv("TMPDIR");
    snprintf(folder, sizeof folder, "%.100s/autotune.XXXXXX", temporary ? temporary : "/tmp");
    *state = folder;
    return mkdtemp(folder) ? setenv("XDG_CACHE_HOME", folder, 1) : -1;
}

static int folder_close(void **state)
{
    static const char *const names[] = {"/amptrain/algorithms", "/amptrain/algorithms.lock", "/amptrain", ""};
    for (int i = 0; i < 4; i++) {
        char *path = text_format("%s%s", (const char *)*state, names[i]);
        remove(path);
        free(path);
    }
    return 0;
}

/* One choice, made anew. */
struct chosen {
    char name[NAME_BYTES], key[NAME_BYTES];   /* of forward's kernel plan */
    size_t workspace;
    struct text choices;                      /* all that the device knows then */
};

static void chosen_free(struct chosen *chosen)
{
    text_free(&chosen->choices);
}

/* The key of the first choice, which is forward's: "0123abcd KEY=CHOICE". */
static void key_read(struct chosen *chosen)
{
    const char *line = strstr(chosen->choices.data, " forward ");
    assert_non_null(line);
    while (line > chosen->choices.data && line[-1] != '\n') line--;
    line = strchr(line, ' ') + 1;
    size_t length = strcspn(line, "=");
    assert_true(length < NAME_BYTES);
    memcpy(chosen->key, line, length);
    chosen->key[length] = '\0';
}

/* On a device that knows `choices` (NULL: nothing) and grants `limit` bytes (0: any). */
static struct chosen choose(const char *op, const struct op_example *example, bool deterministic,
                            const char *choices, size_t limit)
{
    struct chosen chosen = {.workspace = 0};
    struct reason reason;
    struct op_case *c = op_case_open(op_find(op), example, F16, true, 1, &reason);
    struct device *device = place_open(1);
    const struct op_code *code = c->op->cuda;
    void *kernel_plan;
    c->device = device;
    c->deterministic = deterministic;
    device->memory_limit = limit;
    if (choices) device->backend->autotuner.load(device, choices);
    op_case_prepare(code, &kernel_plan);
    struct op_case_storage storage;
    struct call call = op_case_call(c, PHASE_BACKWARD_DATA, &storage);
    assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
    call = op_case_call(c, PHASE_BACKWARD_PARAMS, &storage);
    assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
    call = op_case_call(c, PHASE_FORWARD, &storage);
    assert_int_equal(op_case_plan(code, kernel_plan, &call), OK);
    snprintf(chosen.name, sizeof chosen.name, "%s", call.kernel_plan->name);
    chosen.workspace = op_code_workspace(code, &call);
    device->backend->autotuner.save(device, &chosen.choices);
    key_read(&chosen);
    assert_int_equal(op_case_run(code, kernel_plan, &call), OK);
    op_case_release(kernel_plan);
    op_case_close(c);
    device_close(device);
    return chosen;
}

static bool in_file(const char *key)
{
    struct tuning *tuning = tuning_open();
    bool found = tuning_find(tuning, key) != NULL;
    tuning_close(tuning);
    return found;
}

static void check_timed(const char *op, const struct op_example *example)
{
    struct chosen first = choose(op, example, false, NULL, 0), second = choose(op, example, false, NULL, 0);
    assert_true(in_file(first.key));
    assert_string_equal(first.name, second.name);
    assert_null(strstr(first.choices.data, "=0.0 us"));
    chosen_free(&first);
    chosen_free(&second);
}

static void test_timed_and_remembered(void **state)
{
    (void)state;
    if (place_is_cpu()) skip();
    check_timed("conv", &conv);
    check_timed("linear", &linear);
}

static void check_without_memory(const char *op, const struct op_example *example)
{
    struct chosen chosen = choose(op, example, false, NULL, 1);
    assert_non_null(strstr(chosen.choices.data, "=0.0 us"));
    assert_false(in_file(chosen.key));
    assert_true(chosen.workspace <= WORKSPACE_MAX);
    chosen_free(&chosen);
}

static void test_without_memory(void **state)
{
    (void)state;
    if (place_is_cpu()) skip();
    check_without_memory("conv", &conv);
    check_without_memory("linear", &linear);
}

/* A line as checkpoints have it. */
static void line_make(struct text *line, const char *key, const char *choice)
{
    struct tuning *tuning = tuning_new();
    tuning_set(tuning, key, choice);
    tuning_print(tuning, line);
    tuning_close(tuning);
}

static void check_deterministic(const char *op, const struct op_example *example, const char *other)
{
    struct chosen first = choose(op, example, true, NULL, 0);
    assert_false(in_file(first.key));
    assert_non_null(strstr(first.choices.data, "=0.0 us"));
    assert_true(strcmp(first.name, other) != 0);
    char *choice = text_format("1.0 us 1000000000 bytes %s", other);
    struct tuning *tuning = tuning_open();
    tuning_set(tuning, first.key, choice);
    tuning_close(tuning);
    struct chosen second = choose(op, example, true, NULL, 0);
    assert_string_equal(first.name, second.name);
    struct text line = {0};
    line_make(&line, first.key, choice);
    struct chosen resumed = choose(op, example, true, line.data, 0);
    assert_string_equal(resumed.name, other);
    text_free(&line);
    free(choice);
    chosen_free(&first);
    chosen_free(&second);
    chosen_free(&resumed);
}

/* Neither timing nor the file decides; what a checkpoint brings does. */
static void test_deterministic(void **state)
{
    (void)state;
    if (place_is_cpu()) skip();
    check_deterministic("conv", &conv, "direct");
    check_deterministic("linear", &linear, "plain");
}

/* Weights' gradients of a large problem: the first candidate is none of those that write fp32, have to be
 * compiled, and take up to 30 times as long. */
static void test_weights_are_not_compiled(void **state)
{
    (void)state;
    static const struct op_example large = {"filters=64 kernel=3 pad=1", 1,
                                            {{.rank = 4, .dim = {16, 28, 28, 64}}}};
    if (place_is_cpu()) skip();
    struct chosen chosen = choose("conv", &large, true, NULL, 0);
    const char *line = strstr(chosen.choices.data, " backward_params ");
    assert_non_null(line);
    size_t length = strcspn(line, "\n");
    const char *name = strstr(line, " bytes cudnn ");
    const char *narrow = strstr(line, "+narrow ");
    if (name && name < line + length) assert_true(narrow && narrow < line + length);
    chosen_free(&chosen);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(test_timed_and_remembered, folder_open, folder_close),
        cmocka_unit_test_setup_teardown(test_without_memory, folder_open, folder_close),
        cmocka_unit_test_setup_teardown(test_deterministic, folder_open, folder_close),
        cmocka_unit_test_setup_teardown(test_weights_are_not_compiled, folder_open, folder_close),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
