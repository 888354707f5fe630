/* Divisions into stages: against all that there are, and of a network that comes with the program. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/memory/plan.h"
#include "compile/parallel/cluster.h"
#include "compile/parallel/cut.h"
#include "compile/parallel/partition.h"
#include "compile/parallel/partition_move.h"
#include "compile/parallel/partition_search.h"
#include "compile/passes.h"
#include "compile/time/cost.h"
#include "compile/time/simulate.h"
#include "graph/model.h"
#include "tests/support/unit.h"

#define INSTANCES 10000
#define BLOCKS_MAX 10
#define MICRO_BATCHES_MAX 9
#define STAGES_MAX 6

/* A random problem, its memory, and the least time of all divisions. */
struct instance {
    struct partition_problem problem;
    struct partition_block blocks[BLOCKS_MAX];
    int64_t activations[BLOCKS_MAX];
    struct partition_chunk chunks[2 * STAGES_MAX];
    double best;
};

/* The number of micro-batches of which the stage has activations at once. */
static int count_alive(const struct partition_problem *problem, int number)
{
    struct pipeline_order *orders =
        pipeline_orders(problem->schedule, problem->stages, problem->micro_batches);
    const struct pipeline_order *own = &orders[number];
    enum block_kind last = problem->schedule == PIPELINE_ZERO_BUBBLE ? BLOCK_WEIGHTS : BLOCK_BACKWARD;
    int alive = 0, most = 0;
    for (int i = 0; i < own->count; i++) {
        alive += (own->blocks[i].kind == BLOCK_FORWARD) - (own->blocks[i].kind == last);
        if (alive > most) most = alive;
    }
    pipeline_orders_free(orders, problem->stages);
    return most;
}

static int64_t stage_bytes(void *context, const struct partition_chunk *chunk, int number)
{
    const struct instance *of = context;
    const struct partition_problem *problem = &of->problem;
    int alive = count_alive(problem, number);
    int64_t bytes = 0;
    for (int i = chunk->first; i < chunk->end; i++)
        bytes += of->blocks[i].gradients + of->activations[i] * alive;
    return bytes;
}

static double below(struct random *random, uint32_t limit)
{
    return random_below(random, limit);
}

static void make(struct instance *of, struct random *random)
{
    *of = (struct instance){.best = INFINITY};
    int count = 1 + (int)below(random, BLOCKS_MAX), most = count < STAGES_MAX ? count : STAGES_MAX;
    for (int i = 0; i < count; i++) {
        of->activations[i] = (int64_t)below(random, 100);
        of->blocks[i] = (struct partition_block){
            .forward = below(random, 20), .data = below(random, 20), .weights = below(random, 20),
            .crossing = (int64_t)below(random, 100), .gradients = (int64_t)below(random, 300),
            .launches = below(random, 5),
        };
    }
    enum pipeline_schedule schedule = (enum pipeline_schedule)below(random, PIPELINE_SCHEDULES);
    if (pipeline_interleaves(schedule)) most = (count + 1) / 2;
    of->problem = (struct partition_problem){
        .blocks = of->blocks, .count = count, .stages = 1 + (int)below(random, (uint32_t)most),
        .replicas = 1 + (int)below(random, 4), .micro_batches = 1 + (int)below(random, MICRO_BATCHES_MAX),
        .schedule = schedule, .link = {below(random, 3), 1 + below(random, 30)},
        .bytes = stage_bytes, .context = of,
    };
    bool limited = below(random, 2) > 0 && !pipeline_interleaves(schedule);
    of->problem.limit = limited ? 1 + (int64_t)below(random, 2000) : 0;
}

