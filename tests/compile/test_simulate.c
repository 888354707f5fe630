/* Steps of ranks on a model of time: pipelines of uniform stages take what their formulas say, and what
 * shares a device or meets takes its turn. */
#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/parallel/cluster.h"
#include "compile/parallel/pipeline_schedule.h"
#include "compile/time/cost.h"
#include "compile/time/simulate.h"
#include "tests/support/unit.h"

static void assert_seconds(double seconds, double expected)
{
    assert_true(fabs(seconds - expected) < 1e-9);
}

static void add(struct tasks *tasks, struct task task)
{
    *array_push(tasks->task, tasks->count) = task;
}

static void wait_for(struct tasks *tasks, int task, int before)
{
    struct task *at = &tasks->task[task];
    if (before >= 0) *array_push(at->waits, at->wait_count) = before;
}

/* Seconds of a stage for a micro-batch. */
struct uniform {
    enum pipeline_schedule schedule;
    int stages, micro_batches;
    double forward, data, weights;
};

static double block_seconds(const struct uniform *of, int stage, enum block_kind kind)
{
    double whole = pipeline_weights_apart(of->schedule, stage) ? of->data : of->data + of->weights;
    return kind == BLOCK_FORWARD ? of->forward : kind == BLOCK_WEIGHTS ? of->weights : whole;
}

/* Blocks of all stages, one queue each, no time between stages. */
static struct tasks uniform_tasks(const struct uniform *of)
{
    struct tasks tasks = {.ranks = of->stages, .queues = of->stages};
    int kinds = BLOCK_WEIGHTS + 1, m = of->micro_batches;
    int *at = memory_new((size_t)(of->stages * m * kinds), sizeof *at);
    struct pipeline_order *orders = pipeline_orders(of->schedule, of->stages, m);
    for (int s = 0; s < of->stages; s++) {
        const struct pipeline_block *blocks = orders[s].blocks;
        for (int b = 0; b < orders[s].count; b++) {
            at[(s * m + blocks[b].micro_batch) * kinds + (int)blocks[b].kind] = tasks.count;
            add(&tasks, (struct task){.rank = s, .queue = s, .computes = true, .meeting = -1,
                                      .seconds = block_seconds(of, s, blocks[b].kind)});
        }
    }
    for (int s = 0; s < of->stages; s++)
        for (int b = 0; b < m; b++) {
            const int *own = &at[(s * m + b) * kinds], *below = own - m * kinds, *above = own + m * kinds;
            if (s > 0) wait_for(&tasks, own[BLOCK_FORWARD], below[BLOCK_FORWARD]);
            wait_for(&tasks, own[BLOCK_BACKWARD],
                     s < of->stages - 1 ? above[BLOCK_BACKWARD] : own[BLOCK_FORWARD]);
        }
    free(at);
    pipeline_orders_free(orders, of->stages);
    return tasks;
}

static double uniform_seconds(const struct uniform *of)
{
    struct tasks tasks = uniform_tasks(of);
    struct simulation simulation = simulate(&tasks);
    double seconds = simulation.seconds, work = of->forward + of->data + of->weights;
    for (int s = 0; s < of->stages; s++)
        assert_seconds(simulation.busy[s], of->micro_batches * work);
    simulation_free(&simulation);
    tasks_free(&tasks);
    return seconds;
}

static void check_formulas(int stages, int micro_batches, double forward, double data, double weights)
{
    struct uniform of = {PIPELINE_GPIPE, stages, micro_batches, forward, data, weights};
    double work = forward + data + weights;
    assert_seconds(uniform_seconds(&of), (micro_batches + stages - 1) * work);
    of.schedule = PIPELINE_1F1B;
    assert_seconds(uniform_seconds(&of), (micro_batches + stages - 1) * work);
    of.schedule = PIPELINE_ZERO_BUBBLE;
    assert_seconds(uniform_seconds(&of),
                        micro_batches * work + (stages - 1) * (forward + data - weights));
}

static void pipelines_take_what_formulas_say(void **state)
{
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int micro_batches = stages; micro_batches <= 8 * stages; micro_batches *= 2) {
            check_formulas(stages, micro_batches, 1, 1, 1);
            check_formulas(stages, micro_batches, 3, 3, 2);
        }
}

static double simulated(struct tasks *tasks, double *busy)
{
    struct simulation simulation = simulate(tasks);
    double seconds = simulation.seconds;
    if (busy) *busy = simulation.busy[0];
    simulation_free(&simulation);
    tasks_free(tasks);
    return seconds;
}

/* Three seconds of work on one queue and one on another: the second ends after two, the first after four. */
static void streams_share_a_device(void **state)
{
    double busy;
    struct tasks tasks = {.ranks = 1, .queues = 3};
    add(&tasks, (struct task){.queue = 0, .computes = true, .seconds = 3, .meeting = -1});
    add(&tasks, (struct task){.queue = 1, .computes = true, .seconds = 1, .meeting = -1});
    add(&tasks, (struct task){.queue = 2, .computes = true, .seconds = 1, .meeting = -1});
    wait_for(&tasks, 2, 1);
    assert_seconds(simulated(&tasks, &busy), 5);
    assert_seconds(busy, 5);
}

