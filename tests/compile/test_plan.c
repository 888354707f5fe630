/* Plans of random programs on one to three streams: bound, checker, and play in random legal orders.
 * Planted faults must be caught. */
#include <stdlib.h>

#include "alloc/check.h"
#include "alloc/pack.h"
#include "base/memory.h"
#include "base/random.h"
#include "compile/ir/program_parts.h"
#include "compile/memory/plan.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

#define PROGRAMS 3000
#define SECONDS 0.02

static uint32_t below(struct random *random, int limit)
{
    return random_below(random, (uint32_t)limit);
}

static int add_value(struct program *program, struct random *random, enum value_kind kind)
{
    struct value value = {.home = HOME_ARENA, .kind = kind, .dtype = U8, .node = -1, .index = -1};
    value.shape = shape_vector(1 + below(random, below(random, 4) ? 600 : 6000));
    return build_value(program, value, text_format("v%d", program->value_count));
}

/* An earlier value, most often a recent one. */
static int pick_value(struct random *random, const int *values, int count)
{
    int back = below(random, 3) ? 5 : count;
    return values[count - 1 - (int)below(random, back < count ? back : count)];
}

static void add_instruction(struct program *program, struct random *random, int *values, int *count)
{
    struct instruction at = instruction_new(PHASE_FORWARD, NULL, NULL, text_format("i%d", program->count));
    int reads = *count > 0 ? (int)below(random, 4) : 0;
    at.stream = (int)below(random, program->streams);
    for (int r = 0; r < reads; r++) {
        int value = pick_value(random, values, *count);
        instruction_link(program, &at);
        if (!instruction_reads(&at, value)) operand_set(&at, OPERAND_X, operand_count(&at, OPERAND_X), value);
    }
    int writes = 1 + (int)below(random, 2), first = *count;
    for (int w = 0; w < writes; w++) {
        values[*count] = add_value(program, random, KIND_ACTIVATION);
        operand_set(&at, OPERAND_PARAM, w, values[(*count)++]);
    }
    if (below(random, 4) == 0)
        operand_set(&at, OPERAND_WORKSPACE, 0, add_value(program, random, KIND_WORKSPACE));
    if (operand_count(&at, OPERAND_X) > 0 && below(random, 2)) {
        int p = (int)below(random, IN_PLACE_PAIRS);
        at.in_place[p] = (struct in_place){operand_x(&at, 0), values[first]};
        if (operand_count(&at, OPERAND_X) > 1 && writes > 1)
            at.in_place[!p] = (struct in_place){operand_x(&at, 1), values[first + 1]};
    }
    build_push(program, at);
}

/* One that reads and writes a value each; -1: reads a random one, or writes a new one. */
static void add_link(struct program *program, struct random *random, int *values, int *count, int read,
                     int write)
{
    struct instruction at = instruction_new(PHASE_FORWARD, NULL, NULL, text_format("i%d", program->count));
    at.stream = (int)below(random, program->streams);
    if (read < 0 && *count > 0) read = pick_value(random, values, *count);
    operand_set(&at, OPERAND_X, 0, read);
    if (write < 0) write = values[(*count)++] = add_value(program, random, KIND_ACTIVATION);
    operand_set(&at, OPERAND_Y, 0, write);
    build_push(program, at);
}

/* A value with two to four parts; theirs are the ids that follow. */
static int add_divided(struct program *program, struct random *random, int parts)
{
    struct value value = {.home = HOME_ARENA, .kind = KIND_ACTIVATION, .dtype = U8, .node = -1, .index = -1,
                          .divided = true};
    int64_t room = (1 + below(random, 8)) * PLAN_ALIGNMENT;
    value.shape = shape_vector(parts * room);
    int whole = build_value(program, value, text_format("v%d", program->value_count));
    value = (struct value){.home = HOME_PART, .kind = KIND_ACTIVATION, .dtype = U8, .node = -1, .index = -1,
                           .whole = whole};
    for (int part = 0; part < parts; part++) {
        value.offset = part * room;
        value.shape = shape_vector(1 + below(random, (int)room));
        build_value(program, value, text_format("v%d", program->value_count));
    }
    return whole;
}

/* Several instructions write a part each and one reads the whole, or the other way round; others come between
 * them. */
static void add_exchange(struct program *program, struct random *random, int *values, int *count)
{
    int parts = 2 + (int)below(random, 3), whole = add_divided(program, random, parts);
    bool gathered = below(random, 2);
    if (!gathered) add_link(program, random, values, count, -1, whole);
    for (int part = whole + 1; part <= whole + parts; part++) {
        if (below(random, 2)) add_instruction(program, random, values, count);
        add_link(program, random, values, count, gathered ? -1 : part, gathered ? part : -1);
    }
    if (gathered) add_link(program, random, values, count, whole, -1);
}