/* The time of of->chunks by the formula of the header, or infinity where a stage does not fit. */
static double division_seconds(const struct instance *of)
{
    const struct partition_problem *problem = &of->problem;
    int last = partition_chunks(problem) - 1;
    double fill = 0, drain = 0, exchange = 0, replicas = problem->replicas;
    for (int n = 0; n <= last; n++) {
        const struct partition_chunk *at = &of->chunks[n];
        double f = 0, d = 0, w = 0, x = 0, gradients = 0;
        for (int i = at->first; i < at->end; i++) {
            const struct partition_block *block = &of->blocks[i];
            f += block->forward;
            d += block->data;
            w += block->weights;
            gradients += (double)block->gradients;
        }
        if (n < last)
            x = problem->link.seconds +
                (double)of->blocks[at->end - 1].crossing / problem->link.bytes_per_second;
        bool v = problem->schedule == PIPELINE_V, apart = v || problem->schedule == PIPELINE_ZERO_BUBBLE;
        double busy = (v && n != problem->stages - 1 ? 2 : 1) * (f + d + w);
        fill += f + d + (apart ? -w : w) + 2 * x;
        drain = fmax(drain, (problem->micro_batches - 1) * fmax(busy, x) + (apart ? 2 * w : 0));
        double whole = problem->link.seconds +
                       2 * (replicas - 1) / replicas * gradients / problem->link.bytes_per_second;
        if (gradients > 0 && replicas > 1)
            exchange = fmax(exchange, fmax(problem->link.seconds, whole - d - w));
        if (problem->limit > 0 && stage_bytes((void *)of, at, n) > problem->limit) return INFINITY;
    }
    return fill + drain + exchange;
}

/* Tries all chunks from `c` on, that begin with block `first`. */
static void try_all(struct instance *of, int c, int first)
{
    const struct partition_problem *problem = &of->problem;
    if (c == partition_chunks(problem)) {
        if (first == problem->count) of->best = fmin(of->best, division_seconds(of));
        return;
    }
    for (int end = first + 1; end <= problem->count; end++) {
        of->chunks[c] = (struct partition_chunk){first, end};
        try_all(of, c + 1, end);
    }
}

static void the_best_of_all_is_found(void **state)
{
    struct random random = random_open(5, PURPOSE_TEST, 0, 0);
    int found = 0, none = 0;
    for (int k = 0; k < INSTANCES; k++) {
        struct instance of;
        double seconds = 0;
        make(&of, &random);
        try_all(&of, 0, 0);
        bool any = partition_search(&of.problem, of.chunks, &seconds);
        assert_int_equal(any, isfinite(of.best));
        any ? found++ : none++;
        if (!any) continue;
        assert_true(fabs(seconds - of.best) <= 1e-9 * of.best);
        assert_true(fabs(division_seconds(&of) - of.best) <= 1e-9 * of.best);
    }
    assert_true(found > INSTANCES / 3 && none > INSTANCES / 50);
}

/* Tries all boundaries of chunks from `c` on; of->best: the least time of a step. */
static void try_boundaries(struct instance *of, const struct partition_sums *sums, int c)
{
    const struct partition_problem *problem = &of->problem;
    struct partition_chunk *at = &of->chunks[c];
    int last = partition_chunks(problem) - 1;
    at->first = c > 0 ? at[-1].end : 0;
    if (c == last) {
        at->end = problem->count;
        for (int k = 0; k <= last && problem->limit > 0; k++)
            if (stage_bytes(of, &of->chunks[k], k) > problem->limit) return;
        of->best = fmin(of->best, partition_step(sums, of->chunks));
        return;
    }
    for (at->end = at->first + 1; at->end < problem->count - (last - c - 1); at->end++)
        try_boundaries(of, sums, c + 1);
}

/* Moved boundaries are the best ones of two chunks; of more, in most cases. */
static void moved_boundaries_are_nearly_the_best(void **state)
{
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    int tried = 0, moved = 0, missed = 0;
    double more = 0;
    while (tried < INSTANCES / 2) {
        struct instance of;
        double seconds;
        make(&of, &random);
        if (of.problem.stages < 2 || !partition_search(&of.problem, of.chunks, &seconds)) continue;
        struct partition_sums sums = partition_sums_make(&of.problem);
        double before = partition_step(&sums, of.chunks);
        partition_move(&of.problem, of.chunks);
        seconds = partition_step(&sums, of.chunks);
        assert_true(seconds <= before);
        try_boundaries(&of, &sums, 0);
        double ratio = of.best > 0 ? seconds / of.best : 1;
        assert_true(ratio >= 1 - 1e-9 && (partition_chunks(&of.problem) > 2 || ratio <= 1.002));
        more = fmax(more, ratio);
        tried++;
        moved += seconds < before;
        missed += ratio > 1.002;
        partition_sums_free(&sums);
    }
    print_message("%d of %d moved, %d missed, by %.3f at most\n", moved, tried, missed, more);
    assert_true(moved > tried / 10 && missed < tried / 25);
}

/* Twelve blocks with a forward of one second and a backward of two, two micro-batches: if the first stage has
 * k of them, the second one's last backward ends at k + 2 * 3 (12 - k), and the first one's takes 2k more;
 * its own two end 4k after the second one's first, at k + 3 (12 - k). */
