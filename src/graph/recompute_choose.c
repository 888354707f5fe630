/* recompute_choose.c: the cheapest activations to make again such that a step fits into a limit.
 *
 * What a choice takes, memory and time, is played through exactly (a trial), so that chains, lifetimes
 * stretched by remaking, in-place pairs and micro-batches all count as they will. The search is greedy by
 * what a change takes off the bytes over the limit for each second that it costs; then whatever is no longer
 * needed is taken back; then each choice in turn is forbidden and made good for by others. Peer: MONeT
 * (Shah et al. 2021) hands the like of it to an integer solver for hours. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "graph/build.h"
#include "graph/plan.h"
#include "graph/recompute.h"

/* A data-centre GPU of the 2020s, as networks get to see it; only the ratios matter. */
#define BYTES_PER_SECOND 3.5e12
#define FLOPS_LOW 400e12
#define FLOPS_FP32 150e12
#define SECONDS_A_CALL 3e-6

/* Instructions played, in all trials, after which the search ends as soon as it can: less than a second; and
 * after which it gives up. */
#define WORK_ENOUGH 10000000
#define WORK_MOST 400000000

struct life {
    int first, last;
    int64_t size;
    int head;                /* whose place it has; itself if its own */
};

struct pair {
    int from, to, at;
};

struct trial {
    const struct program *program;
    struct remade remade;
    const double *cost;          /* by instruction, seconds */
    struct life *lives;          /* by value, those made again behind the program's */
    int life_room;
    struct pair *pairs;
    int pair_count, pair_room;
    int64_t *change;             /* of live bytes, by position */
    int at, change_room;
    int64_t limit;
    double seconds;              /* what making again takes */
    double excess;               /* byte-instructions above the limit */
    int64_t peak;
    int64_t work;
};

static int64_t aligned(int64_t bytes)
{
    return (bytes + PLAN_ALIGNMENT - 1) / PLAN_ALIGNMENT * PLAN_ALIGNMENT;
}

static void touch(struct trial *trial, int id)
{
    struct life *life = &trial->lives[id];
    if (life->first < 0) life->first = trial->at;
    life->last = trial->at;
}

static bool in_arena(const struct trial *trial, int id)
{
    return trial->program->values[id].home == HOME_ARENA;
}

static int instance(const struct trial *trial, int id)
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
    trial->pairs[trial->pair_count++] = (struct pair){from, to, trial->at};
}

static void play_original(struct trial *trial, const struct instruction *at)
{
    bool backward = at->phase != PHASE_FORWARD && at->phase != PHASE_UPDATE;
    for (int k = 0; k < at->read_count; k++)
        if (in_arena(trial, at->reads[k]))
            touch(trial, backward ? instance(trial, at->reads[k]) : at->reads[k]);
    for (int k = 0; k < at->write_count; k++)
        if (in_arena(trial, at->writes[k])) touch(trial, at->writes[k]);
    int from = at->in_place_from, to = at->in_place_to;
    if (from >= 0 && to >= 0 && in_arena(trial, from) && in_arena(trial, to)) note_pair(trial, from, to);
}

/* `made` is as large as `id`. */
static void born_again(struct trial *trial, int id, int made)
{
    trial->lives[made] = (struct life){trial->at, trial->at, trial->lives[id].size, made};
}

static void play_again(struct trial *trial, const struct instruction *at, int i)
{
    bool keeps = remake_keeps_saved(at->op);
    for (int k = 0; k < at->x_count; k++)
        if (in_arena(trial, at->x[k])) touch(trial, instance(trial, at->x[k]));
    for (int k = 0; k < at->saved_count; k++) {
        if (keeps) touch(trial, at->saved[k]);
        else born_again(trial, at->saved[k], trial->remade.now[at->saved[k]]);
    }
    born_again(trial, at->y, trial->remade.now[at->y]);
    int last = trial->remade.value_count - 1;
    if (at->workspace >= 0) born_again(trial, at->workspace, last--);
    if (at->sums_given) born_again(trial, at->sums, last);
    if (at->in_place_from >= 0 && in_arena(trial, at->in_place_from))
        note_pair(trial, instance(trial, at->in_place_from), trial->remade.now[at->y]);
    trial->seconds += trial->cost[i];
}

static void play_next(void *context, int i, bool again)
{
    struct trial *trial = context;
    const struct instruction *at = &trial->program->instructions[i];
    make_room(trial);
    trial->change[trial->at + 1] = 0;
    if (again) play_again(trial, at, i);
    else play_original(trial, at);
    trial->at++;
}

