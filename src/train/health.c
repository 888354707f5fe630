#include "train/health.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "evaluate/finding.h"

#define STUCK_AGAIN 1000      /* steps after which overflows at the lowest scale are reported again */
#define DIAGNOSES_MAX 20      /* of one process: a diagnosis takes as long as a step or two */
#define CHECK_EVERY 100       /* steps between checks of gradients and parameters, besides those at the ends
                               * of epochs */
#define DEAD_CHECKS 3         /* number of consecutive checks in which a gradient must have been zero */
#define NORM_STEPS 100        /* window of the mean of norms, about ... */
#define NORM_FIRST 2          /* ... and the minimum of steps for it */
#define EXPLODED 10           /* as an exponent of 2: ratio to the mean at which a norm has exploded */

/* A parameter whose gradient was zero in the last checks. */
struct still {
    int checks;
    int64_t since;            /* the step of the first of them */
};

void health_open(const struct health_options *options, struct health *health)
{
    *health = (struct health){.options = *options};
}

void health_close(struct health *health)
{
    free(health->still);
    *health = (struct health){0};
}

/* Numbers that are not finite. */

static void add_symptom(const struct health *health, const struct health_step *step, bool stuck,
                        struct text *text)
{
    bool dynamic = health->options.hyper->scaling.dynamic;
    double scale = step->state->scaler.scale;
    if (!stuck || !step->state->skipped) text_add(text, "the loss is %s", isnan(step->loss) ? "NaN" : "Inf");
    else if (!dynamic) text_add(text, "gradients are not finite at loss scale %g", scale);
    else text_add(text, "gradients are not finite at the minimum loss scale, %g", scale);
}

static void add_cause(const struct health *health, const struct health_step *step,
                      const struct exec_finding *found, struct text *text)
{
    const struct health_options *options = &health->options;
    if (step->elsewhere) text_add(text, "it comes from another rank's images");
    else if (found->what.text[0]) finding_add(found, options->dataset, options->loader, step->batch, text);
    else if (options->hyper->stages > 1)
        text_add(text, "no cause was found in this stage of the pipeline; its step is only repeated up to "
                 "messages from other stages");
    else if (step->queued > 0)
        text_add(text, "the step is finite when repeated with the next step's parameters");
    else text_add(text, "the step is finite when repeated: the cause was transient");
}

static enum status diagnose(struct health *health, const struct health_step *step, bool stuck)
{
    struct exec_finding found;
    struct text text = {0};
    TRY(exec_diagnose(health->options.training->exec, &found));
    text_add(&text, "step %" PRId64 " (epoch %" PRId64 "): ", step->state->step, step->position->epoch + 1);
    add_symptom(health, step, stuck, &text);
    text_add(&text, ": ");
    add_cause(health, step, &found, &text);
    bool stop = health->options.stop, last = ++health->diagnoses == DIAGNOSES_MAX;
    enum status status = stop ? fail(FAILED, "%s; train.on_nan=stop ends the run", text.data) : OK;
    health->ended = stop;
    if (!stop)
        log_warning("%s; such steps are skipped%s", text.data, last ? ", and no longer diagnosed" : "");
    text_free(&text);
    return status;
}

/* A skipped step is diagnosed if a lower loss scale would not help: if the loss itself is not finite, or if
 * the scale is at its minimum. */
static enum status check_finite(struct health *health, const struct health_step *step)
{
    const struct scaler *scaler = &step->state->scaler;
    int over = scaler->floor_overflows - step_stuck(health->options.hyper);
    bool stuck = step->state->skipped && over >= 0, was_lost = health->lost;
    health->lost = !isfinite(step->loss);
    bool due = stuck ? over % STUCK_AGAIN == 0 : health->lost && !was_lost;
    if (!due || health->diagnoses >= DIAGNOSES_MAX) return OK;
    return diagnose(health, step, stuck);
}

/* True if the epoch ends here without any update. If only gradients overflow, a loss scale that can still
 * shrink may solve that in the next one. */
