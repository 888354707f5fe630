#include "compile/recompute_trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/plan.h"

/* What takes as long as a step of the work that is counted: so many places looked at, or laid out; and how
 * many steps playing takes besides. */
#define PLACES_A_STEP 16
#define LAY_PLACES_A_STEP 2
#define PLAY_STEPS 16

/* The sum of so many is within 64 bits, whatever is alive. */
#define SUM_AT_ONCE 4096

void trial_set(struct trial *trial, int i, enum remake remake)
{
    walk_set(trial->walk, i, remake);
}

enum remake trial_get(const struct trial *trial, int i)
{
    return trial->walk->remake[i];
}

static int64_t above(int64_t over)
{
    return over > 0 ? over : 0;
}

/* The next moment; behind the last instruction comes one more, before which nothing is made again. */
static int64_t moment_behind(int64_t moment)
{
    int i = (int)(moment >> 32);
    return moment == moment_of(i, MOMENT_ITSELF) ? moment_of(i + 1, 0) : moment + 1;
}

/* Where a moment of the settled choice is among all. */
static int place_of(const struct trial *trial, int64_t moment)
{
    int i = (int)(moment >> 32);
    if (moment == moment_of(i, MOMENT_ITSELF)) return trial->place[i];
    return trial->place[i] - trial->walk->agains[i].count + (int)(moment - moment_of(i, 0));
}

static int64_t *changes_of(const struct trial *trial)
{
    const struct lives *lives = &trial->lives;
    int64_t *change = memory_new((size_t)trial->length + 1, sizeof *change);
    for (int i = 0; i < trial->program->count; i++) {
        const struct numbers *agains = &trial->walk->agains[i];
        change[trial->place[i]] += lives->begins[i];
        change[trial->place[i] + 1] -= lives->ends[i];
        for (int k = 0; k < agains->count; k++) {
            int place = trial->place[i] - agains->count + k;
            change[place] += trial->extra[agains->at[k]];
            change[place + 1] -= trial->extra[agains->at[k]];
        }
    }
    for (int s = 0; s < lives->changing.count; s++) {
        const struct life_list *list = &lives->settled[lives->changing.at[s]];
        for (int k = 0; k < list->count; k++) {
            change[place_of(trial, list->at[k].first)] += list->at[k].bytes;
            change[place_of(trial, moment_behind(list->at[k].last))] -= list->at[k].bytes;
        }
    }
    return change;
}

static void begins_note(struct trial *trial)
{
    const struct lives *lives = &trial->lives;
    for (int i = 0; i < trial->program->count; i++) trial->begins[i] = lives->begins[i];
    for (int s = 0; s < lives->changing.count; s++) {
        const struct life_list *list = &lives->settled[lives->changing.at[s]];
        for (int k = 0; k < list->count; k++) {
            int i = (int)(list->at[k].first >> 32);
            if (list->at[k].first == moment_of(i, MOMENT_ITSELF)) trial->begins[i] += list->at[k].bytes;
        }
    }
}

/* Lays the settled choice out along time. */
static void lay_out(struct trial *trial)
{
    trial->length = 0;
    for (int i = 0; i < trial->program->count; i++) {
        trial->length += trial->walk->agains[i].count;
        trial->place[i] = trial->length++;
    }
    trial->place[trial->program->count] = trial->length;
    size_t length = (size_t)trial->length + 1;
    trial->over = memory_resize(trial->over, length, sizeof *trial->over);
    trial->more = memory_resize(trial->more, length, sizeof *trial->more);
    int64_t *change = changes_of(trial), alive = 0;
    trial->peak = 0;
    trial->settled_excess = 0;
    for (int t = 0; t < trial->length; t++) {
        alive += change[t];
        if (alive > trial->peak) trial->peak = alive;
        trial->over[t] = alive - trial->limit;
        trial->settled_excess += (double)above(trial->over[t]);
    }
    memset(trial->more, 0, length * sizeof *trial->more);
    begins_note(trial);
    free(change);
}

