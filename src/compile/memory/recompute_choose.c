/* recompute_choose.c: finds the cheapest set of activations to recompute so that a step fits into a limit.
 *
 * Each choice is evaluated by replaying the step with it (recompute_replay.h). The search is lazy and greedy,
 * by the reduction of the bytes above the limit per second of recomputation; bounds of that, from lifetimes
 * alone, tell which changes are worth a replay. Where no single change helps, a whole chain of recomputations
 * changes at once; where that does not help either, annealing looks for any choice that fits. Then choices
 * that are no longer needed are undone, and the result is annealed. Compare MONeT (Shah et al. 2021), which
 * solves a similar problem with an integer program in hours. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "compile/time/cost.h"
#include "compile/memory/recompute_replay.h"

/* Simulated annealing, from the choice that was found: */
#define ANNEAL_TIMES 3
#define ANNEAL_WORK 16000000     /* each time: 0.25 s; */
#define ANNEAL_ANY 1500000       /* once, where any choice that fits is looked for */
#define ANNEAL_HOT 0.1           /* the first temperature in seconds, per second that the choice takes; */
#define ANNEAL_COLD 0.0005       /* the last one */
#define ANNEAL_EXCESS 100        /* the price of bytes above the limit, compared to what the choice takes for
                                  * those that it saves */
#define ANNEAL_MOST 3            /* groups that a try changes */
#define ANNEAL_PAIRS 0.7         /* of the tries change two groups; the others change one to three */

#define CHAIN_KEPT 1             /* kept activations in a chain that one step may recompute */

/* A choice, for the same instruction in every micro-batch. */
struct group {
    int *at;                 /* instructions, by micro-batch */
    int count;
    bool free;               /* may be chosen */
    bool heavy;              /* a product of weights */
};

struct choosing {
    struct replay replay;
    double *cost;
    struct group *groups;
    int group_count;
    int *group_of;           /* by instruction; -1 */
    double *gain;            /* by instruction: upper bound of the reduction of the excess */
    double *score;           /* by group: as last computed */
    int *stamp;              /* by group: `made` at that time */
    int made;
    int64_t work_most;       /* after which the search ends */
};

/* A group's instruction of the micro-batch at the peak of memory. */
static int group_at(const struct choosing *c, int g)
{
    return c->groups[g].at[c->replay.micro_batch];
}

static enum recompute_mode group_get(const struct choosing *c, int g)
{
    return c->replay.modes[c->groups[g].at[0]];
}

static void group_set(struct choosing *c, int g, enum recompute_mode modes)
{
    for (int k = 0; k < c->groups[g].count; k++) c->replay.modes[c->groups[g].at[k]] = modes;
}

static bool has_weights(const struct program *program, const struct instruction *at)
{
    FOR_OPERANDS(o, at)
        if (o->role == OPERAND_PARAM &&
            program->graph->params[program->values[o->value].index].spec.role == ROLE_WEIGHT)
            return true;
    return false;
}

/* Forward instructions in order; micro-batches have the same ones. */
static void groups_make(struct choosing *c, const struct program *program)
{
    int *counts = memory_new((size_t)program->micro_batches, sizeof *counts);
    c->group_of = memory_new((size_t)program->count, sizeof *c->group_of);
    c->groups = memory_new((size_t)program->count, sizeof *c->groups);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        c->group_of[i] = -1;
        if (!replay_can_recompute(&c->replay, i)) continue;
        int number = c->group_of[i] = counts[at->micro_batch]++;
        struct group *group = &c->groups[number];
        *array_push(group->at, group->count) = i;
        group->free = true;
        group->heavy = has_weights(program, at);
        if (number >= c->group_count) c->group_count = number + 1;
    }
    free(counts);
}