static bool is_dead(const struct health *health, const struct health_step *step)
{
    const struct position *position = step->position;
    const struct hyperparameters *hyper = health->options.hyper;
    bool falls = hyper->scaling.dynamic && step->state->scaler.floor_overflows == 0 && isfinite(step->loss);
    return position->batch == hyper->steps_per_epoch && position->skipped == position->batch && !falls;
}

/* Whatever the data, a fixed scale can be too high for gradients of a loss that is finite. */
static void add_usual_cause(const struct health *health, const struct health_step *step, struct text *text)
{
    const struct hyperparameters *hyper = health->options.hyper;
    double scale = step->state->scaler.scale;
    bool scaled = !hyper->scaling.dynamic && scale > 1 && isfinite(step->loss);
    text_add(text, "; ");
    if (scaled) text_add(text, "amp.loss_scale (%g), which is fixed, or ", scale);
    text_add(text, "optimizer.lr (%g", hyper->schedule.lr);
    if (step->lr != hyper->schedule.lr) text_add(text, ", in this step %g", step->lr);
    text_add(text, ") is the usual cause");
}

static enum status check_dead(struct health *health, const struct health_step *step)
{
    struct exec_finding found;
    struct text text = {0};
    if (!is_dead(health, step)) return OK;
    TRY(exec_diagnose(health->options.training->exec, &found));
    text_add(&text, "epoch %" PRId64 " ends without an update: all of its %" PRId64 " steps were skipped (%"
             PRId64 " of %" PRId64 " in the run), the last because ", step->position->epoch + 1,
             step->position->batch, step->state->skipped_steps, step->state->step);
    add_symptom(health, step, isfinite(step->loss), &text);
    text_add(&text, ": ");
    add_cause(health, step, &found, &text);
    if (!found.input) add_usual_cause(health, step, &text);
    health->ended = true;
    enum status status = fail(FAILED, "%s", text.data);
    text_free(&text);
    return status;
}

static bool is_trained(const struct health *health, int param)
{
    return health->options.training->compiled.program.gradients[param] >= 0;
}

/* Norms. */

/* The parameter with the largest gradient. */
static enum status find_largest(const struct health *health, const char **name)
{
    const struct graph *graph = health->options.graph;
    double largest = -1;
    for (int p = 0; p < graph->param_count; p++) {
        if (!is_trained(health, p)) continue;
        int64_t count = shape_count(graph->params[p].spec.shape);
        float *gradient = memory_new((size_t)count, sizeof *gradient);
        enum status status = exec_gradient(health->options.training->exec, p, gradient);
        double squares = 0;
        for (int64_t i = 0; status == OK && i < count; i++) squares += (double)gradient[i] * gradient[i];
        free(gradient);
        TRY(status);
        if (squares <= largest) continue;
        largest = squares;
        *name = graph->params[p].name;
    }
    return OK;
}

static enum status say_exploding(const struct health *health, const struct health_step *step, double times)
{
    const char *largest = NULL;
    if (step->queued == 0) TRY(find_largest(health, &largest));
    const char *joint = largest ? "; the largest contribution is from " : "";
    log_warning("step %" PRId64 ": exploding gradients: their norm is %.3g, %.3g times the recent one%s%s",
                step->state->step, (double)step->state->grad_norm, times, joint, largest ? largest : "");
    return OK;
}

/* Against the geometric mean: norms of a healthy run vary by factors. */
static enum status check_norm(struct health *health, const struct health_step *step)
{
    double norm = step->state->grad_norm;
    if (step->state->skipped || !(norm > 0) || isinf(norm)) return OK;
    double above = log2(norm) - health->norm;
    bool was_exploding = health->exploding;
    health->exploding = health->norms >= NORM_FIRST && above > EXPLODED;
    if (health->exploding && !was_exploding) TRY(say_exploding(health, step, exp2(above)));
    if (health->exploding) return OK;
    if (health->norms < NORM_STEPS) health->norms++;
    health->norm += above / health->norms;
    return OK;
}

/* Gradients that are zero. */

struct dead {
    const char *first;        /* of those that became so in this check */
    int64_t since;
    int new, all, trained;    /* parameters: became so at this look, are so, could be */
};