/* Room for what changes, with nothing in it. */
static void changes_begin(struct trial *trial)
{
    const struct walk *walk = trial->walk;
    trial->first = trial->length;
    trial->end = 0;
    if (walk->agains_now.count > trial->inside_room) {
        trial->inside_room = 2 * walk->agains_now.count;
        trial->inside = memory_resize(trial->inside, (size_t)trial->inside_room, sizeof *trial->inside);
    }
    if (walk->change_count > trial->gone_room) {
        trial->gone_room = 2 * walk->change_count;
        trial->gone = memory_resize(trial->gone, (size_t)trial->gone_room, sizeof *trial->gone);
    }
    for (int k = 0; k < walk->agains_now.count; k++) trial->inside[k] = 0;
    for (int c = 0; c < walk->change_count; c++) trial->gone[c] = 0;
}

static void more_from(struct trial *trial, int place, int64_t bytes)
{
    trial->more[place] += bytes;
    if (place < trial->first) trial->first = place;
    if (place > trial->end) trial->end = place;
}

/* The change in which a moment is, before the instruction itself; NULL. */
static const struct rewalked *change_at(const struct trial *trial, int64_t moment)
{
    const struct walk *walk = trial->walk;
    int i = (int)(moment >> 32);
    bool before = moment < moment_of(i, MOMENT_ITSELF);
    return before && walk->change_round[i] == walk->round ? &walk->changes[walk->change_of[i]] : NULL;
}

static void gone_from(struct trial *trial, int64_t moment, int64_t bytes)
{
    const struct rewalked *change = change_at(trial, moment);
    if (change) trial->gone[change - trial->walk->changes] += bytes;
    else more_from(trial, place_of(trial, moment), -bytes);
}

static void come_from(struct trial *trial, int64_t moment, int64_t bytes)
{
    const struct rewalked *change = change_at(trial, moment);
    int turn = change ? (int)(moment - moment_of(change->at, 0)) : 0;
    if (change && turn < change->count) trial->inside[change->first + turn] += bytes;
    else more_from(trial, change ? trial->place[change->at] : place_of(trial, moment), bytes);
}

/* Whether it is the same bytes at the same time. */
static bool is_same(const struct trial *trial, const struct life *old, const struct life *now)
{
    return old->first == now->first && old->last == now->last && old->bytes == now->bytes &&
           !change_at(trial, old->first) && !change_at(trial, old->last);
}

static void changes_note(struct trial *trial)
{
    const struct lives *lives = &trial->lives;
    for (int s = 0; s < lives->touched.count; s++) {
        const struct life_list *old = &lives->settled[lives->touched.at[s]];
        const struct life_list *now = &lives->now[lives->touched.at[s]];
        trial->work += old->count + now->count;
        for (int k = 0; k < old->count || k < now->count; k++) {
            const struct life *was = k < old->count ? &old->at[k] : NULL;
            const struct life *is = k < now->count ? &now->at[k] : NULL;
            if (was && is && is_same(trial, was, is)) continue;
            if (was) gone_from(trial, was->first, was->bytes);
            if (was) gone_from(trial, moment_behind(was->last), -was->bytes);
            if (is) come_from(trial, is->first, is->bytes);
            if (is) come_from(trial, moment_behind(is->last), -is->bytes);
        }
    }
}

/* A way along the settled choice's time, with what differs. */
struct tour {
    struct trial *trial;
    double excess;
    int place;               /* so far */
    int64_t more;            /* alive than was */
};

/* Goes on to a place. What has been passed is as if nothing differed. */
static void tour_go(struct tour *tour, int place)
{
    struct trial *trial = tour->trial;
    int64_t more = tour->more;
    trial->work += (place - tour->place) / PLACES_A_STEP;
    for (int begin = tour->place, end; begin < place; begin = end) {
        int64_t sum = 0;
        end = place - begin > SUM_AT_ONCE ? begin + SUM_AT_ONCE : place;
        for (int t = begin; t < end; t++) {
            more += trial->more[t];
            trial->more[t] = 0;
            sum += above(trial->over[t] + more) - above(trial->over[t]);
        }
        tour->excess += (double)sum;
    }
    tour->more = more;
    tour->place = place;
}

/* Through an instruction before which other things are made again than were. Whatever of what is the same
 * is alive there began before them and ends with the instruction or later, or begins with it. */
