/* The programs of all ranks, played together: those that the compiler makes end; planted faults are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/ir/program_parts.h"
#include "compile/parallel/stage_mail.h"
#include "compile/parallel/verify_ranks.h"
#include "compile/passes.h"
#include "tests/support/net.h"

#include <cmocka.h>   /* after ours: its fail() is a macro */

#define RANKS_MAX 16
#define FAULTS 1000
#define SKIPS 12

/* Programs by rank. */
struct ranks {
    struct program program[RANKS_MAX];
    int replicas, stages;
};

static bool verified(const struct ranks *ranks, struct reason *reason)
{
    const struct program *programs[RANKS_MAX];
    for (int r = 0; r < ranks->replicas * ranks->stages; r++) programs[r] = &ranks->program[r];
    *reason = (struct reason){0};
    return verify_ranks(programs, ranks->replicas, ranks->stages, reason);
}

static void assert_fault(const struct ranks *ranks, const char *words)
{
    struct reason reason;
    assert_false(verified(ranks, &reason));
    if (strcmp(reason.text, words) != 0) print_error("%s\n", reason.text);
    assert_string_equal(reason.text, words);
}

static void ranks_free(struct ranks *ranks)
{
    for (int r = 0; r < ranks->replicas * ranks->stages; r++) program_free(&ranks->program[r]);
}

/* Two stages of a made-up pipeline, whose instructions follow. */
static struct ranks ranks_new(struct graph *graph, int streams)
{
    struct ranks ranks = {.replicas = 1, .stages = 2};
    for (int r = 0; r < 2; r++)
        ranks.program[r] = (struct program){.graph = graph, .stages = 2, .stage = r, .streams = streams};
    return ranks;
}

/* A message called `name`, of so many numbers, on a stream. */
static void push(struct program *program, enum instruction_kind kind, const char *name, int numbers,
                 int stream)
{
    struct value value = {.home = HOME_ARENA, .dtype = F32, .node = -1, .index = -1};
    value.shape = shape_vector(numbers);
    int id = build_value(program, value, text_copy(name));
    const char *verb = kind == INSTRUCTION_SEND ? "send" : kind == INSTRUCTION_RECEIVE ? "receive" : "use";
    struct instruction at = instruction_new(PHASE_FORWARD, NULL, NULL, text_format("%s %s", verb, name));
    at.kind = kind;
    at.peer = 1 - program->stage;
    at.stream = stream;
    operand_set(&at, kind == INSTRUCTION_SEND ? OPERAND_X : OPERAND_Y, 0, id);
    build_push(program, at);
}

/* Both stages send and then receive: with two streams that is possible, with one only if messages are put
 * down somewhere. */
static struct ranks exchange_of_two(struct graph *graph, int streams, int sends)
{
    struct ranks ranks = ranks_new(graph, streams);
    push(&ranks.program[0], INSTRUCTION_SEND, "y", 8, sends);
    push(&ranks.program[0], INSTRUCTION_RECEIVE, "d y", 8, 0);
    push(&ranks.program[1], INSTRUCTION_SEND, "d y", 8, sends);
    push(&ranks.program[1], INSTRUCTION_RECEIVE, "y", 8, 0);
    return ranks;
}

static void a_ring_is_named(void **state)
{
    (void)state;
    struct graph graph = {0};
    struct reason reason;
    struct ranks ranks = exchange_of_two(&graph, 2, 1);
    assert_true(verified(&ranks, &reason));
    ranks_free(&ranks);
    ranks = exchange_of_two(&graph, 1, 0);
    assert_true(verified(&ranks, &reason));
    ranks_free(&ranks);
    ranks = exchange_of_two(&graph, 2, 0);
    assert_fault(&ranks, "rank 0 'send y' waits for rank 1 'receive y', behind 'send d y'; "
                         "rank 1 'send d y' waits for rank 0 'receive d y', behind 'send y'");
    ranks_free(&ranks);
}

