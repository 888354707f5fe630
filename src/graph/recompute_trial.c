#include "graph/recompute_trial.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/plan.h"

struct trial_life {
    int first, last;         /* positions; -1: never alive */
    int64_t size;
    int head;                /* whose place it has; itself if its own */
};

struct trial_pair {
    int from, to, at;
};

/* An instruction as memory sees it. */
struct trial_step {
    int first, reads_end, end;   /* in `uses`: what it reads, and then what it writes */
    int pair_from, pair_to;      /* -1: none */
    bool reads_again;            /* it reads what was made again in the original's stead */
};

static inline void touch(struct trial *trial, int id)
{
    struct trial_life *life = &trial->lives[id];
    if (life->first < 0) life->first = trial->at;
    life->last = trial->at;
}

static inline int instance(const struct trial *trial, int id)
{
    return trial->remade.now[id] >= 0 ? trial->remade.now[id] : id;
}

static void make_room(struct trial *trial)
{
    if (trial->at + 2 >= trial->change_room) {
        trial->change_room = 2 * trial->at + 1024;
        trial->change = memory_resize(trial->change, (size_t)trial->change_room, sizeof *trial->change);
    }
    if (trial->remade.value_count + OP_MAX_SAVED + 2 >= trial->life_room) {
        trial->life_room = 2 * trial->remade.value_count + 1024;
        trial->lives = memory_resize(trial->lives, (size_t)trial->life_room, sizeof *trial->lives);
    }
    if (trial->pair_count + 1 >= trial->pair_room) {
        trial->pair_room = 2 * trial->pair_count + 256;
        trial->pairs = memory_resize(trial->pairs, (size_t)trial->pair_room, sizeof *trial->pairs);
    }
}

static void note_pair(struct trial *trial, int from, int to)
{
    trial->pairs[trial->pair_count++] = (struct trial_pair){from, to, trial->at};
}

static void play_original(struct trial *trial, const struct trial_step *step)
{
    const int *use = trial->uses + step->first, *reads_end = trial->uses + step->reads_end;
    const int *end = trial->uses + step->end;
    if (step->reads_again)
        while (use < reads_end) touch(trial, instance(trial, *use++));
    while (use < end) touch(trial, *use++);
    if (step->pair_from >= 0) note_pair(trial, step->pair_from, step->pair_to);
}

/* `made` is as large as `id`. */
static void born_again(struct trial *trial, int id, int made)
{
    trial->lives[made] = (struct trial_life){trial->at, trial->at, trial->lives[id].size, made};
}

static void play_again(struct trial *trial, const struct instruction *at, int i)
{
    bool keeps = remake_keeps_saved(at->op);
    for (int k = 0; k < at->x_count; k++)
        if (trial->in_arena[at->x[k]]) touch(trial, instance(trial, at->x[k]));
    for (int k = 0; k < at->saved_count; k++) {
        if (keeps) touch(trial, at->saved[k]);
        else born_again(trial, at->saved[k], trial->remade.now[at->saved[k]]);
    }
    born_again(trial, at->y, trial->remade.now[at->y]);
    int last = trial->remade.value_count - 1;
    if (at->workspace >= 0) born_again(trial, at->workspace, last--);
    if (at->sums_given) born_again(trial, at->sums, last);
    if (at->in_place_from >= 0 && trial->in_arena[at->in_place_from])
        note_pair(trial, instance(trial, at->in_place_from), trial->remade.now[at->y]);
    trial->seconds += trial->cost[i];
}

static void play_next(void *context, int i, bool again)
{
    struct trial *trial = context;
    make_room(trial);
    trial->change[trial->at + 1] = 0;
    if (again) play_again(trial, &trial->program->instructions[i], i);
    else play_original(trial, &trial->steps[i]);
    trial->at++;
}

/* `to` takes `from`'s place where that dies. */
static void pairs_place(struct trial *trial)
{
    for (int p = 0; p < trial->pair_count; p++) {
        const struct trial_pair *pair = &trial->pairs[p];
        struct trial_life *from = &trial->lives[pair->from], *to = &trial->lives[pair->to];
        if (from->last != pair->at || to->size > from->size) continue;
        to->head = from->head;
        struct trial_life *head = &trial->lives[from->head];
        if (to->last > head->last) head->last = to->last;
    }
}