/* `to` takes `from`'s place where that dies. */
static void pairs_place(struct trial *trial)
{
    for (int p = 0; p < trial->pair_count; p++) {
        struct life *from = &trial->lives[trial->pairs[p].from], *to = &trial->lives[trial->pairs[p].to];
        if (from->last != trial->pairs[p].at || to->size > from->size) continue;
        to->head = from->head;
        struct life *head = &trial->lives[from->head];
        if (to->last > head->last) head->last = to->last;
    }
}

static void lives_sum(struct trial *trial)
{
    for (int v = 0; v < trial->remade.value_count; v++) {
        const struct life *life = &trial->lives[v];
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

static void trial_play(struct trial *trial, const enum remake *remake)
{
    const struct program *program = trial->program;
    trial->at = trial->pair_count = 0;
    trial->seconds = 0;
    trial->remade.remake = remake;
    trial->remade.value_count = program->value_count;
    make_room(trial);
    trial->change[0] = 0;
    for (int v = 0; v < program->value_count; v++)
        trial->lives[v] = (struct life){-1, -1, aligned(program->values[v].bytes), v};
    remade_walk(&trial->remade);
    pairs_place(trial);
    lives_sum(trial);
    trial->work += trial->at;
}

/* Multiply-adds count two. What is not a product of weights is bound by memory. */
static double instruction_seconds(const struct program *program, const struct instruction *at)
{
    double bytes = 0, weights = 0;
    for (int k = 0; k < at->read_count; k++) bytes += (double)program->values[at->reads[k]].bytes;
    for (int k = 0; k < at->write_count; k++) bytes += (double)program->values[at->writes[k]].bytes;
    for (int k = 0; k < at->param_count; k++) {
        const struct value *param = &program->values[at->params[k]];
        if (program->graph->params[param->index].spec.role == ROLE_WEIGHT)
            weights += (double)shape_count(param->shape);
    }
    const struct value *y = &program->values[at->y];
    double flops = y->shape.c > 0 ? 2 * weights * (double)(shape_count(y->shape) / y->shape.c) : 0;
    double compute = flops / (y->dtype == F32 ? FLOPS_FP32 : FLOPS_LOW), memory = bytes / BYTES_PER_SECOND;
    return SECONDS_A_CALL + (compute > memory ? compute : memory);
}

/* A choice, for the same instruction in every micro-batch. */
struct group {
    int *at;                 /* instructions */
    int count;
    bool free;               /* may be chosen */
    bool heavy;              /* a product of weights */
};

struct choosing {
    struct trial trial;
    double *cost;
    struct group *groups;
    int group_count;
    enum remake *remake;     /* by instruction: the choice under way */
    double *score;           /* by group: as last known */
    int *stamp;              /* by group: when that was; choices made so far */
    int made;
    int barred;              /* group that must be kept; -1 */
};

static enum remake group_get(const struct choosing *c, int g)
{
    return c->remake[c->groups[g].at[0]];
}

static void group_set(struct choosing *c, int g, enum remake remake)
{
    for (int k = 0; k < c->groups[g].count; k++) c->remake[c->groups[g].at[k]] = remake;
}

static bool has_weights(const struct program *program, const struct instruction *at)
{
    for (int k = 0; k < at->param_count; k++)
        if (program->graph->params[program->values[at->params[k]].index].spec.role == ROLE_WEIGHT)
            return true;
    return false;
}

/* Forward instructions in order; micro-batches have the same ones. */
static void groups_make(struct choosing *c, const struct program *program)
{
    int in_slice = 0, slice = 0;
    c->groups = memory_new((size_t)program->count, sizeof *c->groups);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!at->op || c->trial.remade.producer[at->y] != i) continue;
        if (at->slice != slice) in_slice = 0;
        slice = at->slice;
        struct group *group = &c->groups[in_slice++];
        *array_push(group->at, group->count) = i;
        group->free = true;
        group->heavy = has_weights(program, at);
        if (in_slice > c->group_count) c->group_count = in_slice;
    }
}

/* What nobody in backward reads costs nothing to give up. */
static void give_up_unread(struct choosing *c)
{
    const struct program *program = c->trial.program;
    bool *read = memory_new((size_t)program->value_count, sizeof *read);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool after = at->phase != PHASE_FORWARD;
        for (int k = 0; after && k < at->read_count; k++) read[at->reads[k]] = true;
    }
    for (int g = 0; g < c->group_count; g++) {
        const struct instruction *at = &program->instructions[c->groups[g].at[0]];
        bool wanted = read[at->y];
        for (int k = 0; k < at->saved_count; k++) wanted = wanted || read[at->saved[k]];
        if (!wanted && c->groups[g].free) group_set(c, g, REMAKE_ONCE);
    }
    free(read);
}