/* Both stages receive on a stream that waits for what another one sends. */
static void waits_are_part_of_a_ring(void **state)
{
    (void)state;
    struct graph graph = {0};
    struct ranks ranks = ranks_new(&graph, 2);
    static const char *const sent[] = {"y", "d y"};
    for (int r = 0; r < 2; r++) {
        struct program *program = &ranks.program[r];
        push(program, INSTRUCTION_SEND, sent[r], 8, 1);
        push(program, INSTRUCTION_OP, "z", 8, 0);
        push(program, INSTRUCTION_RECEIVE, sent[1 - r], 8, 0);
        *array_push(program->instructions[1].waits, program->instructions[1].wait_count) = 0;
    }
    assert_fault(&ranks, "rank 0 'use z' waits for rank 0 'send y'; "
                         "rank 0 'send y' waits for rank 1 'receive y', behind 'use z'; "
                         "rank 1 'use z' waits for rank 1 'send d y'; "
                         "rank 1 'send d y' waits for rank 0 'receive d y', behind 'use z'");
    ranks_free(&ranks);
}

static void what_differs_is_named(void **state)
{
    (void)state;
    struct graph graph = {0};
    struct ranks ranks = exchange_of_two(&graph, 2, 1);
    push(&ranks.program[0], INSTRUCTION_SEND, "z", 8, 1);
    assert_fault(&ranks, "rank 0 'send z' has no counterpart at rank 1");
    push(&ranks.program[1], INSTRUCTION_RECEIVE, "z", 9, 0);
    assert_fault(&ranks, "rank 0 'send z' (z, 32 bytes, micro-batch 0) meets "
                         "rank 1 'receive z' (z, 36 bytes, micro-batch 0)");
    ranks_free(&ranks);
}

/* Programs of net_mixed as the compiler makes them. */
static struct ranks compiled(struct graph *graph, int streams, const struct cut_options *cut,
                             int micro_batches)
{
    int replicas = 2;
    struct ranks ranks = {.replicas = replicas, .stages = cut->stages};
    for (int r = 0; r < replicas * cut->stages; r++) {
        struct compile_options options = {.cut = *cut, .kernel_plans.code_of = kernel_plans_code(DEVICE_CPU)};
        options.lower = (struct lower_options){
            .batch = 4 * micro_batches, .micro_batches = micro_batches, .training = true, .storage = F32,
            .first_micro_batch = r / cut->stages * micro_batches,
            .all_micro_batches = replicas * micro_batches,
        };
        options.cut.stage = r % cut->stages;
        options.cut.on_cpu = streams == 1;
        assert_int_equal(passes_lower(graph, &options, &ranks.program[r]), OK);
        assert_int_equal(streams_assign(&ranks.program[r], streams, BY_MICRO_BATCH), OK);
    }
    return ranks;
}

static void compiled_programs_end(void **state)
{
    (void)state;
    struct graph graph = net_graph(net_mixed, false);
    struct reason reason;
    for (int stages = 1; stages <= 4; stages++)
        for (int micro_batches = 1; micro_batches <= 6; micro_batches++)
            for (enum pipeline_schedule s = 0; s < PIPELINE_SCHEDULES; s++) {
                const struct cut_options cut = {.stages = stages, .schedule = s};
                struct ranks ranks = compiled(&graph, 1 + micro_batches % 2, &cut, micro_batches);
                bool right = verified(&ranks, &reason);
                if (!right) print_error("%d stages: %s\n", stages, reason.text);
                assert_true(right);
                ranks_free(&ranks);
            }
    graph_free(&graph);
}

/* A chain of convolutions with a skip over each two, and one over all. */
static struct graph graph_of_skips(void)
{
    struct text text = {0};
    text_add(&text, "[input]\nchannels = 3\nsize = 8\n[layers]\n");
    text_add(&text, "add0 = conv input filters=4 kernel=3 pad=1\n");
    for (int k = 1; k <= SKIPS; k++)
        text_add(&text, "a%d = conv add%d filters=4 kernel=3 pad=1\nb%d = conv a%d filters=4 kernel=3 pad=1\n"
                 "add%d = add b%d add%d\n", k, k - 1, k, k, k, k, k - 1);
    text_add(&text, "all = add add%d add0\nflat = flatten all\nfc = linear flat units=$classes\n", SKIPS);
    struct graph graph = net_graph(text.data, false);
    text_free(&text);
    return graph;
}

