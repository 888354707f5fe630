/* simulate.c: a discrete-event simulation of queues of tasks: a task starts at the head of its queue when
 * everything that it waits for has ended. Tasks that compute on a rank at the same time share the device
 * equally. */
#include "compile/time/simulate.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#define AT_ONCE 1e-12        /* times that differ by less than this fraction are equal */

/* The state of a simulation. */
struct simulator {
    const struct tasks *tasks;
    int *head;               /* by queue: the first task not ended; -1 */
    int *next;               /* by task: the next one in its queue; -1 */
    double *delay, *left;    /* by task: seconds before work, of work */
    bool *ended, *arrived, *begun;
    int *missing;            /* by meeting: tasks that have not arrived */
    double *longest;         /* by meeting */
    int *running, running_count;
    int *computing;          /* by rank: tasks that do so now */
    bool *busy, *exchanging; /* by rank: with what computes, after its delay or not; with an exchange */
};

static struct simulator simulator_open(const struct tasks *tasks)
{
    size_t count = (size_t)tasks->count, ranks = (size_t)tasks->ranks;
    struct simulator sim = {
        .tasks = tasks,
        .head = memory_new((size_t)tasks->queues, sizeof(int)), .next = memory_new(count, sizeof(int)),
        .delay = memory_new(count, sizeof(double)), .left = memory_new(count, sizeof(double)),
        .busy = memory_new(ranks, sizeof(bool)), .ended = memory_new(count, sizeof(bool)),
        .arrived = memory_new(count, sizeof(bool)), .begun = memory_new(count, sizeof(bool)),
        .missing = memory_new((size_t)tasks->meetings, sizeof(int)),
        .longest = memory_new((size_t)tasks->meetings, sizeof(double)),
        .running = memory_new((size_t)tasks->queues, sizeof(int)),
        .computing = memory_new(ranks, sizeof(int)), .exchanging = memory_new(ranks, sizeof(bool)),
    };
    for (int q = 0; q < tasks->queues; q++) sim.head[q] = -1;
    for (int i = tasks->count - 1; i >= 0; i--) {
        const struct task *at = &tasks->task[i];
        sim.next[i] = sim.head[at->queue];
        sim.head[at->queue] = i;
        sim.delay[i] = at->delay;
        sim.left[i] = at->seconds;
        if (at->meeting < 0) continue;
        sim.missing[at->meeting]++;
        sim.longest[at->meeting] = fmax(sim.longest[at->meeting], at->seconds);
    }
    return sim;
}

static void simulator_close(struct simulator *sim)
{
    free(sim->next);
    free(sim->delay);
    free(sim->left);
    free(sim->busy);
    free(sim->ended);
    free(sim->arrived);
    free(sim->begun);
    free(sim->missing);
    free(sim->longest);
    free(sim->running);
    free(sim->computing);
    free(sim->exchanging);
}

static bool is_ready(const struct simulator *sim, const struct task *at)
{
    for (int w = 0; w < at->wait_count; w++)
        if (!sim->ended[at->waits[w]]) return false;
    return true;
}

/* A task at the head of its queue arrives at its meeting, and begins when all others have arrived. */
static void begin_ready(struct simulator *sim)
{
    const struct tasks *tasks = sim->tasks;
    for (int q = 0; q < tasks->queues; q++) {
        int i = sim->head[q];
        if (i < 0 || sim->arrived[i] || !is_ready(sim, &tasks->task[i])) continue;
        sim->arrived[i] = true;
        if (tasks->task[i].meeting >= 0) sim->missing[tasks->task[i].meeting]--;
    }
    for (int q = 0; q < tasks->queues; q++) {
        int i = sim->head[q];
        if (i < 0 || !sim->arrived[i] || sim->begun[i]) continue;
        int meeting = tasks->task[i].meeting;
        if (meeting >= 0 && sim->missing[meeting] > 0) continue;
        if (meeting >= 0) sim->left[i] = sim->longest[meeting];
        sim->begun[i] = true;
        sim->running[sim->running_count++] = i;
    }
}

static void count_computing(struct simulator *sim)
{
    for (int r = 0; r < sim->tasks->ranks; r++) {
        sim->computing[r] = 0;
        sim->busy[r] = sim->exchanging[r] = false;
    }
    for (int k = 0; k < sim->running_count; k++) {
        const struct task *at = &sim->tasks->task[sim->running[k]];
        if (at->computes) sim->busy[at->rank] = true;
        if (at->exchanges) sim->exchanging[at->rank] = true;
        if (at->computes && sim->delay[sim->running[k]] == 0) sim->computing[at->rank]++;
    }
}

