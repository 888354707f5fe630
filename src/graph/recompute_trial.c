#include "graph/recompute_trial.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"
#include "graph/plan.h"

/* The sum of so many is within 64 bits, whatever is alive. */
#define SUM_AT_ONCE 4096

/* From a moment on so much more or less is alive. */
struct trial_event {
    int64_t moment;
    int64_t bytes;
};

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

/* Where a moment of the settled choice is among all; the one behind its end: the next. */
static int place_of(const struct trial *trial, int64_t moment)
{
    int i = (int)(moment >> 32);
    int64_t turn = moment - moment_of(i, 0);
    if (turn >= MOMENT_ITSELF) return trial->place[i] + (turn > MOMENT_ITSELF);
    return trial->place[i] - trial->walk->agains[i].count + (int)turn;
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
            change[place_of(trial, list->at[k].last + 1)] -= list->at[k].bytes;
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
    size_t length = (size_t)trial->length + 1;
    trial->over = memory_resize(trial->over, length, sizeof *trial->over);
    trial->excess_before = memory_resize(trial->excess_before, length, sizeof *trial->excess_before);
    int64_t *change = changes_of(trial), alive = 0;
    trial->peak = 0;
    trial->excess_before[0] = 0;
    for (int t = 0; t < trial->length; t++) {
        alive += change[t];
        if (alive > trial->peak) trial->peak = alive;
        trial->over[t] = alive - trial->limit;
        trial->excess_before[t + 1] = trial->excess_before[t] + (double)above(trial->over[t]);
    }
    trial->settled_excess = trial->excess_before[trial->length];
    begins_note(trial);
    free(change);
}

static void event_add(struct trial_event **events, int *count, int *room, struct trial_event event)
{
    if (*count == *room) {
        *room = 2 * *room + 64;
        *events = memory_resize(*events, (size_t)*room, sizeof **events);
    }
    (*events)[(*count)++] = event;
}

static void life_add(struct trial_event **events, int *count, int *room, const struct life *life)
{
    event_add(events, count, room, (struct trial_event){life->first, life->bytes});
    event_add(events, count, room, (struct trial_event){life->last + 1, -life->bytes});
}

/* Whether a moment is the same thing before and after. */
static bool is_fixed(const struct trial *trial, int64_t moment)
{
    int i = (int)(moment >> 32);
    return moment == moment_of(i, MOMENT_ITSELF) || trial->walk->change_round[i] != trial->walk->round;
}

static bool is_same(const struct trial *trial, const struct life *old, const struct life *now)
{
    return old->first == now->first && old->last == now->last && old->bytes == now->bytes &&
           is_fixed(trial, old->first) && is_fixed(trial, old->last);
}

static int compare_events(const void *a, const void *b)
{
    const struct trial_event *left = a, *right = b;
    return (left->moment > right->moment) - (left->moment < right->moment);
}

static void events_sort(struct trial_event *events, int count)
{
    if (count > 64) {
        qsort(events, (size_t)count, sizeof *events, compare_events);
        return;
    }
    for (int e = 1; e < count; e++) {
        struct trial_event event = events[e];
        int to = e;
        for (; to > 0 && events[to - 1].moment > event.moment; to--) events[to] = events[to - 1];
        events[to] = event;
    }
}

static void events_note(struct trial *trial)
{
    const struct lives *lives = &trial->lives;
    trial->old_count = trial->now_count = 0;
    for (int s = 0; s < lives->touched.count; s++) {
        const struct life_list *old = &lives->settled[lives->touched.at[s]];
        const struct life_list *now = &lives->now[lives->touched.at[s]];
        for (int k = 0; k < old->count || k < now->count; k++) {
            bool both = k < old->count && k < now->count;
            if (both && is_same(trial, &old->at[k], &now->at[k])) continue;
            if (k < old->count) life_add(&trial->old, &trial->old_count, &trial->old_room, &old->at[k]);
            if (k < now->count) life_add(&trial->now, &trial->now_count, &trial->now_room, &now->at[k]);
        }
    }
    events_sort(trial->old, trial->old_count);
    events_sort(trial->now, trial->now_count);
}

/* A way along the settled choice's time, with what differs. */
struct tour {
    const struct trial *trial;
    double excess;
    int place;               /* so far */
    int old, now;            /* the next events */
    int64_t gone, come;      /* bytes alive that no longer are, and that were not */
};