/* Numbers of the stages of all nodes, whose chunks begin at random ones. */
static void random_stages(const struct graph *graph, const struct cut_options *cut, struct random *random,
                          int *stage)
{
    int chunks = pipeline_chunks(cut->schedule, cut->stages), begun = 1;
    for (int node = 0; node < graph->count; node++) {
        int left = graph->count - node, missing = chunks - begun;
        begun += node > 1 && (int)random_below(random, (uint32_t)left) < missing;
        stage[node] = pipeline_stage(cut->schedule, cut->stages, begun - 1);
    }
}

/* Stages far from each other exchange what skips carry, at times when others wait for it in turn. */
static void stages_never_wait_in_a_ring(void **state)
{
    struct graph graph = graph_of_skips();
    struct random random = random_open(12, PURPOSE_TEST, 0, 0);
    int *stage = memory_new((size_t)graph.count, sizeof *stage);
    for (int k = 0; k < 120; k++) {
        struct reason reason;
        struct cut_options cut = {.stages = 3 + k % 6, .schedule = (enum pipeline_schedule)(k / 6 % 4)};
        int micro_batches = 2 + (int)random_below(&random, 15);
        random_stages(&graph, &cut, &random, stage);
        cut.node_stages = stage;
        struct ranks ranks = compiled(&graph, 2, &cut, micro_batches);
        bool right = verified(&ranks, &reason);
        if (!right) print_error("%d stages, %d micro-batches: %s\n", cut.stages, micro_batches, reason.text);
        assert_true(right);
        ranks_free(&ranks);
    }
    free(stage);
    graph_free(&graph);
}

/* The messages that a stage sends another one in a step. */
static struct comm_mail sent(const struct program *from, int to)
{
    struct comm_mail mail = {0};
    for (int i = 0; i < from->count; i++) {
        const struct instruction *at = &from->instructions[i];
        if (!at->among_stages && (at->kind != INSTRUCTION_SEND || at->peer != to)) continue;
        mail.messages++;
        mail.bytes += comm_mail_room((size_t)from->values[operand_x(at, 0)].bytes);
    }
    return mail;
}

/* Messages that stay where they arrive lie one behind another. */
static void check_places(const struct program *program, const struct comm_mail *expected)
{
    int64_t bytes[3] = {0};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kind != INSTRUCTION_RECEIVE) continue;
        const struct value *value = &program->values[operand_y(at)];
        assert_int_equal(value->home, HOME_MAIL);
        assert_int_equal(value->index, at->peer);
        assert_int_equal(value->offset, bytes[at->peer]);
        bytes[at->peer] += (int64_t)comm_mail_room((size_t)value->bytes);
    }
    for (int from = 0; from < 3; from++) assert_true((size_t)bytes[from] <= expected[from].bytes);
}

static void stages_expect_what_others_send(void **state)
{
    (void)state;
    struct graph graph = net_graph(net_mixed, false);
    const struct cut_options cut = {.stages = 3, .schedule = PIPELINE_ZERO_BUBBLE, .in_mail = true};
    struct ranks ranks = compiled(&graph, 2, &cut, 4);
    for (int to = 0; to < 3; to++) {
        struct comm_mail expected[3];
        size_t all = 0;
        stage_mail(&ranks.program[to], expected);
        check_places(&ranks.program[to], expected);
        assert_int_equal(expected[to].messages, 0);
        for (int from = 0; from < 3; from++) {
            struct comm_mail mail = sent(&ranks.program[from], to);
            if (from == to) continue;
            assert_true(mail.messages > 0);
            assert_int_equal(expected[from].messages, mail.messages);
            assert_int_equal(expected[from].bytes, mail.bytes);
            all += mail.bytes;
        }
        size_t flags = (size_t)stage_mail_bytes(&ranks.program[to]) - all;
        assert_true(flags > 0 && flags <= 4 * 256);
    }
    ranks_free(&ranks);
    struct ranks alone = compiled(&graph, 2, &(struct cut_options){.stages = 1}, 4);
    assert_int_equal(stage_mail_bytes(&alone.program[0]), 0);
    ranks_free(&alone);
    graph_free(&graph);
}

/* `largest` bytes are sent at once: no fewer suffice. */
static void assert_largest(const struct program *program, int replicas, size_t largest, const char *words)
{
    struct reason reason = {0};
    assert_true(stage_mail_fits(program, replicas, 0, &reason));
    assert_true(stage_mail_fits(program, replicas, largest, &reason));
    assert_false(stage_mail_fits(program, replicas, largest - 1, &reason));
    assert_string_equal(reason.text, words);
}

