/* verify_ranks.c: simulates the programs of all ranks together, independently of how they were made.
 *
 * A rank's streams are queues. An instruction ends when it is at the head of its queue, everything that it
 * waits for has ended, and, if it is an exchange, its partners have reached theirs. The nth message from one
 * stage to another matches the nth receive there; likewise the nth collective of a group. */
#include "compile/verify_ranks.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"

/* An instruction of a rank. */
struct place {
    int rank, i;
};

/* The state of a rank. */
struct player {
    const struct program *program;
    int streams;
    int *head;               /* by stream: the first instruction on it that has not ended; count if none */
    bool *ended;             /* by instruction */
    bool *come;              /* by instruction: an exchange that this rank has reached */
};

/* A rank's collectives of a group, in order. */
struct collectives {
    int *at, count;
};

struct play {
    const struct program *const *programs;
    int replicas, stages, ranks;
    bool streams;            /* several streams; partners of messages are checked */
    struct player *players;
    int **partner;           /* by rank and instruction: of a message, the other's; of a collective, its
                              * number in its group */
    struct collectives (*collectives)[2];   /* by rank, and whether among stages */
    struct reason *reason;
};

static const struct instruction *instruction_at(const struct play *play, struct place at)
{
    return &play->programs[at.rank]->instructions[at.i];
}

static const char *name_at(const struct play *play, struct place at)
{
    return instruction_at(play, at)->name;
}

static int stream_at(const struct play *play, struct place at)
{
    return play->streams ? instruction_at(play, at)->stream : 0;
}

static bool is_exchange(const struct instruction *at)
{
    return instruction_is_message(at) || instruction_is_collective(at);
}

/* The next message of a rank behind instruction i of a kind with a peer; -1: there is none. */
static int next_message(const struct play *play, int rank, int i, enum instruction_kind kind, int peer)
{
    const struct program *program = play->programs[rank];
    while (++i < program->count)
        if (program->instructions[i].kind == kind && program->instructions[i].peer == peer) return i;
    return -1;
}

/* The value that an exchange transfers. */
static const struct value *value_at(const struct play *play, struct place at)
{
    const struct instruction *exchange = instruction_at(play, at);
    int id = exchange->kind == INSTRUCTION_RECEIVE ? exchange->y : exchange->x[0];
    return &play->programs[at.rank]->values[id];
}

/* Matching exchanges must agree: messages in their value, collectives in their bytes. */
static bool agree(const struct play *play, struct place a, struct place b)
{
    const struct value *left = value_at(play, a), *right = value_at(play, b);
    bool message = instruction_is_message(instruction_at(play, a));
    bool same = left->bytes == right->bytes && left->dtype == right->dtype &&
                strcmp(left->name, right->name) == 0;
    same = same && (message || instruction_at(play, a)->kind == instruction_at(play, b)->kind);
    same = same && instruction_at(play, a)->micro_batch == instruction_at(play, b)->micro_batch;
    if (same) return true;
    return because(play->reason, "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d) meets "
                   "rank %d '%s' (%s, %" PRId64 " bytes, micro-batch %d)",
                   a.rank, name_at(play, a), left->name, left->bytes, instruction_at(play, a)->micro_batch,
                   b.rank, name_at(play, b), right->name, right->bytes, instruction_at(play, b)->micro_batch);
}

/* Matches the messages of one rank to another. */
static bool match_messages(struct play *play, int from, int to)
{
    int sent = -1, received = -1;
    for (;;) {
        sent = next_message(play, from, sent, INSTRUCTION_SEND, to % play->stages);
        received = next_message(play, to, received, INSTRUCTION_RECEIVE, from % play->stages);
        if (sent < 0 && received < 0) return true;
        struct place lone = sent < 0 ? (struct place){to, received} : (struct place){from, sent};
        if (sent < 0 || received < 0)
            return because(play->reason, "rank %d '%s' has no counterpart at rank %d", lone.rank,
                           name_at(play, lone), sent < 0 ? from : to);
        if (!agree(play, (struct place){from, sent}, (struct place){to, received})) return false;
        play->partner[from][sent] = received;
        play->partner[to][received] = sent;
    }
}

