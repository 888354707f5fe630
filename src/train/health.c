#include "train/health.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/run.h"

#define STUCK_AGAIN 1000      /* steps after which it is said again that they overflow at the lowest scale */
#define DIAGNOSES_MAX 20      /* of one process: a diagnosis takes as long as a step or two */
#define LOOK_EVERY 100        /* steps between looks at gradients and parameters,
                               * besides those at epochs' ends */
#define DEAD_LOOKS 3          /* so often in a row must a gradient have been zero throughout */
#define NORM_STEPS 100        /* that the mean of norms remembers, about ... */
#define NORM_FIRST 2          /* ... and without which it means nothing */
#define EXPLODED 10           /* as an exponent of 2: how far above the mean a norm has exploded */

/* A parameter whose gradient was zero throughout at the last looks. */
struct still {
    int looks;
    int64_t since;            /* the step of the first of them */
};

void health_close(struct health *health)
{
    free(health->still);
    *health = (struct health){0};
}

/* Numbers that are not finite. */

/* "image 17 (photos/a.jpg)": an image of the batch by its index in the data. */
static void add_image(const struct dataset *dataset, int64_t index, struct text *text)
{
    char *path = dataset->format->image_path ? dataset->format->image_path(dataset, index) : NULL;
    text_add(text, "image %" PRId64, index);
    if (path) text_add(text, " (%s)", path);
    free(path);
}

void health_add(const struct exec_finding *found, const struct dataset *dataset, const struct loader *loader,
                const struct batch *batch, struct text *text)
{
    int last = found->last < batch->count ? found->last : batch->count - 1, count = last - found->first + 1;
    text_add(text, "%s", found->what.text);
    if (count < 1) return;
    text_add(text, count > 1 ? ", in %d images of the batch, from " : ", in ", count);
    add_image(dataset, loader_image(loader, batch, found->first), text);
    if (count == 1) return;
    text_add(text, " to ");
    add_image(dataset, loader_image(loader, batch, last), text);
}

static void add_symptom(const struct run *run, double loss, bool stuck, struct text *text)
{
    bool dynamic = run->session->hyper.scaling.dynamic;
    double scale = run->state.scaler.scale;
    if (!stuck || !run->state.skipped) text_add(text, "the loss is %s", isnan(loss) ? "NaN" : "Inf");
    else if (!dynamic) text_add(text, "gradients are not finite at loss scale %g", scale);
    else text_add(text, "the loss scale is stuck at its lowest, %g: gradients are not finite", scale);
}

static void add_cause(const struct run *run, const struct batch *batch, const struct exec_finding *found,
                      struct text *text)
{
    if (found->what.text[0]) health_add(found, run->session->data.train.dataset, run->loader, batch, text);
    else if (run->queue.count > 0)
        text_add(text, "repeated with the next step's parameters, the step is finite");
    else text_add(text, "repeated, the step is finite: something passed that is not in the numbers");
}

static enum status diagnose(struct run *run, const struct batch *batch, double loss, bool stuck)
{
    struct exec_finding found;
    struct text text = {0};
    TRY(exec_diagnose(run->training.exec, &found));
    text_add(&text, "step %" PRId64 " (epoch %" PRId64 "): ", run->state.step, run->position.epoch + 1);
    add_symptom(run, loss, stuck, &text);
    text_add(&text, ": ");
    add_cause(run, batch, &found, &text);
    bool stop = run->session->settings->train.on_nan == ON_NAN_STOP;
    bool last = ++run->health.diagnoses == DIAGNOSES_MAX;
    enum status status = stop ? fail(FAILED, "%s; train.on_nan=stop ends the run", text.data) : OK;
    run->health.ended = stop;
    if (!stop)
        log_warning("%s; such steps are skipped%s", text.data, last ? ", and no longer looked into" : "");
    text_free(&text);
    return status;
}

/* A skipped step is looked into when it is not something that the loss scale will cure: where the loss
 * itself is not finite, which no scale touches, or when the scale cannot go lower. */