static void the_largest_message_is_named(void **state)
{
    (void)state;
    struct graph graph = {0};
    struct ranks ranks = exchange_of_two(&graph, 1, 0);
    push(&ranks.program[0], INSTRUCTION_SEND, "z", 1024, 0);
    push(&ranks.program[0], INSTRUCTION_SEND, "w", 16, 0);
    push(&ranks.program[0], INSTRUCTION_RECEIVE, "v", 1 << 20, 0);
    assert_largest(&ranks.program[0], 1, 4096, "'send z' is a message of 4.0 KiB, but ranks send at most "
                   "4.0 KiB at once");
    push(&ranks.program[1], INSTRUCTION_SEND, "parts", 512, 0);
    struct program *other = &ranks.program[1];
    other->instructions[other->count - 1].kind = INSTRUCTION_ALL_TO_ALL;
    assert_largest(other, 2, 1024, "'send parts' is a message of 1.0 KiB, but ranks send at most 1023 B "
                   "at once");
    ranks_free(&ranks);
}

static bool is_exchange(const struct instruction *at)
{
    return instruction_is_message(at) || instruction_is_collective(at);
}

static int random_exchange(const struct program *program, struct random *random)
{
    for (;;) {
        int i = (int)random_below(random, (uint32_t)program->count);
        if (is_exchange(&program->instructions[i])) return i;
    }
}

static void swap(struct program *program, int a, int b)
{
    struct instruction first = program->instructions[a];
    program->instructions[a] = program->instructions[b];
    program->instructions[b] = first;
}

/* An exchange of the same kind, with the same ranks, before i; -1. */
static int one_before(const struct program *program, int i)
{
    const struct instruction *at = &program->instructions[i];
    for (int k = i - 1; k >= 0; k--) {
        const struct instruction *other = &program->instructions[k];
        if (other->kind == at->kind && other->peer == at->peer && other->among_stages == at->among_stages)
            return k;
    }
    return -1;
}

/* In one of the programs an exchange is lost, has other bytes or another micro-batch, or changes places. */
static bool plant(struct ranks *ranks, struct random *random)
{
    struct program *program = &ranks->program[random_below(random, 4)];
    int i = random_exchange(program, random), other = one_before(program, i);
    int fault = (int)random_below(random, 4);
    struct instruction *at = &program->instructions[i];
    int sent = at->kind == INSTRUCTION_RECEIVE ? operand_y(at) : operand_x(at, 0);
    if (fault == 0) at->kind = INSTRUCTION_OP;
    if (fault == 1) program->values[sent].bytes += 4;
    if (fault == 2) at->micro_batch++;
    if (fault == 3 && other >= 0) swap(program, i, other);
    return fault != 3 || other >= 0;
}

static void planted_faults_are_found(void **state)
{
    (void)state;
    struct graph graph = net_graph(net_mixed, false);
    struct random random = random_open(11, PURPOSE_TEST, 0, 0);
    const struct cut_options cut = {.stages = 2, .schedule = PIPELINE_1F1B};
    struct ranks whole = compiled(&graph, 1, &cut, 3);
    for (int k = 0; k < FAULTS; k++) {
        struct ranks ranks = {.replicas = 2, .stages = 2};
        struct reason reason;
        for (int r = 0; r < 4; r++) ranks.program[r] = program_copy(&whole.program[r]);
            if (plant(&ranks, &random)) {
            assert_false(verified(&ranks, &reason));
            assert_non_null(strstr(reason.text, "rank "));
        } else {
            assert_true(verified(&ranks, &reason));
        }
        ranks_free(&ranks);
    }
    ranks_free(&whole);
    graph_free(&graph);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_ring_is_named),
        cmocka_unit_test(waits_are_part_of_a_ring),
        cmocka_unit_test(what_differs_is_named),
        cmocka_unit_test(compiled_programs_end),
        cmocka_unit_test(stages_never_wait_in_a_ring),
        cmocka_unit_test(stages_expect_what_others_send),
        cmocka_unit_test(the_largest_message_is_named),
        cmocka_unit_test(planted_faults_are_found),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