/* Kernels that wait for their launch leave the device to others: both streams end after their own time. */
static void launches_take_no_device(void **state)
{
    struct tasks tasks = {.ranks = 1, .queues = 2};
    add(&tasks, (struct task){.queue = 0, .computes = true, .seconds = 3, .meeting = -1});
    add(&tasks, (struct task){.queue = 1, .computes = true, .delay = 4, .meeting = -1});
    add(&tasks, (struct task){.queue = 1, .computes = true, .delay = 1, .seconds = 2, .meeting = -1});
    double busy;
    assert_seconds(simulated(&tasks, &busy), 4 + 1 + 2);
    assert_seconds(busy, 7);
}

/* While an exchange of two seconds takes a quarter of the device, one and a half of work's four are done; a
 * copy takes nothing. */
static void exchanges_take_their_share(void **state)
{
    struct tasks tasks = {.ranks = 1, .queues = 3, .exchange_share = 0.25};
    add(&tasks, (struct task){.queue = 0, .computes = true, .seconds = 4, .meeting = -1});
    add(&tasks, (struct task){.queue = 1, .exchanges = true, .seconds = 2, .meeting = -1});
    add(&tasks, (struct task){.queue = 2, .seconds = 3, .meeting = -1});
    assert_seconds(simulated(&tasks, NULL), 2 + 2.5);
}

static void who_meets_waits_for_the_last(void **state)
{
    struct tasks tasks = {.ranks = 2, .queues = 2, .meetings = 1};
    add(&tasks, (struct task){.rank = 0, .queue = 0, .computes = true, .seconds = 1, .meeting = -1});
    add(&tasks, (struct task){.rank = 0, .queue = 0, .seconds = 2, .meeting = 0});
    add(&tasks, (struct task){.rank = 1, .queue = 1, .computes = true, .seconds = 5, .meeting = -1});
    add(&tasks, (struct task){.rank = 1, .queue = 1, .seconds = 3, .meeting = 0});
    assert_seconds(simulated(&tasks, NULL), 5 + 3);
}

static void a_ring_never_ends(void **state)
{
    struct tasks tasks = {.ranks = 2, .queues = 2};
    add(&tasks, (struct task){.rank = 0, .queue = 0, .seconds = 1, .meeting = -1});
    add(&tasks, (struct task){.rank = 1, .queue = 1, .seconds = 1, .meeting = -1});
    wait_for(&tasks, 0, 1);
    wait_for(&tasks, 1, 0);
    assert_true(isinf(simulated(&tasks, NULL)));
}

static double seconds_of(const struct cluster *cluster, enum instruction_kind kind, int64_t bytes)
{
    struct operand operands[] = {{OPERAND_X, ACCESS_READ, 0, 0}, {OPERAND_Y, ACCESS_WRITE, 0, 0}};
    struct value value = {.bytes = bytes};
    const struct program program = {.values = &value, .value_count = 1};
    const struct instruction at = {.kind = kind, .operands = operands, .operand_count = 2};
    return cluster_seconds(cluster, &program, &at);
}

static double sum_seconds(const struct cluster *cluster, int64_t bytes)
{
    return seconds_of(cluster, INSTRUCTION_ALL_REDUCE, bytes);
}

static double shares_seconds(const struct cluster *cluster, int64_t bytes)
{
    return seconds_of(cluster, INSTRUCTION_ALL_TO_ALL, bytes) +
           seconds_of(cluster, INSTRUCTION_ALL_GATHER, bytes);
}

/* Few bytes are added up sooner by the backend, many by copy engines. */
static void sums_and_shares(void **state)
{
    const struct machine gpu = machine_gpu(NULL, false);
    const struct cluster one = {.replicas = 1, .stages = 1, .hosts = 1, .machine = gpu};
    const struct cluster two = {.replicas = 2, .stages = 1, .hosts = 1, .machine = gpu};
    const struct cluster apart = {
        .replicas = 2, .stages = 1, .hosts = 2, .link_bytes_per_second = 50e9, .machine = gpu};
    assert_seconds(sum_seconds(&one, 1 << 20), 0);
    assert_true(sum_seconds(&two, 1 << 20) < shares_seconds(&two, 1 << 20));
    assert_true(sum_seconds(&two, 1 << 30) > shares_seconds(&two, 1 << 30));
    assert_true(sum_seconds(&apart, 1 << 30) > (1 << 30) / apart.link_bytes_per_second);
}

/* This rank's share of four lies elsewhere, and is not read where all others are. */
static void each_share_is_read_once(void **state)
{
    enum { ALL, OWN, SUM };
    struct operand operands[] = {{OPERAND_X, ACCESS_READ, 0, ALL}, {OPERAND_X, ACCESS_READ, 1, OWN},
                                 {OPERAND_Y, ACCESS_WRITE, 0, SUM}};
    struct value values[] = {{.kind = KIND_EXCHANGE, .bytes = 4096}, {.kind = KIND_EXCHANGE, .bytes = 1024},
                             {.kind = KIND_EXCHANGE, .bytes = 1024}};
    const struct program program = {.values = values, .value_count = 3};
    const struct instruction at = {.op = build_op("sum_ranks"), .operands = operands, .operand_count = 3};
    assert_true(cost_bytes(&program, &at) == 5 * 1024);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pipelines_take_what_formulas_say),
        cmocka_unit_test(streams_share_a_device),
        cmocka_unit_test(launches_take_no_device),
        cmocka_unit_test(exchanges_take_their_share),
        cmocka_unit_test(who_meets_waits_for_the_last),
        cmocka_unit_test(a_ring_never_ends),
        cmocka_unit_test(sums_and_shares),
        cmocka_unit_test(each_share_is_read_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