static void a_stage_that_others_wait_for_gets_less(void **state)
{
    struct partition_block blocks[12];
    const struct partition_problem problem = {
        .blocks = blocks, .count = 12, .stages = 2, .replicas = 1, .micro_batches = 2,
        .schedule = PIPELINE_1F1B, .link = {0, 1},
    };
    struct partition_chunk chunks[2];
    double seconds;
    for (int i = 0; i < 12; i++) blocks[i] = (struct partition_block){.forward = 1, .data = 2};
    assert_true(partition_search(&problem, chunks, &seconds));
    assert_int_equal(chunks[0].end, 6);
    struct partition_sums sums = partition_sums_make(&problem);
    assert_true(fabs(partition_step(&sums, chunks) - 54) < 1e-9);
    partition_move(&problem, chunks);
    assert_int_equal(chunks[0].end, 7);
    assert_true(fabs(partition_step(&sums, chunks) - 51) < 1e-9);
    partition_sums_free(&sums);
}

/* The modelled time and the memory of each stage of ResNet-50, on GPUs. */
struct measured {
    double seconds, slowest;         /* of all stages together; of one */
    int64_t bytes[STAGES_MAX];
};

static struct measured measure(const struct graph *graph, int stages, int64_t limit)
{
    struct compile_options options = {
        .lower = {.batch = 128, .micro_batches = 4, .training = true, .storage = F16},
        .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)},
        .cut = {.stages = stages, .schedule = PIPELINE_1F1B, .limit = limit},
    };
    struct measured measured = {0};
    for (int s = 0; s < stages; s++) {
        struct program program;
        options.cut.stage = s;
        assert_int_equal(passes_lower(graph, &options, &program), OK);
        double seconds = cost_program(&program);
        measured.seconds += seconds;
        measured.slowest = fmax(measured.slowest, seconds);
        measured.bytes[s] = plan_live_peak(&program);
        program_free(&program);
    }
    return measured;
}

static void stages_of_a_network_are_balanced(void **state)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options model = {.arch = "resnet50", .folders = folders, .dropout = -1};
    struct graph graph;
    assert_int_equal(model_load(&model, &graph), OK);
    struct measured two = measure(&graph, 2, 0), four = measure(&graph, 4, 0);
    assert_true(two.slowest * 2 <= 1.06 * two.seconds);
    assert_true(four.slowest * 4 <= 1.5 * four.seconds);     /* nobody waits for the first one's last work */
    int64_t limit = two.bytes[0] / 10 * 8;
    struct measured less = measure(&graph, 2, limit);
    assert_true(two.bytes[1] < limit && less.bytes[0] <= limit && less.bytes[1] <= limit);
    assert_true(less.slowest > two.slowest);
    struct measured least = measure(&graph, 2, 1);       /* none fits */
    assert_true(least.slowest <= 1.1 * two.slowest);
    graph_free(&graph);
}

static double seconds_of(const void *context, int stage, int i)
{
    const struct program *const *programs = context;
    const struct cluster cluster = {
        .replicas = 1, .stages = 2, .hosts = 1, .machine = programs[stage]->machine};
    return cluster_seconds(&cluster, programs[stage], &programs[stage]->instructions[i]);
}

/* The share of the time of a step in two stages on GPUs in which a stage has nothing to compute. */
static double idle_share(const struct graph *graph, int micro_batches, enum pipeline_schedule schedule)
{
    struct program programs[2];
    const struct program *both[] = {&programs[0], &programs[1]};
    for (int s = 0; s < 2; s++) {
        const struct compile_options options = {
            .lower = {.batch = 256, .micro_batches = micro_batches, .training = true, .storage = F16},
            .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)},
            .cut = {.stages = 2, .stage = s, .schedule = schedule},
        };
        const struct memory_choice choice = {.fuse_limit = INT64_MAX, .streams = 2};
        assert_int_equal(passes_lower(graph, &options, &programs[s]), OK);
        assert_int_equal(passes_memory(&options, &choice, &programs[s]), OK);
    }
    struct tasks tasks = simulate_tasks(both, 2, 0, seconds_of, both);
    struct simulation simulation = simulate(&tasks);
    double share = 1 - (simulation.busy[0] + simulation.busy[1]) / (2 * simulation.seconds);
    simulation_free(&simulation);
    tasks_free(&tasks);
    for (int s = 0; s < 2; s++) program_free(&programs[s]);
    return share;
}