static struct choosing choosing_open(const struct program *program, int64_t limit, bool light,
                                     enum remake *remake)
{
    struct choosing c = {.trial = {.program = program, .limit = limit}, .remake = remake, .barred = -1};
    c.cost = memory_new((size_t)program->count, sizeof *c.cost);
    for (int i = 0; i < program->count; i++)
        if (program->instructions[i].op && program->instructions[i].phase == PHASE_FORWARD)
            c.cost[i] = instruction_seconds(program, &program->instructions[i]);
    c.trial.cost = c.cost;
    c.trial.remade = remade_open(program);
    c.trial.remade.next = play_next;
    groups_make(&c, program);
    for (int g = 0; g < c.group_count; g++) c.groups[g].free = !light || !c.groups[g].heavy;
    c.score = memory_new((size_t)c.group_count, sizeof *c.score);
    c.stamp = memory_new((size_t)c.group_count, sizeof *c.stamp);
    return c;
}

static void choosing_close(struct choosing *c)
{
    for (int g = 0; g < c->group_count; g++) free(c->groups[g].at);
    free(c->groups);
    free(c->score);
    free(c->stamp);
    free(c->cost);
    remade_close(&c->trial.remade);
    free(c->trial.lives);
    free(c->trial.pairs);
    free(c->trial.change);
}

static void play(struct choosing *c)
{
    c->trial.remade.context = &c->trial;
    trial_play(&c->trial, c->remake);
}

/* How much of the excess a group's next step takes off, for each second that it costs. */
static double group_score(struct choosing *c, int g, double excess, double seconds)
{
    enum remake before = group_get(c, g);
    if (!c->groups[g].free || g == c->barred || before == REMAKE_EACH) return 0;
    group_set(c, g, before + 1);
    play(c);
    group_set(c, g, before);
    double gain = excess - c->trial.excess, price = c->trial.seconds - seconds;
    return gain <= 0 ? 0 : gain / (price > 1e-9 ? price : 1e-9);
}

static int best_known(const struct choosing *c)
{
    int best = 0;
    for (int g = 1; g < c->group_count; g++)
        if (c->score[g] > c->score[best]) best = g;
    return best;
}

/* The group that the instruction which writes a value belongs to; -1. */
static int group_of_value(const struct choosing *c, int value)
{
    int i = c->trial.remade.producer[value];
    for (int g = 0; i >= 0 && g < c->group_count; g++)
        if (c->groups[g].at[0] == i) return g;
    return -1;
}

/* The best change of one group, or of one together with one that it reads, whatever it costs. */
struct change {
    int group[2];
    enum remake to[2];
    double excess;
};

static void try_change(struct choosing *c, struct change change, struct change *best)
{
    enum remake before[2];
    for (int k = 0; k < 2; k++) {
        int g = change.group[k];
        if (g >= 0 && (!c->groups[g].free || g == c->barred)) return;
    }
    for (int k = 0; k < 2; k++)
        if (change.group[k] >= 0) {
            before[k] = group_get(c, change.group[k]);
            group_set(c, change.group[k], change.to[k]);
        }
    play(c);
    change.excess = c->trial.excess;
    for (int k = 1; k >= 0; k--)
        if (change.group[k] >= 0) group_set(c, change.group[k], before[k]);
    if (change.excess < best->excess) *best = change;
}

static void try_with_inputs(struct choosing *c, int g, enum remake to, struct change *best)
{
    const struct instruction *at = &c->trial.program->instructions[c->groups[g].at[0]];
    try_change(c, (struct change){{g, -1}, {to, REMAKE_NOT}, 0}, best);
    for (int k = 0; k < at->x_count; k++) {
        int input = group_of_value(c, at->x[k]);
        for (enum remake also = REMAKE_NOT; input >= 0 && also <= REMAKE_EACH; also++)
            if (also != group_get(c, input)) try_change(c, (struct change){{g, input}, {to, also}, 0}, best);
    }
}

/* Where no step on helps: steps back and steps of two. */
static bool escape(struct choosing *c, double excess)
{
    struct change best = {{-1, -1}, {REMAKE_NOT, REMAKE_NOT}, excess};
    for (int g = 0; g < c->group_count && c->trial.work < WORK_MOST; g++)
        for (enum remake to = REMAKE_NOT; to <= REMAKE_EACH; to++) try_with_inputs(c, g, to, &best);
    for (int k = 0; k < 2; k++)
        if (best.group[k] >= 0) group_set(c, best.group[k], best.to[k]);
    return best.group[0] >= 0;
}

#define REFRESH 16   /* choices after which all scores are worked out anew: they mostly, not always, fall */