/* Values that backward does not read cost nothing to free. */
static void give_up_unread(struct choosing *c)
{
    const struct program *program = c->replay.program;
    bool *read = memory_new((size_t)program->value_count, sizeof *read);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        FOR_READS(o, at)
            if (at->phase != PHASE_FORWARD) read[o->value] = true;
    }
    for (int g = 0; g < c->group_count; g++) {
        const struct instruction *at = &program->instructions[group_at(c, g)];
        bool wanted = false;
        FOR_OPERANDS(o, at) {
            enum operand_access again = operand_rows[o->role].recompute;
            bool makes = (again == CALL_WRITE || again == CALL_KEPT) && !operand_is_extra(o);
            wanted = wanted || (makes && read[o->value]);
        }
        if (!wanted && c->groups[g].free) group_set(c, g, RECOMPUTE_ONCE);
    }
    free(read);
}

/* Values that only weight gradients read are recomputed by fuse_recompute if possible. */
static double *costs_of(const struct program *program)
{
    double *cost = memory_new((size_t)program->count, sizeof *cost);
    enum recompute_mode *cheap = memory_new((size_t)program->count, sizeof *cheap);
    recompute_cheap(program, cheap);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!at->op || at->phase != PHASE_FORWARD) continue;
        bool fused = cheap[i] != RECOMPUTE_NEVER && fuse_recompute_may(at);
        cost[i] = fused ? cost_fused_recompute(program, at) : cost_recompute(program, at);
    }
    free(cheap);
    return cost;
}

static void choosing_open(struct choosing *c, const struct program *program,
                          const struct recompute_goal *goal)
{
    *c = (struct choosing){.work_most = goal->work, .cost = costs_of(program)};
    replay_open(&c->replay, program, c->cost, false);
    c->replay.limit = goal->limit;
    groups_make(c, program);
    for (int g = 0; g < c->group_count; g++) c->groups[g].free = !goal->light || !c->groups[g].heavy;
    c->gain = memory_new((size_t)program->count, sizeof *c->gain);
    c->score = memory_new((size_t)c->group_count, sizeof *c->score);
    c->stamp = memory_new((size_t)c->group_count, sizeof *c->stamp);
}

static void choosing_close(struct choosing *c)
{
    for (int g = 0; g < c->group_count; g++) free(c->groups[g].at);
    free(c->groups);
    free(c->group_of);
    free(c->gain);
    free(c->score);
    free(c->stamp);
    free(c->cost);
    replay_close(&c->replay);
}

static double score_of(double gain, double seconds)
{
    return gain <= 0 ? 0 : gain / (seconds > 1e-9 ? seconds : 1e-9);
}

/* The reduction of the excess by a group's next step, per second that it costs. */
static double group_score(struct choosing *c, int g, double excess, double seconds)
{
    enum recompute_mode before = group_get(c, g);
    if (!c->groups[g].free || before == RECOMPUTE_EACH) return 0;
    group_set(c, g, before + 1);
    replay_run(&c->replay);
    group_set(c, g, before);
    double gain = excess - c->replay.excess, price = c->replay.seconds - seconds;
    return score_of(gain, price);
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
    int i = c->replay.walk.producer[value];
    return i < 0 ? -1 : c->group_of[i];
}

static void modes_note(const struct choosing *c, enum recompute_mode *modes)
{
    memcpy(modes, c->replay.modes, (size_t)c->replay.program->count * sizeof *modes);
}

static void modes_restore(struct choosing *c, const enum recompute_mode *modes)
{
    memcpy(c->replay.modes, modes, (size_t)c->replay.program->count * sizeof *modes);
}

static enum recompute_mode *modes_copy(const struct choosing *c)
{
    enum recompute_mode *copy = memory_new((size_t)c->replay.program->count, sizeof *copy);
    modes_note(c, copy);
    return copy;
}

/* A search for the change of several groups that reduces the excess most, at any cost. */
struct escape {
    enum recompute_mode *before, *best;
    double excess;               /* of the best */
};