/* The other ranks of a group: `first` and every `step`th one, `count` of them. */
struct group {
    int first, step, count;
};

static struct group group_of(const struct play *play, int rank, bool among_stages)
{
    int stage = rank % play->stages;
    return among_stages ? (struct group){rank - stage, 1, play->stages}
                        : (struct group){stage, play->stages, play->replicas};
}

static void number_collectives(struct play *play, int rank)
{
    const struct program *program = play->programs[rank];
    for (int i = 0; i < program->count; i++) {
        if (!instruction_is_collective(&program->instructions[i])) continue;
        struct collectives *all = &play->collectives[rank][program->instructions[i].among_stages];
        play->partner[rank][i] = all->count;
        *array_push(all->at, all->count) = i;
    }
}

static bool match_collectives(struct play *play, int rank, bool among_stages)
{
    int first = group_of(play, rank, among_stages).first;
    const struct collectives *own = &play->collectives[rank][among_stages];
    const struct collectives *other = &play->collectives[first][among_stages];
    int both = own->count < other->count ? own->count : other->count;
    for (int n = 0; n < both; n++)
        if (!agree(play, (struct place){first, other->at[n]}, (struct place){rank, own->at[n]})) return false;
    if (own->count == other->count) return true;
    bool more = own->count > both;
    struct place lone = more ? (struct place){rank, own->at[both]} : (struct place){first, other->at[both]};
    return because(play->reason, "rank %d '%s' has no counterpart at rank %d", lone.rank,
                   name_at(play, lone), more ? first : rank);
}

static bool match(struct play *play)
{
    for (int rank = 0; rank < play->ranks; rank++) {
        int replica = rank - rank % play->stages;
        for (int peer = replica; peer < replica + play->stages; peer++)
            if (!match_messages(play, rank, peer)) return false;
        for (int among = 0; among < 2; among++)
            if (!match_collectives(play, rank, among)) return false;
    }
    return true;
}

/* The partner that an instruction, which its rank has reached, waits for; i is -1 if none. */
static struct place missing_partner(const struct play *play, struct place at)
{
    const struct instruction *exchange = instruction_at(play, at);
    struct place partner = {at.rank - at.rank % play->stages + exchange->peer, -1};
    if (instruction_is_message(exchange)) {
        partner.i = play->partner[at.rank][at.i];
        const struct player *other = &play->players[partner.rank];
        bool put_down = exchange->kind == INSTRUCTION_SEND && !play->streams;
        if (put_down || other->ended[partner.i] || (play->streams && other->come[partner.i])) partner.i = -1;
    } else if (instruction_is_collective(exchange)) {
        struct group group = group_of(play, at.rank, exchange->among_stages);
        int number = play->partner[at.rank][at.i];
        for (int k = 0; k < group.count; k++) {
            int rank = group.first + k * group.step;
            partner = (struct place){rank, play->collectives[rank][exchange->among_stages].at[number]};
            if (!play->players[partner.rank].come[partner.i]) return partner;
        }
        partner.i = -1;
    }
    return partner;
}

/* The instruction that one at the head of its stream waits for; i is -1 if none. */
static struct place waits_for(const struct play *play, struct place at)
{
    const struct instruction *head = instruction_at(play, at);
    const struct player *player = &play->players[at.rank];
    for (int w = 0; play->streams && w < head->wait_count; w++)
        if (!player->ended[head->waits[w]]) return (struct place){at.rank, head->waits[w]};
    return is_exchange(head) ? missing_partner(play, at) : (struct place){at.rank, -1};
}

static bool own_waits_ended(const struct play *play, struct place at)
{
    const struct instruction *head = instruction_at(play, at);
    for (int w = 0; play->streams && w < head->wait_count; w++)
        if (!play->players[at.rank].ended[head->waits[w]]) return false;
    return true;
}