/* Chooses on until nothing is above the limit or nothing helps; whether it fits. */
static bool choose_on(struct choosing *c)
{
    play(c);
    for (int chosen = 0; c->trial.excess > 0; chosen++) {
        double excess = c->trial.excess, seconds = c->trial.seconds;
        c->made++;
        for (int g = 0; g < c->group_count && chosen % REFRESH == 0; g++) {
            c->score[g] = group_score(c, g, excess, seconds);
            c->stamp[g] = c->made;
        }
        int best = best_known(c);
        while (c->stamp[best] != c->made) {
            c->score[best] = group_score(c, best, excess, seconds);
            c->stamp[best] = c->made;
            best = best_known(c);
        }
        if (c->score[best] <= 0) {
            if (chosen % REFRESH == 0 && !escape(c, excess)) return false;
            chosen = -1;
        } else {
            group_set(c, best, group_get(c, best) + 1);
            c->score[best] = 1e300;
        }
        if (c->trial.work > WORK_MOST) return false;
        play(c);
    }
    return true;
}

static int compare_costs(const void *a, const void *b)
{
    const double *left = *(const double *const *)a, *right = *(const double *const *)b;
    if (*left != *right) return *left > *right ? -1 : 1;
    return (left > right) - (left < right);
}

/* Groups by what a forward of theirs costs, the dearest first. */
static int *by_cost(const struct choosing *c)
{
    const double **costs = memory_new((size_t)c->group_count, sizeof *costs);
    double *cost = memory_new((size_t)c->group_count, sizeof *cost);
    int *order = memory_new((size_t)c->group_count, sizeof *order);
    for (int g = 0; g < c->group_count; g++) {
        cost[g] = c->cost[c->groups[g].at[0]];
        costs[g] = &cost[g];
    }
    qsort(costs, (size_t)c->group_count, sizeof *costs, compare_costs);
    for (int g = 0; g < c->group_count; g++) order[g] = (int)(costs[g] - cost);
    free(costs);
    free(cost);
    return order;
}

/* Takes back what is not needed: it fits before and after, and costs less. */
static void prune(struct choosing *c, const int *order)
{
    play(c);
    double seconds = c->trial.seconds;
    for (int o = 0; o < c->group_count; o++) {
        int g = order[o];
        enum remake before = group_get(c, g);
        for (enum remake less = REMAKE_NOT; less < before; less++) {
            group_set(c, g, less);
            play(c);
            if (c->trial.excess <= 0 && c->trial.seconds <= seconds) {
                seconds = c->trial.seconds;
                break;
            }
            group_set(c, g, before);
        }
    }
}

/* Forbids each choice in turn and looks for others in its stead. */
static void exchange(struct choosing *c, const int *order)
{
    size_t bytes = (size_t)c->trial.program->count * sizeof *c->remake;
    enum remake *best = memory_new(1, bytes);
    play(c);
    double seconds = c->trial.seconds;
    memcpy(best, c->remake, bytes);
    for (int o = 0; o < c->group_count && c->trial.work < WORK_ENOUGH; o++) {
        if (group_get(c, order[o]) == REMAKE_NOT) continue;
        c->barred = order[o];
        group_set(c, order[o], REMAKE_NOT);
        bool fits = choose_on(c);
        if (fits) prune(c, order);
        play(c);
        if (fits && c->trial.excess <= 0 && c->trial.seconds < seconds) {
            seconds = c->trial.seconds;
            memcpy(best, c->remake, bytes);
        } else {
            memcpy(c->remake, best, bytes);
        }
    }
    c->barred = -1;
    free(best);
}

static struct recompute_forecast forecast_of(const struct choosing *c)
{
    return (struct recompute_forecast){
        .seconds = c->trial.seconds, .bytes = c->trial.peak, .work = c->trial.work};
}

bool recompute_choose(const struct program *program, int64_t limit, bool light, enum remake *remake,
                      struct recompute_forecast *forecast)
{
    struct choosing c = choosing_open(program, limit, light, remake);
    int *order = by_cost(&c);
    for (int i = 0; i < program->count; i++) remake[i] = REMAKE_NOT;
    give_up_unread(&c);
    bool fits = choose_on(&c);
    if (fits) {
        prune(&c, order);
        exchange(&c, order);
    }
    play(&c);
    *forecast = forecast_of(&c);
    free(order);
    choosing_close(&c);
    return fits;
}

void recompute_measure(const struct program *program, const enum remake *remake,
                       struct recompute_forecast *forecast)
{
    enum remake *copy = memory_new((size_t)program->count, sizeof *copy);
    memcpy(copy, remake, (size_t)program->count * sizeof *copy);
    struct choosing c = choosing_open(program, INT64_MAX, false, copy);
    play(&c);
    *forecast = forecast_of(&c);
    choosing_close(&c);
    free(copy);
}