/* Seconds of a step whose nodes are in those stages of two, by simulation of the programs. */
static double step_seconds(const struct program *whole, const int *stage)
{
    struct program programs[2];
    const struct program *both[] = {&programs[0], &programs[1]};
    for (int s = 0; s < 2; s++) {
        const struct cut_options options = {.stages = 2, .stage = s, .schedule = PIPELINE_ZERO_BUBBLE};
        programs[s] = cut_stage(whole, &options, stage);
        assert_int_equal(streams_assign(&programs[s], 2, BY_MICRO_BATCH), OK);
    }
    struct tasks tasks = simulate_tasks(both, 2, whole->machine.launch, seconds_of, both);
    struct simulation simulation = simulate(&tasks);
    double seconds = simulation.seconds;
    simulation_free(&simulation);
    tasks_free(&tasks);
    for (int s = 0; s < 2; s++) program_free(&programs[s]);
    return seconds;
}

/* The simulated time of the division, relative to the least of all divisions. */
static double beyond_the_best(const char *arch, int micro_batches)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options model = {.arch = arch, .folders = folders, .dropout = -1};
    const struct lower_options options = {.batch = 64 * micro_batches, .micro_batches = micro_batches,
                                          .training = true, .storage = F16};
    const struct partition_options how = {.stages = 2, .schedule = PIPELINE_ZERO_BUBBLE};
    struct graph graph;
    struct program program;
    assert_int_equal(model_load(&model, &graph), OK);
    assert_int_equal(lower(&graph, &options, &(struct kernel_options){0}, &program), OK);
    int *stage = memory_new((size_t)graph.count, sizeof *stage);
    int *dp = memory_new((size_t)graph.count, sizeof *dp);
    double modelled;
    assert_int_equal(partition(&program, &how, dp, stage, &modelled), OK);
    free(dp);
    double found = step_seconds(&program, stage), best = found;
    for (int n = 0; n < graph.count; n++) stage[n] = 1;
    stage[0] = 0;
    for (int n = 1; n < graph.count - 1; n++) {
        stage[n] = 0;
        best = fmin(best, step_seconds(&program, stage));
    }
    print_message("%s, %d micro-batches: %.2f ms, the best %.2f\n", arch, micro_batches, 1e3 * found,
                  1e3 * best);
    free(stage);
    program_free(&program);
    graph_free(&graph);
    return found / best;
}

static void no_other_division_of_a_network_is_much_faster(void **state)
{
    assert_true(beyond_the_best("resnet18", 2) < 1.03);
    assert_true(beyond_the_best("resnet34", 4) < 1.02);
    assert_true(beyond_the_best("vgg16", 2) < 1.02);
    assert_true(beyond_the_best("googlenet", 2) < 1.03);
}

/* Weight gradients fill the time in which a stage waits, and do not take it from what others wait for: with M
 * micro-batches 1 / (3 M + 1) of the time is left if they take a third, and messages take some. */
static void weight_gradients_fill_the_gaps(void **state)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options model = {.arch = "vgg16", .folders = folders, .dropout = -1};
    struct graph graph;
    assert_int_equal(model_load(&model, &graph), OK);
    assert_true(idle_share(&graph, 2, PIPELINE_ZERO_BUBBLE) < 0.22);
    assert_true(idle_share(&graph, 4, PIPELINE_ZERO_BUBBLE) < 0.18);
    graph_free(&graph);
}

/* While the last stage waits for a micro-batch, it works on the first layers of another. */
static void stages_with_two_chunks_wait_less(void **state)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    static const char *const names[] = {"vgg16", "resnet18", "resnet50"};
    for (int n = 0; n < 3; n++) {
        const struct model_options model = {.arch = names[n], .folders = folders, .dropout = -1};
        struct graph graph;
        assert_int_equal(model_load(&model, &graph), OK);
        double one = idle_share(&graph, 2, PIPELINE_ZERO_BUBBLE), two = idle_share(&graph, 2, PIPELINE_V);
        print_message("%s: idle %.1f %%, with two chunks %.1f %%\n", names[n], 100 * one, 100 * two);
        assert_true(two < 0.95 * one);
        graph_free(&graph);
    }
}