static void escape_try(struct choosing *c, struct escape *e)
{
    replay_run(&c->replay);
    if (c->replay.excess < e->excess) {
        e->excess = c->replay.excess;
        modes_note(c, e->best);
    }
    modes_restore(c, e->before);
}

/* Recomputes a group for each reader, with all that is recomputed for it and up to `kept` kept activations in
 * a chain. */
static void recompute_chain(struct choosing *c, int g, int kept)
{
    const struct recompute_walk *walk = &c->replay.walk;
    const int reads = walk->again[group_at(c, g)].reads, *read = recompute_reads_of(walk, group_at(c, g));
    if (!c->groups[g].free) return;
    group_set(c, g, RECOMPUTE_EACH);
    for (int k = 0; k < reads; k++) {
        int input = group_of_value(c, read[k]);
        if (input < 0) continue;
        enum recompute_mode now = group_get(c, input);
        if (now == RECOMPUTE_ONCE) recompute_chain(c, input, kept);
        if (now == RECOMPUTE_NEVER && kept > 0) recompute_chain(c, input, kept - 1);
    }
}

static void escape_group(struct choosing *c, int g, struct escape *e)
{
    enum recompute_mode now = group_get(c, g);
    for (int kept = 0; kept <= CHAIN_KEPT; kept++) {
        recompute_chain(c, g, kept);
        escape_try(c, e);
    }
    for (enum recompute_mode to = RECOMPUTE_NEVER; to <= RECOMPUTE_EACH; to++) {
        if (to == now) continue;
        group_set(c, g, to);
        escape_try(c, e);
    }
}

/* True if a group, or what is recomputed for it, is alive while the limit is exceeded. */
static bool adds_to_excess(const struct choosing *c, int g)
{
    const struct recompute_walk *walk = &c->replay.walk;
    const int reads = walk->again[group_at(c, g)].reads, *read = recompute_reads_of(walk, group_at(c, g));
    if (c->gain[group_at(c, g)] > 0) return true;
    for (int k = 0; k < reads; k++) {
        int input = group_of_value(c, read[k]);
        if (input < 0) continue;
        bool kept = group_get(c, input) == RECOMPUTE_NEVER;
        if (kept ? c->gain[group_at(c, input)] > 0 : adds_to_excess(c, input)) return true;
    }
    return false;
}

/* When no single step helps: steps back and steps of several groups; the best of each group, if any helps. */
static bool choice_escape(struct choosing *c, double excess)
{
    struct escape e = {modes_copy(c), modes_copy(c), excess};
    for (int g = 0; g < c->group_count && e.excess > 0 && c->replay.work < c->work_most; g++) {
        if (!c->groups[g].free || !adds_to_excess(c, g)) continue;
        double before = e.excess;
        escape_group(c, g, &e);
        if (e.excess >= before) continue;
        modes_restore(c, e.best);
        modes_note(c, e.before);
    }
    free(e.before);
    free(e.best);
    return e.excess < excess;
}

/* Bounds all scores by gain, and by scores computed before the last choices: scores mostly, not always, fall
 * from choice to choice. */
static void scores_bound(struct choosing *c, bool anew)
{
    replay_gain_bounds(&c->replay, c->gain);
    for (int g = 0; g < c->group_count; g++) {
        double gain = 0, price = 0, known = anew ? INFINITY : c->score[g];
        for (int k = 0; k < c->groups[g].count; k++) {
            int i = c->groups[g].at[k];
            if (i < c->replay.begin || i >= c->replay.walk.end) continue;
            gain += c->gain[i];
            price += c->replay.cost[i];
        }
        c->score[g] = fmin(score_of(gain, price), known);
    }
}

/* The group with the best score; computes scores until that one is current. */
static int best_group(struct choosing *c, double excess, double seconds)
{
    c->made++;
    for (;;) {
        int best = best_known(c);
        if (c->stamp[best] == c->made || c->score[best] <= 0) return best;
        c->score[best] = group_score(c, best, excess, seconds);
        c->stamp[best] = c->made;
    }
}