static struct program random_program(uint64_t seed)
{
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    struct program program = {.streams = 1 + (int)below(&random, 3), .batch = 1, .micro_batches = 1};
    int length = 2 + (int)below(&random, 40), count = 0;
    int *values = memory_new((size_t)(16 * length), sizeof *values);
    for (int i = 0; i < length; i++)
        if (below(&random, 10)) add_instruction(&program, &random, values, &count);
        else add_exchange(&program, &random, values, &count);
    streams_wait(&program);
    free(values);
    return program;
}

/* Memory in units of the alignment, each holding the number of the value that lies there. */
static void play_write(const struct program *program, const struct plan *plan, int *memory, int value)
{
    int64_t begin = plan->offsets[value] / PLAN_ALIGNMENT;
    int64_t end = (plan->offsets[value] + program->values[value].bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT;
    for (int64_t unit = begin; unit < end; unit++) memory[unit] = value;
}

/* True if an instruction writes it as such, and not what it is a part of, or its parts. */
static bool is_written(const struct program *program, int value)
{
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (instruction_writes(at, value)) return true;
    }
    return false;
}

static bool play_read(const struct program *program, const struct plan *plan, const int *memory, int value)
{
    bool written = is_written(program, value), right = true;
    for (int v = 0; !written && program->values[value].divided && v < program->value_count; v++)
        if (program->values[v].home == HOME_PART && program->values[v].whole == value)
            right = right && play_read(program, plan, memory, v);
    if (!written && program->values[value].divided) return right;
    int holds = written ? value : program->values[value].whole;
    int64_t begin = plan->offsets[value] / PLAN_ALIGNMENT;
    int64_t end = (plan->offsets[value] + program->values[value].bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT;
    for (int64_t unit = begin; unit < end; unit++)
        if (memory[unit] != holds) return false;
    return true;
}

static bool ready(const struct program *program, const bool *done, int i)
{
    const struct instruction *at = &program->instructions[i];
    for (int w = 0; w < at->wait_count; w++)
        if (!done[at->waits[w]]) return false;
    for (int j = 0; j < i; j++)
        if (program->instructions[j].stream == at->stream && !done[j]) return false;
    return !done[i];
}

/* Runs the program in a random order that streams and waits allow. True if every read finds what was
 * written for it. */
static bool play(const struct program *program, const struct plan *plan, struct random *random)
{
    int *memory = memory_new((size_t)(plan->arena_bytes / PLAN_ALIGNMENT + 2), sizeof *memory);
    bool *done = memory_new((size_t)program->count, sizeof *done), right = true;
    int *choices = memory_new((size_t)program->count, sizeof *choices);
    for (int step = 0; right && step < program->count; step++) {
        int count = 0;
        for (int i = 0; i < program->count; i++)
            if (ready(program, done, i)) choices[count++] = i;
        int chosen = choices[below(random, count)];
        const struct instruction *at = &program->instructions[chosen];
        FOR_READS(o, at) right = right && play_read(program, plan, memory, o->value);
        FOR_WRITES(o, at) play_write(program, plan, memory, o->value);
        done[chosen] = true;
    }
    free(memory);
    free(done);
    free(choices);
    return right;
}

static void test_random_programs(void **state)
{
    long programs = rounds(PROGRAMS, 1000000), in_place = 0, tensors = 0, tight = 0;
    double worst = 1;
    for (uint64_t seed = 0; seed < (uint64_t)programs; seed++) {
        struct program program = random_program(seed);
        struct plan plan;
        struct random random = random_open(seed, PURPOSE_TEST, 1, 0);
        assert_int_equal(plan_make(&program, true, SECONDS, &plan), OK);
        assert_true(plan.arena_bytes >= plan.live_bytes_bound);
        for (int order = 0; order < 3; order++) assert_true(play(&program, &plan, &random));
        for (int v = 0; v < program.value_count; v++) in_place += plan.lifetimes[v].group != v;
        double share = (double)plan.arena_bytes / (double)plan.live_bytes_bound;
        if (share > worst) worst = share;
        tight += plan.arena_bytes == plan.live_bytes_bound;
        tensors += program.value_count;
        plan_free(&plan);
        program_free(&program);
    }
    figure("%ld programs on one to three streams, %ld tensors, %ld of them in place, each run in 3 orders: "
           "no read found anything else than was written", programs, tensors, in_place);
    figure("arenas: %ld above the live bound, by a factor of %.3f at most", programs - tight, worst);
    assert_true(in_place > programs);
}

static void test_separate(void **state)
{
    for (uint64_t seed = 0; seed < 50; seed++) {
        struct program program = random_program(seed);
        struct plan plan;
        int64_t bytes = 0;
        assert_int_equal(plan_make(&program, false, SECONDS, &plan), OK);
        for (int v = 0; v < program.value_count; v++) {
            assert_int_equal(plan.lifetimes[v].group, v);
            if (program.values[v].home == HOME_ARENA)
                bytes += plan_bytes(&program.values[v]);
        }
        assert_int_equal(plan.arena_bytes, bytes);
        plan_free(&plan);
        program_free(&program);
    }
}

/* A program gives the same plan again. */
static void test_repeatable(void **state)
{
    for (uint64_t seed = 0; seed < (uint64_t)rounds(50, 10000); seed++) {
        struct program program = random_program(seed);
        struct plan first, second;
        assert_int_equal(plan_make(&program, true, 10, &first), OK);
        assert_int_equal(plan_make(&program, true, 10, &second), OK);
        assert_memory_equal(first.offsets, second.offsets, (size_t)program.value_count * sizeof(int64_t));
        plan_free(&first);
        plan_free(&second);
        program_free(&program);
    }
}

/* Every wait that streams_wait() gives is needed: without any one of them the checker objects. */
static void test_wait_removed(void **state)
{
    long removed = 0, programs = rounds(300, 100000);
    for (uint64_t seed = 0; seed < (uint64_t)programs; seed++) {
        struct program program = random_program(seed);
        struct plan plan;
        struct reason reason;
        assert_int_equal(plan_make(&program, true, SECONDS, &plan), OK);
        for (int i = 0; i < program.count; i++) {
            struct instruction *at = &program.instructions[i];
            for (int w = 0; w < at->wait_count; w++) {
                int saved = at->waits[w];
                at->waits[w] = at->waits[--at->wait_count];
                assert_false(plan_verify(&program, &plan, &reason));
                at->waits[at->wait_count++] = at->waits[w];
                at->waits[w] = saved;
                removed++;
            }
        }
        assert_true(plan_verify(&program, &plan, &reason));
        plan_free(&plan);
        program_free(&program);
    }
    figure("%ld waits left out, one at a time: all seen", removed);
    assert_true(removed > 3 * programs);
}

/* A value born at `i`, other than `not`; -1. */
static int born_at(const struct program *program, int i, int not)
{
    const struct instruction *at = &program->instructions[i];
    FOR_WRITES(o, at)
        if (o->value != not && instruction_over(at, o->value) < 0) return o->value;
    return -1;
}

/* A lifetime cut by one lets another tensor be born over it at its last use: the value checker and
 * the span checker must both object. */
static void test_lifetime_cut(void **state)
{
    long planted = 0, programs = rounds(500, 100000);
    for (uint64_t seed = 0; seed < (uint64_t)programs; seed++) {
        struct program program = random_program(seed);
        struct plan plan;
        struct reason reason;
        assert_int_equal(plan_make(&program, true, SECONDS, &plan), OK);
        plan.arena_bytes *= 2;
        for (int v = 0; v < program.value_count; v++) {
            int last = plan.lifetimes[v].dead - 1;
            if (plan.lifetimes[v].group != v || last <= plan.lifetimes[v].born) continue;
            int over = born_at(&program, last, v);
            if (over < 0) continue;
            int64_t offset = plan.offsets[over];
            plan.offsets[over] = plan.offsets[v];
            assert_false(plan_verify(&program, &plan, &reason));
            plan.offsets[over] = offset;
            struct span spans[] = {
                {plan.lifetimes[v].born, plan.lifetimes[v].dead, program.values[v].bytes, 0},
                {last, last + 1, program.values[over].bytes, 0},
            };
            assert_false(check_spans(spans, 2, PLAN_ALIGNMENT, INT64_MAX, &reason));
            planted++;
        }
        plan_free(&plan);
        program_free(&program);
    }
    figure("%ld lifetimes cut short by one: all seen", planted);
    assert_true(planted > 2 * programs);
}

/* Two values that lie over one another without the right to. */
static void test_in_place_refused(void **state)
{
    int planted = 0;
    for (uint64_t seed = 0; seed < 300; seed++) {
        struct program program = random_program(seed);
        struct plan plan;
        struct reason reason;
        assert_int_equal(plan_make(&program, true, SECONDS, &plan), OK);
        for (int i = 0; i < program.count; i++) {
            for (int p = 0; p < IN_PLACE_PAIRS; p++) {
                struct in_place *pair = &program.instructions[i].in_place[p], saved = *pair;
                if (pair->to < 0 || plan.lifetimes[pair->to].group == pair->to) continue;
                pair->from = -1;
                assert_false(plan_verify(&program, &plan, &reason));
                *pair = saved;
                planted++;
            }
        }
        plan_free(&plan);
        program_free(&program);
    }
    assert_true(planted > 100);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_programs), cmocka_unit_test(test_separate),
        cmocka_unit_test(test_repeatable),      cmocka_unit_test(test_wait_removed),
        cmocka_unit_test(test_lifetime_cut),    cmocka_unit_test(test_in_place_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