/* However small the network: a boundary does not move past the next one. */
static void no_stage_is_left_without_layers(void **state)
{
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options model = {.arch = "cifar10_quick", .folders = folders, .dropout = -1};
    const struct lower_options options = {.batch = 8, .micro_batches = 2, .training = true, .storage = F16};
    struct graph graph;
    assert_int_equal(model_load(&model, &graph), OK);
    for (enum pipeline_schedule schedule = 0; schedule < PIPELINE_SCHEDULES; schedule++)
        for (int stages = 2; stages <= 4; stages++) {
            const struct cut_options how = {.stages = stages, .schedule = schedule};
            struct program program;
            int chunks = 1;
            assert_int_equal(lower(&graph, &options, &(struct kernel_options){0}, &program), OK);
            assert_int_equal(cut(&program, &how), OK);
            for (int node = 1; node < graph.count; node++)
                chunks += program.node_stages[node] != program.node_stages[node - 1];
            assert_int_equal(chunks, pipeline_chunks(schedule, stages));
            program_free(&program);
        }
    graph_free(&graph);
}

/* Ops that later passes fuse with the one in front stay in its stage: results would differ in their last
 * bits. */
static void what_is_fused_stays_in_one_stage(void **state)
{
    (void)state;
    struct graph graph;
    struct program program;
    static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};
    const struct model_options model = {.arch = "vit_tiny_patch16_224", .folders = folders, .dropout = -1};
    const struct lower_options options = {.batch = 2, .micro_batches = 1, .training = true, .storage = F16};
    int sums = 0, ends = 0;
    assert_int_equal(model_load(&model, &graph), OK);
    assert_int_equal(lower(&graph, &options, &(struct kernel_options){0}, &program), OK);
    bool *may_end = memory_new((size_t)graph.count, sizeof *may_end);
    partition_ends(&program, may_end);
    for (int node = 1; node < graph.count; node++) {
        bool sum = strcmp(graph.nodes[node].op->name, "add") == 0;
        assert_false(sum && may_end[node - 1]);
        sums += sum;
        ends += may_end[node];
    }
    assert_int_equal(sums, 24);
    assert_true(ends >= 24);
    free(may_end);
    program_free(&program);
    graph_free(&graph);
}

/* Every block is there once, forward before backward, and micro-batches of a chunk in order. */
static void check_blocks(int stages, int stage, int micro_batches)
{
    struct pipeline_order *orders = pipeline_orders(PIPELINE_V, stages, micro_batches);
    const struct pipeline_block *blocks = orders[stage].blocks;
    int next[BLOCK_WEIGHTS + 1][2 * STAGES_MAX] = {{0}}, chunks = pipeline_chunks(PIPELINE_V, stages);
    for (int i = 0; i < orders[stage].count; i++) {
        int k = blocks[i].micro_batch, c = blocks[i].chunk, kind = (int)blocks[i].kind;
        assert_int_equal(pipeline_stage(PIPELINE_V, stages, c), stage);
        assert_int_equal(next[kind][c]++, k);
        assert_true(kind == BLOCK_FORWARD || next[kind - 1][c] > k);
        assert_true(next[BLOCK_FORWARD][0] - next[BLOCK_BACKWARD][0] < 2 * stages);
    }
    for (int c = 0; c < chunks; c++)
        for (int kind = BLOCK_FORWARD; kind <= BLOCK_WEIGHTS; kind++) {
            bool there = pipeline_stage(PIPELINE_V, stages, c) == stage;
            there = there && (kind < BLOCK_WEIGHTS || pipeline_weights_apart(PIPELINE_V, c));
            assert_int_equal(next[kind][c], there ? micro_batches : 0);
        }
    pipeline_orders_free(orders, stages);
}

static void blocks_of_two_chunks_are_complete(void **state)
{
    for (int stages = 1; stages <= STAGES_MAX; stages++)
        for (int stage = 0; stage < stages; stage++)
            for (int m = 1; m <= MICRO_BATCHES_MAX; m++) check_blocks(stages, stage, m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_best_of_all_is_found),
        cmocka_unit_test(moved_boundaries_are_nearly_the_best),
        cmocka_unit_test(a_stage_that_others_wait_for_gets_less),
        cmocka_unit_test(stages_of_a_network_are_balanced),
        cmocka_unit_test(no_other_division_of_a_network_is_much_faster),
        cmocka_unit_test(weight_gradients_fill_the_gaps),
        cmocka_unit_test(stages_with_two_chunks_wait_less),
        cmocka_unit_test(no_stage_is_left_without_layers),
        cmocka_unit_test(what_is_fused_stays_in_one_stage),
        cmocka_unit_test(blocks_of_two_chunks_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