/* Continues until nothing exceeds the limit or nothing helps; whether it fits. */
static bool choose_on(struct choosing *c)
{
    bool anew = true;
    for (replay_run(&c->replay); c->replay.excess > 0; replay_run(&c->replay)) {
        double excess = c->replay.excess, seconds = c->replay.seconds;
        if (c->replay.work > c->work_most) return false;
        scores_bound(c, anew);
        int best = best_group(c, excess, seconds);
        bool helps = c->score[best] > 0;
        if (helps) group_set(c, best, group_get(c, best) + 1);
        else if (anew && !choice_escape(c, excess)) return false;
        c->score[best] = INFINITY;
        anew = !helps;
    }
    return true;
}

/* A group, and the cost of one forward of it. */
struct priced {
    double cost;
    int group;
};

static int compare_costs(const void *a, const void *b)
{
    const struct priced *left = a, *right = b;
    return left->cost != right->cost ? (left->cost > right->cost ? -1 : 1) : left->group - right->group;
}

/* Groups by cost, the most expensive first. */
static int *by_cost(const struct choosing *c)
{
    struct priced *priced = memory_new((size_t)c->group_count, sizeof *priced);
    int *order = memory_new((size_t)c->group_count, sizeof *order);
    for (int g = 0; g < c->group_count; g++) priced[g] = (struct priced){c->cost[c->groups[g].at[0]], g};
    qsort(priced, (size_t)c->group_count, sizeof *priced, compare_costs);
    for (int g = 0; g < c->group_count; g++) order[g] = priced[g].group;
    free(priced);
    return order;
}

/* Undoes choices that are not needed: it still fits, and costs less. */
static void choice_prune(struct choosing *c, const int *order)
{
    replay_run(&c->replay);
    double seconds = c->replay.seconds;
    for (int o = 0; o < c->group_count && c->replay.work < c->work_most; o++) {
        int g = order[o];
        enum recompute_mode before = group_get(c, g);
        for (enum recompute_mode less = RECOMPUTE_NEVER; less < before; less++) {
            group_set(c, g, less);
            replay_run(&c->replay);
            if (c->replay.excess <= 0 && c->replay.seconds <= seconds) {
                seconds = c->replay.seconds;
                break;
            }
            group_set(c, g, before);
        }
    }
}

/* Simulated annealing. */
struct annealing {
    struct random random;
    double temperature, excess_price;        /* seconds; seconds per byte and instruction above the limit */
    double now;                  /* price of the present choice */
    double seconds;              /* of the best; INFINITY: none fits so far */
    int64_t peak;                /* of the best, where none fits: the least */
    bool any;                    /* the first one that fits will do */
    enum recompute_mode *best;
};

/* A kept activation is recomputed, another is mostly kept. */
static enum recompute_mode other_mode(struct random *random, enum recompute_mode mode)
{
    double number = random_uniform(random);
    if (mode == RECOMPUTE_NEVER) return number < 0.8 ? RECOMPUTE_ONCE : RECOMPUTE_EACH;
    if (number < 0.8) return RECOMPUTE_NEVER;
    return mode == RECOMPUTE_ONCE ? RECOMPUTE_EACH : RECOMPUTE_ONCE;
}

