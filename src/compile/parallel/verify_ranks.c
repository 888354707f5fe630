/* verify_ranks.c: simulates the programs of all ranks together, independently of how they were made.
 *
 * A rank's streams are queues. An instruction ends when it is at the head of its queue, everything that it
 * waits for has ended, and, if it is an exchange, its partners have reached theirs. The nth message from one
 * stage to another matches the nth receive there; likewise the nth collective of a group. */
#include "compile/parallel/verify_ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "comm/group.h"

/* An instruction of a rank. */
struct place {
    int rank, i;
};

/* The state of a rank. */
struct rank_state {
    const struct program *program;
    int streams;
    int *head;               /* by stream: the first instruction on it that has not ended; count if none */
    bool *ended;             /* by instruction */
    bool *reached;           /* by instruction: an exchange that this rank has reached */
};

/* A rank's collectives of a group, in order. */
struct collectives {
    int *at, count;
};

struct rank_states {
    const struct program *const *programs;
    int replicas, stages, ranks;
    bool streams;            /* several streams; partners of messages are checked */
    struct rank_state *states;
    int **partner;           /* by rank and instruction: of a message, the other's; of a collective, its
                              * number in its group */
    struct collectives (*collectives)[2];   /* by rank, and whether among stages */
    struct reason *reason;
};

static const struct instruction *instruction_at(const struct rank_states *all, struct place at)
{
    return &all->programs[at.rank]->instructions[at.i];
}

static const char *name_at(const struct rank_states *all, struct place at)
{
    return instruction_at(all, at)->name;
}

static int stream_at(const struct rank_states *all, struct place at)
{
    return all->streams ? instruction_at(all, at)->stream : 0;
}

static bool is_exchange(const struct instruction *at)
{
    return instruction_is_message(at) || instruction_is_collective(at);
}

/* The value that an exchange transfers. */
static const struct value *value_at(const struct rank_states *all, struct place at)
{
    const struct instruction *exchange = instruction_at(all, at);
    int id = exchange->kind == INSTRUCTION_RECEIVE ? operand_y(exchange) : operand_x(exchange, 0);
    return &all->programs[at.rank]->values[id];
}

/* Matching exchanges must agree: messages in their value, collectives in their bytes. */
static bool agree(const struct rank_states *all, struct place a, struct place b)
{
    const struct value *left = value_at(all, a), *right = value_at(all, b);
    bool message = instruction_is_message(instruction_at(all, a));
    bool same = left->bytes == right->bytes && left->dtype == right->dtype &&
                strcmp(left->name, right->name) == 0;
    same = same && (message || instruction_at(all, a)->kind == instruction_at(all, b)->kind);
    same = same && instruction_at(all, a)->micro_batch == instruction_at(all, b)->micro_batch;
    if (same) return true;
    return because(all->reason, "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d) meets "
                   "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d)",
                   a.rank, name_at(all, a), left->name, left->bytes, instruction_at(all, a)->micro_batch,
                   b.rank, name_at(all, b), right->name, right->bytes, instruction_at(all, b)->micro_batch);
}

/* Matches the messages of one rank to another. */
static bool match_messages(struct rank_states *all, int from, int to)
{
    int sent = -1, received = -1;
    for (;;) {
        sent = program_next_message(all->programs[from], INSTRUCTION_SEND, to % all->stages, sent + 1);
        received = program_next_message(all->programs[to], INSTRUCTION_RECEIVE, from % all->stages,
                                        received + 1);
        if (sent < 0 && received < 0) return true;
        struct place lone = sent < 0 ? (struct place){to, received} : (struct place){from, sent};
        if (sent < 0 || received < 0)
            return because(all->reason, "rank %d '%s' has no counterpart at rank %d", lone.rank,
                           name_at(all, lone), sent < 0 ? from : to);
        if (!agree(all, (struct place){from, sent}, (struct place){to, received})) return false;
        all->partner[from][sent] = received;
        all->partner[to][received] = sent;
    }
}

static struct group_ranks group_of(const struct rank_states *all, int rank, bool among_stages)
{
    int stage = rank % all->stages;
    return among_stages ? (struct group_ranks){rank - stage, 1, all->stages}
                        : (struct group_ranks){stage, all->stages, all->replicas};
}