static void lives_sum(struct trial *trial)
{
    for (int v = 0; v < trial->remade.value_count; v++) {
        const struct trial_life *life = &trial->lives[v];
        if (life->first < 0 || life->head != v) continue;
        trial->change[life->first] += life->size;
        trial->change[life->last + 1] -= life->size;
    }
    int64_t alive = 0;
    trial->peak = 0;
    trial->excess = 0;
    for (int t = 0; t < trial->at; t++) {
        alive += trial->change[t];
        if (alive > trial->peak) trial->peak = alive;
        if (alive > trial->limit) trial->excess += (double)(alive - trial->limit);
    }
}

void trial_play(struct trial *trial, const enum remake *remake)
{
    int values = trial->program->value_count;
    memcpy(trial->lives, trial->start_lives, (size_t)values * sizeof *trial->lives);
    trial->pair_count = trial->start_pairs;
    trial->at = trial->remade.first;
    memset(trial->change, 0, ((size_t)trial->at + 1) * sizeof *trial->change);
    trial->seconds = 0;
    trial->remade.remake = remake;
    trial->remade.context = trial;
    remade_walk(&trial->remade);
    pairs_place(trial);
    lives_sum(trial);
    trial->work += trial->at;
}

static int uses_add(struct trial *trial, const int *ids, int count, int end)
{
    for (int k = 0; k < count; k++)
        if (trial->in_arena[ids[k]]) trial->uses[end++] = ids[k];
    return end;
}

static void steps_make(struct trial *trial)
{
    const struct program *program = trial->program;
    size_t most = 0;
    for (int i = 0; i < program->count; i++)
        most += (size_t)(program->instructions[i].read_count + program->instructions[i].write_count);
    trial->uses = memory_new(most, sizeof *trial->uses);
    trial->steps = memory_new((size_t)program->count, sizeof *trial->steps);
    for (int i = 0, end = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        struct trial_step *step = &trial->steps[i];
        int from = at->in_place_from, to = at->in_place_to;
        bool paired = from >= 0 && to >= 0 && trial->in_arena[from] && trial->in_arena[to];
        step->first = end;
        step->reads_end = uses_add(trial, at->reads, at->read_count, end);
        end = step->end = uses_add(trial, at->writes, at->write_count, step->reads_end);
        step->pair_from = paired ? from : -1;
        step->pair_to = paired ? to : -1;
        step->reads_again = at->phase != PHASE_FORWARD && at->phase != PHASE_UPDATE;
    }
}

static void start_make(struct trial *trial)
{
    const struct program *program = trial->program;
    size_t values = (size_t)program->value_count;
    trial->remade.value_count = program->value_count;
    make_room(trial);
    for (int v = 0; v < program->value_count; v++)
        trial->lives[v] = (struct trial_life){-1, -1, plan_bytes(&program->values[v]), v};
    while (trial->at < trial->remade.first) play_next(trial, trial->at, false);
    make_room(trial);
    trial->start_pairs = trial->pair_count;
    trial->start_lives = memory_new(values, sizeof *trial->start_lives);
    memcpy(trial->start_lives, trial->lives, values * sizeof *trial->lives);
}

struct trial trial_open(const struct program *program, const double *cost, int64_t limit)
{
    struct trial trial = {.program = program, .cost = cost, .limit = limit};
    trial.remade = remade_open(program);
    trial.remade.next = play_next;
    while (trial.remade.first < program->count && trial.remade.wanted_first[trial.remade.first + 1] == 0)
        trial.remade.first++;
    trial.in_arena = memory_new((size_t)program->value_count, sizeof *trial.in_arena);
    for (int v = 0; v < program->value_count; v++)
        trial.in_arena[v] = program->values[v].home == HOME_ARENA;
    steps_make(&trial);
    start_make(&trial);
    return trial;
}

void trial_close(struct trial *trial)
{
    remade_close(&trial->remade);
    free(trial->steps);
    free(trial->uses);
    free(trial->in_arena);
    free(trial->lives);
    free(trial->pairs);
    free(trial->change);
    free(trial->start_lives);
}
