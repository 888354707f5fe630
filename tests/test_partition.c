/* Divisions into stages: against all that there are, and of a network that comes with the program. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/parallel/cluster.h"
#include "compile/time/cost.h"
#include "compile/parallel/cut.h"
#include "compile/parallel/partition.h"
#include "compile/parallel/partition_move.h"
#include "compile/parallel/partition_search.h"
#include "compile/passes.h"
#include "compile/memory/plan.h"
#include "compile/time/simulate.h"
#include "graph/model.h"
#include "tests/unit.h"

#define INSTANCES 10000
#define BLOCKS_MAX 10
#define MICRO_BATCHES_MAX 9
#define RANKS_MAX 6

/* A random problem, its memory, and the least time of all divisions. */
struct instance {
    struct partition_problem problem;
    struct partition_block blocks[RANKS_MAX][BLOCKS_MAX];
    const struct partition_block *by_replicas[RANKS_MAX];
    int64_t activations[BLOCKS_MAX];
    struct partition_stage stages[RANKS_MAX];
    double best;
};

/* Of how many micro-batches the stage has activations at once. */
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

static int64_t stage_bytes(void *context, const struct partition_stage *stage, int number)
{
    const struct instance *of = context;
    const struct partition_problem *problem = &of->problem;
    int alive = count_alive(problem, number);
    int64_t bytes = 0;
    for (int i = stage->first; i < stage->end; i++)
        bytes += of->blocks[0][i].gradients + of->activations[i] * alive / stage->replicas;
    return bytes;
}

static double below(struct random *random, uint32_t limit)
{
    return random_below(random, limit);
}

static void make(struct instance *of, struct random *random)
{
    *of = (struct instance){.best = INFINITY};
    int count = 1 + (int)below(random, BLOCKS_MAX), ranks = 1 + (int)below(random, RANKS_MAX);
    int most = ranks < count ? ranks : count;
    for (int i = 0; i < count; i++) {
        of->activations[i] = (int64_t)below(random, 100);
        for (int r = 0; r < RANKS_MAX; r++) {
            of->blocks[r][i] = r ? of->blocks[0][i] : (struct partition_block){
                .forward = below(random, 20), .data = below(random, 20), .weights = below(random, 20),
                .crossing = (int64_t)below(random, 100), .gradients = (int64_t)below(random, 300),
                .launches = below(random, 5),
            };
            of->blocks[r][i].forward = of->blocks[0][i].forward / (r + 1) + 0.1 * r;
            of->blocks[r][i].weights = of->blocks[0][i].weights / (r + 1) + 0.1 * r;
        }
    }
    for (int r = 0; r < RANKS_MAX; r++) of->by_replicas[r] = of->blocks[r];
    of->problem = (struct partition_problem){
        .blocks = of->by_replicas, .count = count, .replicas_max = 1 + (int)below(random, (uint32_t)ranks),
        .stages = 1 + (int)below(random, (uint32_t)most), .ranks = ranks,
        .side_by_side = 1 + (int)below(random, 2), .micro_batches = 1 + (int)below(random, MICRO_BATCHES_MAX),
        .schedule = (enum pipeline_schedule)below(random, 3),
        .message = {below(random, 3), 1 + below(random, 30)},
        .exchange = {below(random, 3), 1 + below(random, 100)},
        .bytes = stage_bytes, .context = of,
        .limit = below(random, 2) > 0 ? 1 + (int64_t)below(random, 2000) : 0,
    };
}

/* The time of of->stages by the formula of the header, or infinity where a stage does not fit. */
static double division_seconds(const struct instance *of)
{
    const struct partition_problem *problem = &of->problem;
    double fill = 0, drain = 0, exchange = 0;
    for (int s = 0; s < problem->stages; s++) {
        const struct partition_stage *at = &of->stages[s];
        double f = 0, d = 0, w = 0, x = 0, gradients = 0;
        for (int i = at->first; i < at->end; i++) {
            const struct partition_block *block = &of->blocks[at->replicas - 1][i];
            f += block->forward;
            d += block->data;
            w += block->weights;
            gradients += (double)block->gradients;
        }
        if (s < problem->stages - 1)
            x = problem->message.seconds + (double)of->blocks[0][at->end - 1].crossing /
                fmin(at->replicas, at[1].replicas) / problem->message.bytes_per_second;
        bool apart = problem->schedule == PIPELINE_ZERO_BUBBLE;
        fill += f + d + (apart ? -w : w) + 2 * x;
        drain = fmax(drain, (problem->micro_batches - 1) * fmax(f + d + w, x) + (apart ? 2 * w : 0));
        double ranks = at->replicas * problem->side_by_side;
        double whole = problem->exchange.seconds +
                       2 * (ranks - 1) / ranks * gradients / problem->exchange.bytes_per_second;
        if (gradients > 0 && ranks > 1)
            exchange = fmax(exchange, fmax(problem->exchange.seconds, whole - d - w));
        if (problem->limit > 0 && stage_bytes((void *)of, at, s) > problem->limit) return INFINITY;
    }
    return fill + drain + exchange;
}