/* Changes a few groups, and keeps that or goes back. */
static void anneal_once(struct choosing *c, struct annealing *a)
{
    bool pair = random_uniform(&a->random) < ANNEAL_PAIRS;
    int changed[ANNEAL_MOST], count = pair ? 2 : 1 + (int)random_below(&a->random, ANNEAL_MOST);
    enum recompute_mode before[ANNEAL_MOST];
    for (int k = 0; k < count; k++) {
        changed[k] = (int)random_below(&a->random, (uint32_t)c->group_count);
        before[k] = group_get(c, changed[k]);
        if (c->groups[changed[k]].free) group_set(c, changed[k], other_mode(&a->random, before[k]));
    }
    replay_run(&c->replay);
    double price = c->replay.seconds + a->excess_price * c->replay.excess;
    if (price > a->now && random_uniform(&a->random) >= exp((a->now - price) / a->temperature)) {
        for (int k = count - 1; k >= 0; k--) group_set(c, changed[k], before[k]);
        return;
    }
    a->now = price;
    bool fits = c->replay.excess <= 0 && c->replay.seconds < a->seconds;
    bool nearer = a->any && c->replay.peak < a->peak;
    if (fits) a->seconds = c->replay.seconds;
    if (nearer) a->peak = c->replay.peak;
    if (fits || nearer) modes_note(c, a->best);
}

/* The excess of keeping everything. */
static double excess_of_keeping(struct choosing *c)
{
    enum recompute_mode *before = modes_copy(c);
    for (int g = 0; g < c->group_count; g++) group_set(c, g, RECOMPUTE_NEVER);
    replay_run(&c->replay);
    modes_restore(c, before);
    free(before);
    return c->replay.excess;
}

/* Cools down. */
static void anneal_from(struct choosing *c, struct annealing *a, double hot)
{
    int64_t begin = c->replay.work, most = a->any ? ANNEAL_ANY : ANNEAL_WORK;
    for (double done = 0; done < 1; done = (double)(c->replay.work - begin) / (double)most) {
        a->temperature = hot * pow(ANNEAL_COLD / ANNEAL_HOT, done);
        anneal_once(c, a);
        if (a->any && a->seconds < INFINITY) return;
    }
}

/* Choices that lie behind worse ones; from one that does not fit, the first that does. False: none was
 * found, and the choice is the one with the smallest peak. */
static bool choice_anneal(struct choosing *c)
{
    double excess = excess_of_keeping(c);
    replay_run(&c->replay);
    bool fits = c->replay.excess <= 0;
    struct annealing a = {.random = random_open(0, PURPOSE_CHOICE, 0, 0), .any = !fits,
                          .seconds = fits ? c->replay.seconds : INFINITY, .peak = c->replay.peak,
                          .best = modes_copy(c)};
    double hot = ANNEAL_HOT * c->replay.seconds;
    a.excess_price = excess > 0 ? ANNEAL_EXCESS * c->replay.seconds / excess : 0;
    a.now = c->replay.seconds + a.excess_price * c->replay.excess;
    for (int k = 0; k < (a.any ? 1 : ANNEAL_TIMES) && excess > 0; k++) {
        anneal_from(c, &a, hot);
        modes_restore(c, a.best);
        a.now = a.seconds;
    }
    free(a.best);
    return a.seconds < INFINITY;
}

bool recompute_choose(const struct program *program, const struct recompute_goal *goal,
                      enum recompute_mode *modes, struct recompute_forecast *forecast)
{
    struct choosing c;
    choosing_open(&c, program, goal);
    int *order = by_cost(&c);
    give_up_unread(&c);
    bool fits = choose_on(&c) || (!goal->light && c.replay.work < c.work_most && choice_anneal(&c));
    if (fits) {
        choice_prune(&c, order);
        if (!goal->any) choice_anneal(&c);
    }
    modes_note(&c, modes);
    recompute_measure(program, modes, forecast);
    forecast->work = c.replay.work;
    free(order);
    choosing_close(&c);
    return fits;
}

void recompute_measure(const struct program *program, const enum recompute_mode *modes,
                       struct recompute_forecast *forecast)
{
    struct replay replay;
    double *cost = costs_of(program);
    replay_open(&replay, program, cost, true);
    memcpy(replay.modes, modes, (size_t)program->count * sizeof *modes);
    replay_run(&replay);
    *forecast = (struct recompute_forecast){.seconds = replay.seconds, .bytes = replay.peak};
    free(cost);
    replay_close(&replay);
}