static enum status check_finite(struct run *run, const struct batch *batch, double loss)
{
    struct health *health = &run->health;
    const struct scaler *scaler = &run->state.scaler;
    int over = scaler->floor_overflows - step_stuck(run->session);
    bool stuck = run->state.skipped && over >= 0, was_lost = health->lost;
    health->lost = !isfinite(loss);
    bool due = stuck ? over % STUCK_AGAIN == 0 : health->lost && !was_lost;
    if (!due || health->diagnoses >= DIAGNOSES_MAX) return OK;
    return diagnose(run, batch, loss, stuck);
}

/* Whether the epoch ends here without any update. While gradients alone overflow, a loss scale that can still
 * come down may cure that in the next one. */
static bool is_dead(const struct run *run, double loss)
{
    const struct position *position = &run->position;
    const struct hyperparameters *hyper = &run->session->hyper;
    bool falls = hyper->scaling.dynamic && run->state.scaler.floor_overflows == 0 && isfinite(loss);
    return position->batch == hyper->steps_per_epoch && position->skipped == position->batch && !falls;
}

static enum status check_dead(struct run *run, const struct batch *batch, double loss)
{
    struct exec_finding found;
    struct text text = {0};
    if (!is_dead(run, loss)) return OK;
    TRY(exec_diagnose(run->training.exec, &found));
    text_add(&text, "epoch %" PRId64 " ends without an update: all of its %" PRId64 " steps were skipped (%"
             PRId64 " of %" PRId64 " in the run), the last because ", run->position.epoch + 1,
             run->position.batch, run->state.skipped_steps, run->state.step);
    add_symptom(run, loss, isfinite(loss), &text);
    text_add(&text, ": ");
    add_cause(run, batch, &found, &text);
    if (!found.input)
        text_add(&text, "; optimizer.lr (%g) is the usual cause", run->session->settings->optimizer.lr);
    run->health.ended = true;
    enum status status = fail(FAILED, "%s", text.data);
    text_free(&text);
    return status;
}

/* Norms. */

