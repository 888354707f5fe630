#include "task/schedule.h"

#include <math.h>
#include <string.h>

static const double pi = 3.14159265358979323846;

static struct schedule_rate rate_of(const struct schedule *schedule, double lr)
{
    return (struct schedule_rate){lr, schedule->momentum};
}

static struct schedule_rate constant(const struct schedule *schedule, double t, double total)
{
    return rate_of(schedule, schedule->lr);
}

/* torch's MultiStepLR. Milestones are counted from the beginning of the run, warm-up included. */
static struct schedule_rate step(const struct schedule *schedule, double t, double total)
{
    double lr = schedule->lr;
    for (int i = 0; i < schedule->milestones.count; i++)
        if (t + schedule->warmup >= schedule->milestones.value[i]) lr *= schedule->gamma;
    return rate_of(schedule, lr);
}

/* Half a cosine wave: at fraction 0 `from`, at fraction 1 `to`. */
static double anneal(double from, double to, double fraction)
{
    return to + (from - to) * 0.5 * (1 + cos(pi * fraction));
}

/* torch's CosineAnnealingLR (Loshchilov, Hutter 2017, without restarts). */
static struct schedule_rate cosine(const struct schedule *schedule, double t, double total)
{
    return rate_of(schedule, anneal(schedule->lr, schedule->min_lr, t / total));
}

/* torch's PolynomialLR, ending at min_lr rather than 0. */
static struct schedule_rate poly(const struct schedule *schedule, double t, double total)
{
    double left = pow(1 - t / total, schedule->power);
    return rate_of(schedule, schedule->min_lr + (schedule->lr - schedule->min_lr) * left);
}

/* torch's OneCycleLR with two cosine phases (Smith, Topin 2018): lr / div up to lr, then down to
 * lr / (div * final_div), while momentum (adam, adamw, lamb: beta1) goes from 0.95 to 0.85 and back. */
static struct schedule_rate onecycle(const struct schedule *schedule, double t, double total)
{
    double first = schedule->lr / schedule->div, last = first / schedule->final_div;
    double top = schedule->pct_start * total - 1, end = total - 1;
    if (t <= top) {
        double fraction = top > 0 ? t / top : 1;
        return (struct schedule_rate){anneal(first, schedule->lr, fraction), anneal(0.95, 0.85, fraction)};
    }
    double fraction = end > top ? (t - top) / (end - top) : 1;
    return (struct schedule_rate){anneal(schedule->lr, last, fraction), anneal(0.85, 0.95, fraction)};
}

/* torch's ReduceLROnPlateau: schedule_plateau decides at evaluations. */
static struct schedule_rate plateau(const struct schedule *schedule, double t, double total)
{
    return rate_of(schedule, schedule->reduced > 0 ? schedule->reduced : schedule->lr);
}

#define PLATEAU_EPS 1e-8       /* a smaller reduction is none */

bool schedule_plateau(const struct schedule *schedule, struct plateau *state, double loss)
{
    if (state->lr == 0) *state = (struct plateau){.lr = schedule->lr, .best = INFINITY};
    bool better = loss < state->best * (1 - schedule->threshold);
    if (better) state->best = loss;
    state->bad = better ? 0 : state->bad + 1;
    if (state->cooldown > 0) {
        state->cooldown--;
        state->bad = 0;
    }
    if (state->bad <= schedule->patience) return false;
    double before = state->lr, lr = fmax(before * schedule->factor, schedule->min_lr);
    state->cooldown = schedule->cooldown;
    state->bad = 0;
    if (before - lr > PLATEAU_EPS) state->lr = lr;
    return state->lr < before;
}

const struct schedule_row schedule_table[] = {
    {"constant", "the same rate throughout", false, constant},
    {"step", "times gamma at every milestone", false, step},
    {"cosine", "half a cosine wave down to min_lr", false, cosine},
    {"poly", "(1 - t / T) ^ power down to min_lr", false, poly},
    {"onecycle", "up from lr / div to lr, then down to lr / div / final_div; momentum or beta1 the other way",
     true, onecycle},
    {"plateau", "times factor when the validation loss has not fallen for more than patience evaluations",
     false, plateau},
    {0},
};

const struct schedule_row *schedule_find(const char *name)
{
    for (const struct schedule_row *row = schedule_table; row->name; row++)
        if (strcmp(row->name, name) == 0) return row;
    return NULL;
}

static double warm(const struct schedule *schedule, double fraction)
{
    double start = schedule->warmup_start;
    return schedule->lr * (start + (1 - start) * fraction);
}

static struct schedule_rate before_swa(const struct schedule *schedule, double t)
{
    double total = (double)schedule->total;
    if (schedule->row->own_warmup) return schedule->row->rate(schedule, fmin(t, total - 1), total);
    if (t < schedule->warmup)
        return rate_of(schedule, warm(schedule, fmin(1, (t + 1) / schedule->warmup)));
    double after = fmax(1, total - schedule->warmup);
    return schedule->row->rate(schedule, fmin(t - schedule->warmup, after), after);
}

/* torch's SWALR, at every update. */
struct schedule_rate schedule_at(const struct schedule *schedule, int64_t update)
{
    double begin = schedule->swa_begin, t = (double)update;
    if (!schedule->swa || t < begin) return before_swa(schedule, t);
    struct schedule_rate rate = before_swa(schedule, begin);
    double fraction = schedule->swa_anneal > 0 ? fmin(1, (t - begin) / schedule->swa_anneal) : 1;
    rate.lr = schedule->swa_linear ? rate.lr + (schedule->swa_lr - rate.lr) * fraction
                                   : anneal(rate.lr, schedule->swa_lr, fraction);
    return rate;
}