static void number_collectives(struct rank_states *all, int rank)
{
    const struct program *program = all->programs[rank];
    for (int i = 0; i < program->count; i++) {
        if (!instruction_is_collective(&program->instructions[i])) continue;
        struct collectives *own = &all->collectives[rank][program->instructions[i].among_stages];
        all->partner[rank][i] = own->count;
        *array_push(own->at, own->count) = i;
    }
}

static bool match_collectives(struct rank_states *all, int rank, bool among_stages)
{
    int first = group_of(all, rank, among_stages).first;
    const struct collectives *own = &all->collectives[rank][among_stages];
    const struct collectives *other = &all->collectives[first][among_stages];
    int both = own->count < other->count ? own->count : other->count;
    for (int n = 0; n < both; n++)
        if (!agree(all, (struct place){first, other->at[n]}, (struct place){rank, own->at[n]})) return false;
    if (own->count == other->count) return true;
    bool more = own->count > both;
    struct place lone = more ? (struct place){rank, own->at[both]} : (struct place){first, other->at[both]};
    return because(all->reason, "rank %d '%s' has no counterpart at rank %d", lone.rank,
                   name_at(all, lone), more ? first : rank);
}

static bool match_exchanges(struct rank_states *all)
{
    for (int rank = 0; rank < all->ranks; rank++) {
        int replica = rank - rank % all->stages;
        for (int peer = replica; peer < replica + all->stages; peer++)
            if (!match_messages(all, rank, peer)) return false;
        for (int among = 0; among < 2; among++)
            if (!match_collectives(all, rank, among)) return false;
    }
    return true;
}

/* The partner that an instruction, which its rank has reached, waits for; i is -1 if none. */
static struct place missing_partner(const struct rank_states *all, struct place at)
{
    const struct instruction *exchange = instruction_at(all, at);
    struct place partner = {at.rank - at.rank % all->stages + exchange->peer, -1};
    if (instruction_is_message(exchange)) {
        partner.i = all->partner[at.rank][at.i];
        const struct rank_state *other = &all->states[partner.rank];
        bool is_buffered = exchange->kind == INSTRUCTION_SEND && !all->streams;
        bool is_reached = other->ended[partner.i] || (all->streams && other->reached[partner.i]);
        if (is_buffered || is_reached) partner.i = -1;
    } else if (instruction_is_collective(exchange)) {
        struct group_ranks group = group_of(all, at.rank, exchange->among_stages);
        int number = all->partner[at.rank][at.i];
        for (int k = 0; k < group.count; k++) {
            int rank = group.first + k * group.step;
            partner = (struct place){rank, all->collectives[rank][exchange->among_stages].at[number]};
            if (!all->states[partner.rank].reached[partner.i]) return partner;
        }
        partner.i = -1;
    }
    return partner;
}

/* The instruction that one at the head of its stream waits for; i is -1 if none. */
static struct place waits_for(const struct rank_states *all, struct place at)
{
    const struct instruction *head = instruction_at(all, at);
    const struct rank_state *state = &all->states[at.rank];
    for (int w = 0; all->streams && w < head->wait_count; w++)
        if (!state->ended[head->waits[w]]) return (struct place){at.rank, head->waits[w]};
    return is_exchange(head) ? missing_partner(all, at) : (struct place){at.rank, -1};
}

static bool own_waits_ended(const struct rank_states *all, struct place at)
{
    const struct instruction *head = instruction_at(all, at);
    for (int w = 0; all->streams && w < head->wait_count; w++)
        if (!all->states[at.rank].ended[head->waits[w]]) return false;
    return true;
}

/* Processes the head of a stream, which ends if it need not wait. */
static bool advance_stream(struct rank_states *all, int rank, int stream)
{
    struct rank_state *state = &all->states[rank];
    struct place at = {rank, state->head[stream]};
    if (at.i == state->program->count || !own_waits_ended(all, at)) return false;
    bool moved = !state->reached[at.i];
    state->reached[at.i] = true;
    if (waits_for(all, at).i >= 0) return moved;
    state->ended[at.i] = true;
    do at.i++;
    while (at.i < state->program->count && stream_at(all, at) != stream);
    state->head[stream] = at.i;
    return true;
}