static void tour_change(struct tour *tour, const struct rewalked *change, int64_t gone)
{
    struct trial *trial = tour->trial;
    int place = trial->place[change->at], before = place - trial->walk->agains[change->at].count;
    if (tour->place < before) tour_go(tour, before);
    for (int t = before; t <= place; t++) tour->excess -= (double)above(trial->over[t]);
    tour->more -= gone;
    for (int k = change->first; k < change->first + change->count; k++) {
        int64_t extra = trial->extra[trial->walk->agains_now.at[k]];
        tour->more += trial->inside[k];
        tour->excess += (double)above(trial->over[place] - trial->begins[change->at] + tour->more + extra);
    }
    tour->more += trial->more[place];
    trial->more[place] = 0;
    tour->excess += (double)above(trial->over[place] + tour->more);
    tour->place = place + 1;
}

static double excess_of(struct trial *trial)
{
    const struct walk *walk = trial->walk;
    changes_begin(trial);
    changes_note(trial);
    struct tour tour = {.trial = trial, .excess = trial->settled_excess, .place = trial->first};
    for (int c = 0; c < walk->change_count; c++) {
        int i = walk->changes[c].at, before = trial->place[i] - walk->agains[i].count;
        if (before < tour.place && c == 0) tour.place = before;
        tour_change(&tour, &walk->changes[c], trial->gone[c]);
    }
    if (tour.place < trial->end) tour_go(&tour, trial->end);
    if (trial->end >= trial->first) trial->more[trial->end] = 0;
    return tour.excess;
}

static double seconds_of(const struct trial *trial)
{
    const struct walk *walk = trial->walk;
    double seconds = trial->settled_seconds;
    for (int c = 0; c < walk->change_count; c++) {
        const struct rewalked *change = &walk->changes[c];
        const struct numbers *was = &walk->agains[change->at];
        for (int k = 0; k < change->count; k++)
            seconds += trial->cost[walk->agains_now.at[change->first + k]];
        for (int k = 0; k < was->count; k++) seconds -= trial->cost[was->at[k]];
    }
    return seconds;
}

void trial_play(struct trial *trial)
{
    int64_t before = trial->walk->work + trial->lives.work;
    walk_play(trial->walk);
    lives_play(&trial->lives);
    trial->excess = excess_of(trial);
    trial->seconds = seconds_of(trial);
    trial->work += PLAY_STEPS + trial->walk->work + trial->lives.work - before;
}

void trial_settle(struct trial *trial)
{
    lives_settle(&trial->lives);
    walk_settle(trial->walk);
    lay_out(trial);
    trial->work += trial->length / LAY_PLACES_A_STEP;
    trial->settled_seconds = trial->seconds;
}

static void calls_note(struct trial *trial, const double *cost)
{
    const struct program *program = trial->program;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        trial->cost[i] = TRIAL_TICK * nearbyint(cost[i] / TRIAL_TICK);
        if (at->workspace >= 0) trial->extra[i] += plan_bytes(&program->values[at->workspace]);
        if (at->sums_given) trial->extra[i] += plan_bytes(&program->values[at->sums]);
    }
}

struct trial trial_open(const struct program *program, const double *cost, int64_t limit)
{
    size_t count = (size_t)program->count + 1;
    struct trial trial = {.program = program, .limit = limit, .walk = walk_open(program)};
    trial.lives = lives_open(trial.walk);
    trial.cost = memory_new(count, sizeof *trial.cost);
    trial.extra = memory_new(count, sizeof *trial.extra);
    trial.place = memory_new(count, sizeof *trial.place);
    trial.begins = memory_new(count, sizeof *trial.begins);
    calls_note(&trial, cost);
    lay_out(&trial);
    trial.excess = trial.settled_excess;
    return trial;
}

void trial_close(struct trial *trial)
{
    walk_close(trial->walk);
    lives_close(&trial->lives);
    free(trial->place);
    free(trial->over);
    free(trial->begins);
    free(trial->cost);
    free(trial->extra);
    free(trial->more);
    free(trial->inside);
    free(trial->gone);
}
