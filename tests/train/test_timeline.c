/* The timeline as text: spans of instructions, kernels, copies and stages, on the threads they belong to. */
#include <jansson.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "measure/stage_times.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

/* Two streams; the weight gradient runs beside the data gradient. */
static struct instruction instructions[] = {
    {.name = "conv forward", .stream = 0}, {.name = "conv backward data", .stream = 0},
    {.name = "conv backward params", .stream = 1}, {.name = "update", .stream = 0},
};
static const struct program program = {.instructions = instructions, .count = 4};

static int stage_of(const struct program *of, int instruction)
{
    (void)of;
    return instruction == 0 ? 0 : instruction == 3 ? 2 : 1;
}
static const char *const stage_names[] = {"forward", "backward", "update"};
static const struct timeline_stages stages = {stage_names, stage_of};

#define KERNEL(text, of, in, from, to) {.name = text, .tag = of, .run = in, .begin = from, .end = to}

/* Activities by their begin, nanoseconds: two steps, a copy beside the first, kernels of no instruction. */
static struct device_activity activities[] = {
    KERNEL("implicit_gemm", 0, 7, 1000, 2000),
    {.name = "copy to device", .tag = -1, .copy = true, .run = 5, .begin = 1500, .end = 6000},
    KERNEL("fill", -1, 7, 1600, 1700),
    KERNEL("sums", 0, 7, 2000, 2500),
    KERNEL("dgrad", 1, 7, 2500, 4000),
    KERNEL("wgrad", 2, 7, 2600, 3000),
    KERNEL("count", -1, 7, 2650, 2850),
    KERNEL("twice", -1, 7, 2700, 2800),
    KERNEL("reduce", 2, 7, 2900, 4500),
    KERNEL("update", 3, 7, 4500, 5000),
    KERNEL("implicit_gemm", 0, 9, 7000, 8000),
    KERNEL("update", 3, 9, 8000, 9000),
};
static uint32_t runs[] = {7, 9};
static struct time_span host[] = {{"start a step", 0, 500, 900}, {"start a step", 0, 1200, 1300},
                             {"wait for a step", 0, 1300, 5100}};
static struct time_span workers[] = {{"load images", 1, 1400, 1900}, {"load images", 0, 1450, 1800}};
static const struct timeline timeline = {
    .host = {host, 3}, .workers = {workers, 2},
    .activities = activities, .count = sizeof activities / sizeof *activities, .runs = runs, .run_count = 2,
};

static int setup(void **state)
{
    struct text out = {0};
    text_add(&out, "[");
    struct text events = {0};
    timeline_print(&timeline, &program, &stages, &events);
    text_add(&out, "%s]", events.data);
    json_error_t error;
    json_t *root = json_loads(out.data, 0, &error);
    if (!root) fail_msg("%s: %s", error.text, out.data);
    text_free(&out);
    text_free(&events);
    *state = root;
    return 0;
}

static int teardown(void **state)
{
    json_decref(*state);
    return 0;
}

static const char *text_of(const json_t *event, const char *key)
{
    return json_string_value(json_object_get(event, key));
}

static double number_of(const json_t *event, const char *key)
{
    return json_number_value(json_object_get(event, key));
}

static const char *thread_name(const json_t *events, int tid)
{
    const json_t *event;
    size_t i;
    json_array_foreach(events, i, event)
        if (strcmp(text_of(event, "name"), "thread_name") == 0 && (int)number_of(event, "tid") == tid)
            return text_of(json_object_get(event, "args"), "name");
    fail_msg("thread %d has no name", tid);
    return NULL;
}

/* On that thread there is such a span; microseconds. */
static void assert_span(const json_t *events, const char *name, const char *thread, double begin,
                        double lasts)
{
    const json_t *event;
    size_t i;
    json_array_foreach(events, i, event)
        if (strcmp(text_of(event, "ph"), "X") == 0 && strcmp(text_of(event, "name"), name) == 0 &&
            number_of(event, "ts") == begin && number_of(event, "dur") == lasts &&
            strcmp(thread_name(events, (int)number_of(event, "tid")), thread) == 0)
            return;
    fail_msg("no span %s on %s at %g for %g", name, thread, begin, lasts);
}

static void test_instructions_hold_their_kernels(void **state)
{
    assert_span(*state, "conv forward", "stream 0", 0, 1.5);
    assert_span(*state, "implicit_gemm", "stream 0", 0, 1);
    assert_span(*state, "sums", "stream 0", 1, 0.5);
    assert_span(*state, "conv backward params", "stream 1", 1.6, 1.9);
    assert_span(*state, "wgrad", "stream 1", 1.6, 0.4);
    assert_span(*state, "reduce", "stream 1, at the same time", 1.9, 1.6);   /* begins before wgrad ends */
    assert_span(*state, "conv forward", "stream 0", 6, 1);
}

static void test_one_kernel_of_the_same_name_is_not_repeated(void **state)
{
    const json_t *event;
    size_t i;
    int count = 0;
    json_array_foreach((const json_t *)*state, i, event)
        count += text_of(event, "name") && strcmp(text_of(event, "name"), "update") == 0;
    assert_int_equal(count, 4);   /* of each step the instruction and the stage */
}