static enum status look_at_gradients(struct health *health, const struct health_step *step,
                                     struct dead *dead)
{
    const struct graph *graph = health->options.graph;
    if (!health->still) health->still = memory_new((size_t)graph->param_count, sizeof *health->still);
    for (int p = 0; p < graph->param_count; p++) {
        struct still *still = &health->still[p];
        bool zero = false;
        if (!is_trained(health, p)) continue;
        TRY(exec_gradient_is_zero(health->options.training->exec, p, &zero));
        still->checks = zero ? still->checks + 1 : 0;
        if (still->checks == 1) still->since = step->state->step;
        dead->trained++;
        dead->all += still->checks >= DEAD_CHECKS;
        if (still->checks != DEAD_CHECKS) continue;
        if (dead->new++ > 0) continue;
        dead->first = graph->params[p].name;
        dead->since = still->since;
    }
    return OK;
}

static enum status say_dead(const struct health *health, const struct health_step *step,
                            const struct dead *dead)
{
    struct text text = {0};
    struct reason silent;
    text_add(&text, "step %" PRId64 ": ", step->state->step);
    enum status status = exec_find_silent(health->options.training->exec, &silent);
    if (status == OK) {
        if (silent.text[0]) text_add(&text, "dead layer: %s; ", silent.text);
        if (dead->all == dead->trained) text_add(&text, "all gradients have");
        else if (dead->new == 1) text_add(&text, "the gradient of %s has", dead->first);
        else
            text_add(&text, "the gradients of %s and of %d more parameters have", dead->first, dead->new - 1);
        log_warning("%s been zero since step %" PRId64, text.data, dead->since);
    }
    text_free(&text);
    return status;
}

static bool any_is_still(const struct health *health)
{
    for (int p = 0; p < health->options.graph->param_count; p++)
        if (health->still[p].checks > 0) return true;
    return false;
}

static enum status check_gradients(struct health *health, const struct health_step *step)
{
    struct dead dead = {0};
    if (step->state->skipped) return OK;
    TRY(look_at_gradients(health, step, &dead));
    health->doubt = any_is_still(health);
    return dead.new > 0 ? say_dead(health, step, &dead) : OK;
}

/* Some, like running statistics, can become invalid without affecting a training step. */
static enum status check_params(struct health *health, const struct health_step *step)
{
    struct exec_finding found;
    if (health->broken) return OK;
    TRY(exec_check_params(health->options.training->exec, &found));
    health->broken = found.what.text[0] != '\0';
    if (health->broken) log_warning("step %" PRId64 ": %s", step->state->step, found.what.text);
    return OK;
}

/* True if nothing is wrong, as far as a glimpse shows. If a gradient may be zero, the next check is a full
 * one. */
static bool check_glimpse(struct health *health, const struct health_step *step)
{
    const struct exec *exec = health->options.training->exec;
    if (step->state->skipped) return false;
    health->doubt = !exec_glimpsed(exec);
    for (int p = 0; !health->doubt && p < health->options.graph->param_count; p++)
        health->doubt = is_trained(health, p) && exec_glimpse_zero(exec, p);
    const char *lost = exec_glimpsed(exec) && !health->broken ? exec_glimpse_not_finite(exec) : NULL;
    if (lost) log_warning("step %" PRId64 ": parameter %s contains NaN or Inf", step->state->step, lost);
    if (lost) health->broken = true;
    return !health->doubt;
}

bool health_check_due(int64_t step)
{
    return step % CHECK_EVERY == 0;
}

bool health_check_needs_idle(const struct health *health, int64_t step)
{
    return health->doubt && health_check_due(step);
}

enum status health_step(struct health *health, const struct health_step *step)
{
    bool last = step->position->batch == health->options.hyper->steps_per_epoch;
    TRY(check_dead(health, step));
    TRY(check_finite(health, step));
    TRY(check_norm(health, step));
    if (!health_check_due(step->steps) && !last) return OK;
    bool full = step->queued == 0 && health->doubt;
    if (!full && (check_glimpse(health, step) || step->queued > 0)) return OK;
    TRY(check_gradients(health, step));
    return check_params(health, step);
}