/* The parameter with the largest gradient. */
static enum status find_largest(const struct run *run, const char **name)
{
    const struct graph *graph = &run->session->graphs.training;
    double largest = -1;
    for (int p = 0; p < graph->param_count; p++) {
        if (run->training.program.gradients[p] < 0) continue;
        int64_t count = shape_count(graph->params[p].spec.shape);
        float *gradient = memory_new((size_t)count, sizeof *gradient);
        enum status status = exec_gradient(run->training.exec, p, gradient);
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

static enum status say_exploding(const struct run *run, double times)
{
    const char *largest = NULL;
    if (run->queue.count == 0) TRY(find_largest(run, &largest));
    const char *joint = largest ? "; the largest is that of " : "";
    log_warning("step %" PRId64 ": exploding gradients: their norm is %.3g, %.3g times what it has been%s%s",
                run->state.step, (double)run->state.grad_norm, times, joint, largest ? largest : "");
    return OK;
}

/* Against the geometric mean: norms of a healthy run vary by factors. */
static enum status check_norm(struct run *run)
{
    struct health *health = &run->health;
    double norm = run->state.grad_norm;
    if (run->state.skipped || !(norm > 0) || isinf(norm)) return OK;
    double above = log2(norm) - health->norm;
    bool was_exploding = health->exploding;
    health->exploding = health->norms >= NORM_FIRST && above > EXPLODED;
    if (health->exploding && !was_exploding) TRY(say_exploding(run, exp2(above)));
    if (health->exploding) return OK;
    if (health->norms < NORM_STEPS) health->norms++;
    health->norm += above / health->norms;
    return OK;
}

/* Gradients that are zero. */

struct dead {
    const char *first;        /* of those that became so at this look */
    int64_t since;
    int new, all, trained;    /* parameters: became so at this look, are so, could be */
};

static enum status look_at_gradients(struct run *run, struct dead *dead)
{
    const struct graph *graph = &run->session->graphs.training;
    struct health *health = &run->health;
    if (!health->still) health->still = memory_new((size_t)graph->param_count, sizeof *health->still);
    for (int p = 0; p < graph->param_count; p++) {
        struct still *still = &health->still[p];
        bool zero = false;
        if (run->training.program.gradients[p] < 0) continue;
        TRY(exec_gradient_is_zero(run->training.exec, p, &zero));
        still->looks = zero ? still->looks + 1 : 0;
        if (still->looks == 1) still->since = run->state.step;
        dead->trained++;
        dead->all += still->looks >= DEAD_LOOKS;
        if (still->looks != DEAD_LOOKS) continue;
        if (dead->new++ > 0) continue;
        dead->first = graph->params[p].name;
        dead->since = still->since;
    }
    return OK;
}

static enum status say_dead(struct run *run, const struct dead *dead)
{
    struct text text = {0};
    struct reason silent;
    text_add(&text, "step %" PRId64 ": ", run->state.step);
    enum status status = exec_find_silent(run->training.exec, &silent);
    if (status == OK) {
        if (silent.text[0]) text_add(&text, "dead layer: %s; ", silent.text);
        if (dead->all == dead->trained) text_add(&text, "every gradient has");
        else if (dead->new == 1) text_add(&text, "the gradient of %s has", dead->first);
        else
            text_add(&text, "the gradients of %s and of %d more parameters have", dead->first, dead->new - 1);
        log_warning("%s been zero throughout since step %" PRId64, text.data, dead->since);
    }
    text_free(&text);
    return status;
}

static bool any_is_still(const struct run *run)
{
    for (int p = 0; p < run->session->graphs.training.param_count; p++)
        if (run->health.still[p].looks > 0) return true;
    return false;
}

static enum status check_gradients(struct run *run)
{
    struct dead dead = {0};
    if (run->state.skipped) return OK;
    TRY(look_at_gradients(run, &dead));
    run->health.doubt = any_is_still(run);
    return dead.new > 0 ? say_dead(run, &dead) : OK;
}

/* Some, like running statistics, can be lost without any step of training being touched. */
static enum status check_params(struct run *run)
{
    struct exec_finding found;
    if (run->health.broken) return OK;
    TRY(exec_check_params(run->training.exec, &found));
    run->health.broken = found.what.text[0] != '\0';
    if (run->health.broken) log_warning("step %" PRId64 ": %s", run->state.step, found.what.text);
    return OK;
}

/* While the next step is under way. Where a gradient may be zero the next look is a whole one. */
static void glimpse(struct run *run)
{
    struct health *health = &run->health;
    const struct exec *exec = run->training.exec;
    if (run->state.skipped) return;
    health->doubt = !exec_glimpsed(exec);
    for (int p = 0; !health->doubt && p < run->session->graphs.training.param_count; p++)
        health->doubt = run->training.program.gradients[p] >= 0 && exec_glimpse_zero(exec, p);
    const char *lost = exec_glimpsed(exec) && !health->broken ? exec_glimpse_lost(exec) : NULL;
    if (lost) log_warning("step %" PRId64 ": parameter %s holds NaN or Inf", run->state.step, lost);
    if (lost) health->broken = true;
}

bool health_looks(int64_t step)
{
    return step % LOOK_EVERY == 0;
}

bool health_looks_alone(const struct run *run, int64_t step)
{
    return run->health.doubt && health_looks(step);
}

enum status health_step(struct run *run, const struct queued_step *made, double loss)
{
    bool last = run->position.batch == run->session->hyper.steps_per_epoch;
    TRY(check_dead(run, made->batch, loss));
    TRY(check_finite(run, made->batch, loss));
    TRY(check_norm(run));
    if (!health_looks(run->steps) && !last) return OK;
    if (run->queue.count > 0) {
        glimpse(run);
        return OK;
    }
    TRY(check_gradients(run));
    return check_params(run);
}
