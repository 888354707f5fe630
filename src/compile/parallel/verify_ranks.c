/* verify_ranks.c: simulates the programs of all ranks together, independently of how they were made.
 *
 * A rank's streams are queues. An instruction ends when it is at the head of its queue, everything that it
 * waits for has ended, and, if it is an exchange, its partners have reached theirs. The nth message from one
 * stage to another matches the nth receive there; so does the nth collective of a group. */
#include "compile/parallel/verify_ranks.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "compile/time/simulate.h"

/* A rank's collectives of a group, in order. */
struct collectives {
    int *at, count;
};

struct verifying {
    const struct program *const *programs;
    int stages, ranks;
    bool streams;            /* of each rank several; otherwise what it sends is buffered */
    struct tasks tasks;      /* instructions of all ranks, which take no time */
    int *first;              /* by rank: its first task */
    struct collectives (*collectives)[2];   /* by rank, and whether among stages */
    struct reason *reason;
};

static const struct instruction *instruction_at(const struct verifying *v, int task)
{
    int rank = v->tasks.task[task].rank;
    return &v->programs[rank]->instructions[task - v->first[rank]];
}

static const char *name_at(const struct verifying *v, int task) { return instruction_at(v, task)->name; }

/* The value that an exchange transfers. */
static const struct value *value_at(const struct verifying *v, int task)
{
    const struct instruction *exchange = instruction_at(v, task);
    int id = exchange->kind == INSTRUCTION_RECEIVE ? operand_y(exchange) : operand_x(exchange, 0);
    return &v->programs[v->tasks.task[task].rank]->values[id];
}

/* Matching exchanges must agree: messages in their value, collectives in their bytes. */
static bool agree(const struct verifying *v, int a, int b)
{
    const struct value *left = value_at(v, a), *right = value_at(v, b);
    const struct instruction *one = instruction_at(v, a), *two = instruction_at(v, b);
    bool same = left->bytes == right->bytes && left->dtype == right->dtype &&
                strcmp(left->name, right->name) == 0;
    same = same && (instruction_is_message(one) || one->kind == two->kind);
    if (same && one->micro_batch == two->micro_batch) return true;
    return because(v->reason, "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d) meets "
                   "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d)",
                   v->tasks.task[a].rank, one->name, left->name, left->bytes, one->micro_batch,
                   v->tasks.task[b].rank, two->name, right->name, right->bytes, two->micro_batch);
}

static bool is_alone(const struct verifying *v, int task, int rank)
{
    return because(v->reason, "rank %d '%s' has no counterpart at rank %d", v->tasks.task[task].rank,
                   name_at(v, task), rank);
}

/* Matches the messages of one rank to another. */
static bool match_messages(struct verifying *v, int from, int to)
{
    int sent = -1, received = -1;
    for (;;) {
        sent = program_next_message(v->programs[from], INSTRUCTION_SEND, to % v->stages, sent + 1);
        received = program_next_message(v->programs[to], INSTRUCTION_RECEIVE, from % v->stages, received + 1);
        int a = v->first[from] + sent, b = v->first[to] + received;
        if (sent < 0 && received < 0) return true;
        if (sent < 0) return is_alone(v, b, from);
        if (received < 0) return is_alone(v, a, to);
        if (!agree(v, a, b)) return false;
        struct task *receive = &v->tasks.task[b];
        if (v->streams) v->tasks.task[a].meeting = receive->meeting = v->tasks.meetings++;
        else *array_push(receive->waits, receive->wait_count) = a;
    }
}

/* Matches a rank's collectives to those of the first rank of its group. */
static bool match_collectives(struct verifying *v, int rank, bool among_stages)
{
    int first = among_stages ? rank - rank % v->stages : rank % v->stages;
    const struct collectives *own = &v->collectives[rank][among_stages];
    const struct collectives *other = &v->collectives[first][among_stages];
    int both = own->count < other->count ? own->count : other->count;
    for (int n = 0; n < both; n++) {
        if (!agree(v, other->at[n], own->at[n])) return false;
        struct task *task = &v->tasks.task[own->at[n]];
        task->meeting = rank == first ? v->tasks.meetings++ : v->tasks.task[other->at[n]].meeting;
    }
    if (own->count == other->count) return true;
    return own->count > both ? is_alone(v, own->at[both], first) : is_alone(v, other->at[both], rank);
}