static bool all_ended(const struct rank_states *all, struct place *left)
{
    for (int rank = 0; rank < all->ranks; rank++)
        for (int s = 0; s < all->states[rank].streams; s++)
            if (all->states[rank].head[s] < all->programs[rank]->count) {
                *left = (struct place){rank, all->states[rank].head[s]};
                return false;
            }
    return true;
}

/* The head of an instruction's stream. */
static struct place head_before(const struct rank_states *all, struct place at)
{
    return (struct place){at.rank, all->states[at.rank].head[stream_at(all, at)]};
}

/* After as many steps as there are streams, the chain of waits has entered its cycle, which is reported. */
static bool name_ring(const struct rank_states *all, struct place at)
{
    struct text ring = {0};
    for (int rank = 0; rank < all->ranks; rank++)
        for (int s = 0; s < all->states[rank].streams; s++) at = head_before(all, waits_for(all, at));
    const struct place start = at;
    do {
        struct place wanted = waits_for(all, at), head = head_before(all, wanted);
        text_add(&ring, "%srank %d '%s' waits for rank %d '%s'", ring.data ? "; " : "", at.rank,
                 name_at(all, at), wanted.rank, name_at(all, wanted));
        if (head.i != wanted.i) text_add(&ring, ", behind '%s'", name_at(all, head));
        at = head;
    } while (at.rank != start.rank || at.i != start.i);
    because(all->reason, "%s", ring.data);
    text_free(&ring);
    return false;
}

static void rank_state_open(const struct rank_states *all, int rank)
{
    struct rank_state *state = &all->states[rank];
    const struct program *program = state->program = all->programs[rank];
    state->streams = all->streams ? program->streams : 1;
    state->head = memory_new((size_t)state->streams, sizeof *state->head);
    state->ended = memory_new((size_t)program->count, sizeof *state->ended);
    state->reached = memory_new((size_t)program->count, sizeof *state->reached);
    for (int s = 0; s < state->streams; s++) {
        struct place at = {rank, 0};
        while (at.i < program->count && stream_at(all, at) != s) at.i++;
        state->head[s] = at.i;
    }
}

static void rank_state_close(struct rank_state *state)
{
    free(state->head);
    free(state->ended);
    free(state->reached);
}

static bool run_all(struct rank_states *all)
{
    struct place left;
    bool moved = true;
    for (int rank = 0; rank < all->ranks; rank++) rank_state_open(all, rank);
    while (moved) {
        moved = false;
        for (int rank = 0; rank < all->ranks; rank++)
            for (int s = 0; s < all->states[rank].streams; s++)
                while (advance_stream(all, rank, s)) moved = true;
    }
    bool ended = all_ended(all, &left) || name_ring(all, left);
    for (int rank = 0; rank < all->ranks; rank++) rank_state_close(&all->states[rank]);
    return ended;
}

bool verify_ranks(const struct program *const *programs, int replicas, int stages, struct reason *reason)
{
    struct rank_states all = {.programs = programs, .replicas = replicas, .stages = stages,
                              .ranks = replicas * stages, .reason = reason};
    all.states = memory_new((size_t)all.ranks, sizeof *all.states);
    all.partner = memory_new((size_t)all.ranks, sizeof *all.partner);
    all.collectives = memory_new((size_t)all.ranks, sizeof *all.collectives);
    bool several = true;
    for (int rank = 0; rank < all.ranks; rank++) {
        all.partner[rank] = memory_new((size_t)programs[rank]->count, sizeof(int));
        number_collectives(&all, rank);
        several = several && programs[rank]->streams > 1;
    }
    all.streams = several;
    bool right = match_exchanges(&all) && run_all(&all);
    for (int rank = 0; rank < all.ranks; rank++) {
        free(all.partner[rank]);
        for (int among = 0; among < 2; among++) free(all.collectives[rank][among].at);
    }
    free(all.partner);
    free(all.collectives);
    free(all.states);
    return right;
}