static void test_others_are_apart(void **state)
{
    assert_span(*state, "copy to device", "copies", 0.5, 4.5);
    assert_span(*state, "fill", "other kernels", 0.6, 0.1);
    assert_span(*state, "count", "other kernels", 1.65, 0.2);
    assert_span(*state, "twice", "other kernels, at the same time", 1.7, 0.1);
}

static void test_steps_hold_stages_in_their_order(void **state)
{
    assert_span(*state, "step 1", "steps and stages", 0, 4);
    assert_span(*state, "forward", "steps and stages", 0, 1.5);
    assert_span(*state, "backward", "steps and stages", 1.5, 2);
    assert_span(*state, "update", "steps and stages", 3.5, 0.5);
    assert_span(*state, "step 2", "steps and stages", 6, 2);
}

static void test_parts_of_a_stage_are_one_span(void **state)
{
    struct device_activity some[] = {
        KERNEL("implicit_gemm", 0, 7, 1000, 2000), KERNEL("dgrad", 1, 7, 2000, 4000),
        KERNEL("wgrad", 2, 7, 2500, 3000), KERNEL("update", 3, 7, 2600, 2700),
        KERNEL("dgrad", 4, 7, 4000, 5000),
    };
    struct instruction more[] = {instructions[0], instructions[1], instructions[2], instructions[3],
                                 {.name = "another backward", .stream = 0}};
    const struct program longer = {.instructions = more, .count = 5};
    uint32_t run = 7;
    const struct timeline one = {.activities = some, .count = 5, .runs = &run, .run_count = 1};
    struct text events = {0};
    (void)state;
    timeline_print(&one, &longer, &stages, &events);
    assert_non_null(strstr(events.data, "\"ts\":1.000,\"dur\":3.000,\"name\":\"backward\""));
    assert_null(strstr(events.data, "\"ts\":4.000,\"dur\":1.000,\"name\":\"backward\""));
    text_free(&events);
}

static void assert_stage(const struct stage_time *time, double alone, double exposed)
{
    assert_true(fabs(time->alone - 1e-3 * alone) < 1e-9 && fabs(time->exposed - 1e-3 * exposed) < 1e-9);
}

static void test_stages_have_the_time_of_their_kernels(void **state)
{
    struct stage_time times[3];
    (void)state;
    stage_times(&timeline, &program, &stages, 3, times);   /* of both steps, microseconds: the mean */
    assert_stage(&times[0], 1.25, 1.25);
    assert_stage(&times[1], 1, 1);                          /* the streams at the same time count once */
    assert_stage(&times[2], 0.75, 0.75);
}

static void test_a_stage_hides_behind_an_earlier_one(void **state)
{
    struct device_activity some[] = {
        KERNEL("dgrad", 1, 7, 1000, 5000), KERNEL("update", 3, 7, 4000, 7000),
        KERNEL("implicit_gemm", 0, 7, 4500, 4700),
    };
    uint32_t run = 7;
    const struct timeline overlapping = {.activities = some, .count = 3, .runs = &run, .run_count = 1};
    struct stage_time times[3];
    (void)state;
    stage_times(&overlapping, &program, &stages, 3, times);
    assert_stage(&times[0], 0.2, 0.2);
    assert_stage(&times[1], 4, 3.8);
    assert_stage(&times[2], 3, 2);
}

static void test_the_host_and_its_loader(void **state)
{
    assert_span(*state, "start a step", "host", 0.2, 0.1);
    assert_span(*state, "wait for a step", "host", 0.3, 3.8);
    assert_span(*state, "load images", "loader 1", 0.4, 0.5);
    assert_span(*state, "load images", "loader 0", 0.45, 0.35);
    const json_t *event;
    size_t i;
    json_array_foreach((const json_t *)*state, i, event)
        assert_true(number_of(event, "ts") >= 0);   /* what was before the first step is not there */
}

static void test_spans_are_nested(void **state)
{
    const json_t *a, *b;
    size_t i, k;
    json_array_foreach((const json_t *)*state, i, a)
        json_array_foreach((const json_t *)*state, k, b) {
            if (strcmp(text_of(a, "ph"), "X") != 0 || strcmp(text_of(b, "ph"), "X") != 0) continue;
            if (number_of(a, "tid") != number_of(b, "tid")) continue;
            double begin = number_of(a, "ts"), end = begin + number_of(a, "dur");
            double other = number_of(b, "ts"), last = other + number_of(b, "dur");
            if (begin < other && other < end - 1e-9 && last > end + 1e-9)
                fail_msg("%s and %s overlap", text_of(a, "name"), text_of(b, "name"));
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_instructions_hold_their_kernels),
        cmocka_unit_test(test_one_kernel_of_the_same_name_is_not_repeated),
        cmocka_unit_test(test_others_are_apart),
        cmocka_unit_test(test_steps_hold_stages_in_their_order),
        cmocka_unit_test(test_parts_of_a_stage_are_one_span),
        cmocka_unit_test(test_stages_have_the_time_of_their_kernels),
        cmocka_unit_test(test_a_stage_hides_behind_an_earlier_one),
        cmocka_unit_test(test_the_host_and_its_loader),
        cmocka_unit_test(test_spans_are_nested),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