/* Seconds until the next end of a running task or of its delay. */
static double until_end(const struct simulator *sim, int i)
{
    const struct task *at = &sim->tasks->task[i];
    if (sim->delay[i] > 0) return sim->delay[i];
    if (!at->computes) return sim->left[i];
    double free = sim->exchanging[at->rank] ? 1 - sim->tasks->exchange_share : 1;
    return sim->left[i] * sim->computing[at->rank] / free;
}

/* Advances to the next end; returns the elapsed seconds. */
static double advance(struct simulator *sim)
{
    double step = INFINITY;
    for (int k = 0; k < sim->running_count; k++) step = fmin(step, until_end(sim, sim->running[k]));
    int kept = 0;
    for (int k = 0; k < sim->running_count; k++) {
        int i = sim->running[k];
        double end = until_end(sim, i);
        bool over = end <= step * (1 + AT_ONCE), delayed = sim->delay[i] > 0;
        double *left = delayed ? &sim->delay[i] : &sim->left[i];
        sim->ended[i] = over && !delayed;
        *left = over ? 0 : *left * (1 - step / end);
        if (sim->ended[i]) sim->head[sim->tasks->task[i].queue] = sim->next[i];
        else sim->running[kept++] = i;
    }
    sim->running_count = kept;
    return step;
}

struct simulation simulate(const struct tasks *tasks)
{
    struct simulator sim = simulator_open(tasks);
    struct simulation simulation = {.busy = memory_new((size_t)tasks->ranks, sizeof(double))};
    for (;;) {
        begin_ready(&sim);
        if (sim.running_count == 0) break;
        count_computing(&sim);
        double step = advance(&sim);
        simulation.seconds += step;
        for (int r = 0; r < tasks->ranks; r++)
            if (sim.busy[r]) simulation.busy[r] += step;
    }
    for (int q = 0; q < tasks->queues; q++)
        if (sim.head[q] >= 0) simulation.seconds = INFINITY;
    simulation.head = sim.head;
    simulator_close(&sim);
    return simulation;
}

void simulation_free(struct simulation *simulation)
{
    free(simulation->busy);
    free(simulation->head);
    *simulation = (struct simulation){0};
}

static bool computes(const struct instruction *at)
{
    return at->kind == INSTRUCTION_OP || at->kind == INSTRUCTION_UPDATE || at->kind == INSTRUCTION_MEASURE;
}

static int stream_count(const struct program *program)
{
    return program->streams > 1 ? program->streams : 1;
}

/* Messages are sent before they are received. */
static void wait_for_messages(struct tasks *tasks, const struct program *const *programs, const int *first,
                              int from, int to)
{
    int sent = -1, received = -1;
    for (;;) {
        sent = program_next_message(programs[from], INSTRUCTION_SEND, to, sent + 1);
        received = program_next_message(programs[to], INSTRUCTION_RECEIVE, from, received + 1);
        if (sent < 0 || received < 0) return;
        struct task *task = &tasks->task[first[to] + received];
        *array_push(task->waits, task->wait_count) = first[from] + sent;
    }
}

struct tasks simulate_tasks(const struct program *const *programs, int stages, double delay,
                            simulate_seconds *seconds, const void *context)
{
    struct tasks tasks = {.ranks = stages};
    int *first = memory_new((size_t)stages, sizeof *first);
    for (int s = 0; s < stages; s++) {
        int gathers = 0;
        first[s] = tasks.count;
        for (int i = 0; i < programs[s]->count; i++) {
            const struct instruction *at = &programs[s]->instructions[i];
            struct task *task = array_push(tasks.task, tasks.count);
            double whole = seconds(context, s, i), launch = computes(at) ? fmin(whole, delay) : 0;
            *task = (struct task){.rank = s, .queue = tasks.queues + at->stream, .computes = computes(at),
                                  .exchanges = instruction_is_collective(at),
                                  .delay = launch, .seconds = whole - launch, .meeting = -1};
            for (int w = 0; w < at->wait_count; w++)
                *array_push(task->waits, task->wait_count) = first[s] + at->waits[w];
            if (at->among_stages) task->meeting = gathers++;
        }
        tasks.queues += stream_count(programs[s]);
        tasks.meetings = gathers;
    }
    for (int to = 0; to < stages; to++)
        for (int from = 0; from < stages; from++) wait_for_messages(&tasks, programs, first, from, to);
    free(first);
    return tasks;
}

void tasks_free(struct tasks *tasks)
{
    for (int i = 0; i < tasks->count; i++) free(tasks->task[i].waits);
    free(tasks->task);
    *tasks = (struct tasks){0};
}