/* Goes on to a place. */
static void tour_go(struct tour *tour, int place)
{
    const struct trial *trial = tour->trial;
    int64_t more = tour->come - tour->gone;
    if (more != 0 && place > tour->place) {
        tour->excess -= trial->excess_before[place] - trial->excess_before[tour->place];
        for (int begin = tour->place, end; begin < place; begin = end) {
            end = place - begin > SUM_AT_ONCE ? begin + SUM_AT_ONCE : place;
            int64_t sum = 0;
            for (int t = begin; t < end; t++) sum += above(trial->over[t] + more);
            tour->excess += (double)sum;
        }
    }
    tour->place = place;
}

/* Lets pass what comes no later than a moment. */
static void tour_gone(struct tour *tour, int64_t moment)
{
    const struct trial *trial = tour->trial;
    while (tour->old < trial->old_count && trial->old[tour->old].moment <= moment)
        tour->gone += trial->old[tour->old++].bytes;
}

static void tour_come(struct tour *tour, int64_t moment)
{
    const struct trial *trial = tour->trial;
    while (tour->now < trial->now_count && trial->now[tour->now].moment <= moment)
        tour->come += trial->now[tour->now++].bytes;
}

/* Goes on until a moment, from event to event. */
static void tour_until(struct tour *tour, int64_t moment)
{
    const struct trial *trial = tour->trial;
    for (;;) {
        const struct trial_event *old = &trial->old[tour->old], *now = &trial->now[tour->now];
        int64_t next = moment;
        if (tour->old < trial->old_count && old->moment < next) next = old->moment;
        if (tour->now < trial->now_count && now->moment < next) next = now->moment;
        if (next == moment) return;
        tour_go(tour, place_of(trial, next));
        tour_gone(tour, next);
        tour_come(tour, next);
    }
}

/* Through an instruction before which other things are made again than were. What is alive there besides what
 * was touched began before them and ends with the instruction or later, or begins with it. */
static void tour_change(struct tour *tour, const struct rewalked *change)
{
    const struct trial *trial = tour->trial;
    int i = change->at, place = trial->place[i], before = place - trial->walk->agains[i].count;
    tour_until(tour, moment_of(i, 0));
    tour_go(tour, before);
    tour->excess -= trial->excess_before[place + 1] - trial->excess_before[before];
    tour_gone(tour, moment_of(i, MOMENT_ITSELF) - 1);
    int64_t begins = trial->begins[i], gone = tour->gone;
    tour_gone(tour, moment_of(i, MOMENT_ITSELF));
    int64_t other = trial->over[place] - begins - gone;
    for (int k = 0; k < change->count; k++) {
        int64_t producer = trial->walk->agains_now.at[change->first + k];
        tour_come(tour, moment_of(i, k));
        tour->excess += (double)above(other + tour->come + trial->extra[producer]);
    }
    tour_come(tour, moment_of(i, MOMENT_ITSELF));
    tour->excess += (double)above(trial->over[place] + tour->come - tour->gone);
    tour->place = place + 1;
}

static double excess_of(const struct trial *trial)
{
    struct tour tour = {.trial = trial, .excess = trial->settled_excess};
    for (int c = 0; c < trial->walk->change_count; c++) tour_change(&tour, &trial->walk->changes[c]);
    tour_until(&tour, INT64_MAX);
    return tour.excess;
}

static double seconds_of(const struct trial *trial, int *more)
{
    const struct walk *walk = trial->walk;
    double seconds = trial->settled_seconds;
    *more = 0;
    for (int c = 0; c < walk->change_count; c++) {
        const struct rewalked *change = &walk->changes[c];
        const struct numbers *was = &walk->agains[change->at];
        for (int k = 0; k < change->count; k++) seconds += trial->cost[walk->agains_now.at[change->first + k]];
        for (int k = 0; k < was->count; k++) seconds -= trial->cost[was->at[k]];
        *more += change->count - was->count;
    }
    return seconds;
}

void trial_play(struct trial *trial)
{
    int more;
    walk_play(trial->walk);
    lives_play(&trial->lives);
    events_note(trial);
    trial->excess = excess_of(trial);
    trial->seconds = seconds_of(trial, &more);
    trial->work += trial->length + more;
}

void trial_settle(struct trial *trial)
{
    lives_settle(&trial->lives);
    walk_settle(trial->walk);
    lay_out(trial);
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
    free(trial->excess_before);
    free(trial->begins);
    free(trial->cost);
    free(trial->extra);
    free(trial->old);
    free(trial->now);
}