/* Tries all stages from `s` on, that begin with block `first`, on so many ranks. */
static void try_all(struct instance *of, int s, int first, int ranks)
{
    const struct partition_problem *problem = &of->problem;
    if (s == problem->stages) {
        if (first == problem->count && ranks == 0) of->best = fmin(of->best, division_seconds(of));
        return;
    }
    for (int end = first + 1; end <= problem->count; end++)
        for (int replicas = 1; replicas <= problem->replicas_max && replicas <= ranks; replicas++) {
            of->stages[s] = (struct partition_stage){first, end, replicas};
            try_all(of, s + 1, end, ranks - replicas);
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
        try_all(&of, 0, 0, of.problem.ranks);
        bool any = partition_search(&of.problem, of.stages, &seconds);
        assert_int_equal(any, isfinite(of.best));
        any ? found++ : none++;
        if (!any) continue;
        assert_true(fabs(seconds - of.best) <= 1e-9 * of.best);
        assert_true(fabs(division_seconds(&of) - of.best) <= 1e-9 * of.best);
    }
    assert_true(found > INSTANCES / 3 && none > INSTANCES / 50);
}

/* Tries all boundaries of stages from `s` on, whose replicas stay; of->best: the least time of a step. */
static void try_boundaries(struct instance *of, const struct partition_sums *sums, int s)
{
    const struct partition_problem *problem = &of->problem;
    struct partition_stage *at = &of->stages[s];
    at->first = s > 0 ? at[-1].end : 0;
    if (s == problem->stages - 1) {
        at->end = problem->count;
        for (int k = 0; k < problem->stages && problem->limit > 0; k++)
            if (stage_bytes(of, &of->stages[k], k) > problem->limit) return;
        of->best = fmin(of->best, partition_step(sums, of->stages));
        return;
    }
    for (at->end = at->first + 1; at->end < problem->count - (problem->stages - s - 2); at->end++)
        try_boundaries(of, sums, s + 1);
}

/* Of two stages, moved boundaries are the best; of more, in most cases. */
static void moved_boundaries_are_nearly_the_best(void **state)
{
    struct random random = random_open(6, PURPOSE_TEST, 0, 0);
    int tried = 0, moved = 0, missed = 0;
    double more = 0;
    while (tried < INSTANCES / 2) {
        struct instance of;
        double seconds;
        make(&of, &random);
        if (of.problem.stages < 2 || !partition_search(&of.problem, of.stages, &seconds)) continue;
        struct partition_sums sums = partition_sums_make(&of.problem);
        double before = partition_step(&sums, of.stages);
        partition_move(&of.problem, of.stages);
        seconds = partition_step(&sums, of.stages);
        assert_true(seconds <= before);
        try_boundaries(&of, &sums, 0);
        double ratio = of.best > 0 ? seconds / of.best : 1;
        assert_true(ratio >= 1 - 1e-9 && (of.problem.stages > 2 || ratio <= 1.002));
        more = fmax(more, ratio);
        tried++;
        moved += seconds < before;
        missed += ratio > 1.002;
        partition_sums_free(&sums);
    }
    print_message("%d of %d moved, %d missed, by %.3f at most\n", moved, tried, missed, more);
    assert_true(moved > tried / 10 && missed < tried / 50);
}

/* Twelve blocks with a forward of one second and a backward of two, two micro-batches: if the first stage has
 * k of them, the second one's last backward ends at k + 2 * 3 (12 - k), and the first one's takes 2k more;
 * its own two end 4k after the second one's first, at k + 3 (12 - k). */
static void a_stage_that_others_wait_for_gets_less(void **state)
{
    struct partition_block blocks[12];
    const struct partition_block *const by_replicas[] = {blocks};
    const struct partition_problem problem = {
        .blocks = by_replicas, .count = 12, .replicas_max = 1, .stages = 2, .ranks = 2, .side_by_side = 1,
        .micro_batches = 2, .schedule = PIPELINE_1F1B, .message = {0, 1}, .exchange = {0, 1},
    };
    struct partition_stage stages[2];
    double seconds;
    for (int i = 0; i < 12; i++) blocks[i] = (struct partition_block){.forward = 1, .data = 2};
    assert_true(partition_search(&problem, stages, &seconds));
    assert_int_equal(stages[0].end, 6);
    struct partition_sums sums = partition_sums_make(&problem);
    assert_true(fabs(partition_step(&sums, stages) - 54) < 1e-9);
    partition_move(&problem, stages);
    assert_int_equal(stages[0].end, 7);
    assert_true(fabs(partition_step(&sums, stages) - 51) < 1e-9);
    partition_sums_free(&sums);
}

/* The modelled time and the memory of each stage of ResNet-50, on GPUs. */
struct measured {
    double seconds, slowest;         /* of all stages together; of one */
    int64_t bytes[RANKS_MAX];
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
    assert_true(least.slowest == two.slowest);
    graph_free(&graph);
}

static double seconds_of(const void *context, int stage, int i)
{
    const struct program *const *programs = context;
    const struct cluster cluster = {
        .replicas = 1, .stages = 2, .hosts = 1, .machine = programs[stage]->machine};
    return cluster_seconds(&cluster, programs[stage], &programs[stage]->instructions[i]);
}

/* Of a step in two stages on GPUs, the share of the time that a stage has nothing to compute. */
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

/* Of a step whose nodes are in those stages of two, by simulation of the programs. */
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
    assert_int_equal(partition(&program, &how, dp, stage, NULL), OK);
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

/* Every block is there once, forward before backward, and micro-batches of a chunk in order. */
static void check_blocks(int stages, int stage, int micro_batches)
{
    struct pipeline_order *orders = pipeline_orders(PIPELINE_V, stages, micro_batches);
    const struct pipeline_block *blocks = orders[stage].blocks;
    int next[BLOCK_WEIGHTS + 1][2 * RANKS_MAX] = {{0}}, chunks = pipeline_chunks(PIPELINE_V, stages);
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
    for (int stages = 1; stages <= RANKS_MAX; stages++)
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
        cmocka_unit_test(blocks_of_two_chunks_are_complete),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