static bool match_exchanges(struct verifying *v)
{
    for (int rank = 0; rank < v->ranks; rank++) {
        int replica = rank - rank % v->stages;
        for (int peer = replica; peer < replica + v->stages; peer++)
            if (!match_messages(v, rank, peer)) return false;
        for (int among = 0; among < 2; among++)
            if (!match_collectives(v, rank, among)) return false;
    }
    return true;
}

/* True if a task has ended when nothing moves any more; `head` is that of struct simulation. */
static bool has_ended(const struct verifying *v, const int *head, int task)
{
    int first = head[v->tasks.task[task].queue];
    return first < 0 || task < first;
}

/* The task that one at the head of its queue waits for, other than those that it meets; -1: none. */
static int waits_before(const struct verifying *v, const int *head, int task)
{
    const struct task *at = &v->tasks.task[task];
    for (int w = 0; w < at->wait_count; w++)
        if (!has_ended(v, head, at->waits[w])) return at->waits[w];
    return -1;
}

/* The task that one at the head of its queue waits for. */
static int waits_for(const struct verifying *v, const int *head, int task)
{
    int before = waits_before(v, head, task), meeting = v->tasks.task[task].meeting;
    for (int other = 0; before < 0 && other < v->tasks.count; other++) {
        const struct task *at = &v->tasks.task[other];
        bool arrived = has_ended(v, head, other) ||
                       (head[at->queue] == other && waits_before(v, head, other) < 0);
        if (at->meeting == meeting && !arrived) return other;
    }
    return before;
}

/* After as many steps as there are queues, the chain of waits has entered its cycle, which is reported. */
static bool name_ring(const struct verifying *v, const int *head)
{
    struct text ring = {0};
    const struct task *tasks = v->tasks.task;
    int queue = 0;
    while (head[queue] < 0) queue++;
    int at = head[queue];
    for (int q = 0; q < v->tasks.queues; q++) at = head[tasks[waits_for(v, head, at)].queue];
    const int start = at;
    do {
        int wanted = waits_for(v, head, at), next = head[tasks[wanted].queue];
        text_add(&ring, "%srank %d '%s' waits for rank %d '%s'", ring.data ? "; " : "", tasks[at].rank,
                 name_at(v, at), tasks[wanted].rank, name_at(v, wanted));
        if (next != wanted) text_add(&ring, ", behind '%s'", name_at(v, next));
        at = next;
    } while (at != start);
    because(v->reason, "%s", ring.data);
    text_free(&ring);
    return false;
}

static void add_rank(struct verifying *v, int rank)
{
    const struct program *program = v->programs[rank];
    v->first[rank] = v->tasks.count;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        struct collectives *own = &v->collectives[rank][at->among_stages];
        struct task *task = array_push(v->tasks.task, v->tasks.count);
        *task = (struct task){.rank = rank, .queue = v->tasks.queues + (v->streams ? at->stream : 0),
                              .meeting = -1};
        for (int w = 0; v->streams && w < at->wait_count; w++)
            *array_push(task->waits, task->wait_count) = v->first[rank] + at->waits[w];
        if (instruction_is_collective(at)) *array_push(own->at, own->count) = v->first[rank] + i;
    }
    v->tasks.queues += v->streams ? program->streams : 1;
}

static bool run_all(const struct verifying *v)
{
    struct simulation simulation = simulate(&v->tasks);
    bool right = !isinf(simulation.seconds) || name_ring(v, simulation.head);
    simulation_free(&simulation);
    return right;
}

bool verify_ranks(const struct program *const *programs, int replicas, int stages, struct reason *reason)
{
    struct verifying v = {.programs = programs, .stages = stages, .ranks = replicas * stages,
                          .tasks.ranks = replicas * stages, .streams = true, .reason = reason};
    v.first = memory_new((size_t)v.ranks, sizeof *v.first);
    v.collectives = memory_new((size_t)v.ranks, sizeof *v.collectives);
    for (int rank = 0; rank < v.ranks; rank++) v.streams = v.streams && programs[rank]->streams > 1;
    for (int rank = 0; rank < v.ranks; rank++) add_rank(&v, rank);
    bool right = match_exchanges(&v) && run_all(&v);
    for (int rank = 0; rank < v.ranks; rank++)
        for (int among = 0; among < 2; among++) free(v.collectives[rank][among].at);
    tasks_free(&v.tasks);
    free(v.collectives);
    free(v.first);
    return right;
}