/* Processes the head of a stream, which ends if it need not wait. */
static bool advance(struct play *play, int rank, int stream)
{
    struct player *player = &play->players[rank];
    struct place at = {rank, player->head[stream]};
    if (at.i == player->program->count || !own_waits_ended(play, at)) return false;
    bool moved = !player->come[at.i];
    player->come[at.i] = true;
    if (waits_for(play, at).i >= 0) return moved;
    player->ended[at.i] = true;
    do at.i++;
    while (at.i < player->program->count && stream_at(play, at) != stream);
    player->head[stream] = at.i;
    return true;
}

static bool all_ended(const struct play *play, struct place *left)
{
    for (int rank = 0; rank < play->ranks; rank++)
        for (int s = 0; s < play->players[rank].streams; s++)
            if (play->players[rank].head[s] < play->programs[rank]->count) {
                *left = (struct place){rank, play->players[rank].head[s]};
                return false;
            }
    return true;
}

/* The head of an instruction's stream. */
static struct place head_before(const struct play *play, struct place at)
{
    return (struct place){at.rank, play->players[at.rank].head[stream_at(play, at)]};
}

/* After as many steps as there are streams, the chain of waits has entered its cycle, which is reported. */
static bool name_ring(const struct play *play, struct place at)
{
    struct text ring = {0};
    for (int rank = 0; rank < play->ranks; rank++)
        for (int s = 0; s < play->players[rank].streams; s++) at = head_before(play, waits_for(play, at));
    const struct place start = at;
    do {
        struct place wanted = waits_for(play, at), head = head_before(play, wanted);
        text_add(&ring, "%srank %d '%s' waits for rank %d '%s'", ring.data ? "; " : "", at.rank,
                 name_at(play, at), wanted.rank, name_at(play, wanted));
        if (head.i != wanted.i) text_add(&ring, ", behind '%s'", name_at(play, head));
        at = head;
    } while (at.rank != start.rank || at.i != start.i);
    because(play->reason, "%s", ring.data);
    text_free(&ring);
    return false;
}

static void player_open(const struct play *play, int rank)
{
    struct player *player = &play->players[rank];
    const struct program *program = player->program = play->programs[rank];
    player->streams = play->streams ? program->streams : 1;
    player->head = memory_new((size_t)player->streams, sizeof *player->head);
    player->ended = memory_new((size_t)program->count, sizeof *player->ended);
    player->come = memory_new((size_t)program->count, sizeof *player->come);
    for (int s = 0; s < player->streams; s++) {
        struct place at = {rank, 0};
        while (at.i < program->count && stream_at(play, at) != s) at.i++;
        player->head[s] = at.i;
    }
}

static void player_close(struct player *player)
{
    free(player->head);
    free(player->ended);
    free(player->come);
}

static bool play_all(struct play *play)
{
    struct place left;
    bool moved = true;
    for (int rank = 0; rank < play->ranks; rank++) player_open(play, rank);
    while (moved) {
        moved = false;
        for (int rank = 0; rank < play->ranks; rank++)
            for (int s = 0; s < play->players[rank].streams; s++)
                while (advance(play, rank, s)) moved = true;
    }
    bool ended = all_ended(play, &left) || name_ring(play, left);
    for (int rank = 0; rank < play->ranks; rank++) player_close(&play->players[rank]);
    return ended;
}

bool verify_ranks(const struct program *const *programs, int replicas, int stages, struct reason *reason)
{
    struct play play = {.programs = programs, .replicas = replicas, .stages = stages,
                        .ranks = replicas * stages, .reason = reason};
    play.players = memory_new((size_t)play.ranks, sizeof *play.players);
    play.partner = memory_new((size_t)play.ranks, sizeof *play.partner);
    play.collectives = memory_new((size_t)play.ranks, sizeof *play.collectives);
    bool several = true;
    for (int rank = 0; rank < play.ranks; rank++) {
        play.partner[rank] = memory_new((size_t)programs[rank]->count, sizeof(int));
        number_collectives(&play, rank);
        several = several && programs[rank]->streams > 1;
    }
    play.streams = several;
    bool right = match(&play) && play_all(&play);
    for (int rank = 0; rank < play.ranks; rank++) {
        free(play.partner[rank]);
        for (int among = 0; among < 2; among++) free(play.collectives[rank][among].at);
    }
    free(play.partner);
    free(play.collectives);
    free(play.players);
    return right;
}
