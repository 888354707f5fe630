#include "evaluate/evaluate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "evaluate/evaluate_masks.h"
#include "evaluate/finding.h"
#include "input/gpu_preprocessing.h"
#include "session/session_loader.h"
#include "session/step_queue.h"
#include "explain/views.h"

#define LOST -1                /* in the place of a predicted class */

struct counting {
    const struct session *session;
    const struct images *images;
    const struct step *step;
    const struct evaluate_options *options;
    struct ranks *ranks, alone;  /* the options', or the one rank that there is */
    struct evaluation sums;
    int32_t *predictions;        /* of one batch */
    float *confidences;
    float *rows, *all_rows;      /* of a batch, of this rank and of all: outputs and targets, or scores; NULL:
                                  * none are kept */
    int width;                   /* of a row */
    bool several;                /* views of an image */
    struct views views;          /* of one batch, if so */
    int64_t seen;                /* images, bad ones too */
    int64_t top1, top5;
    double loss;
    bool lost;                   /* it is known not to be finite */
    struct step_queue queue;
};

int evaluate_best(const float *logits, int classes)
{
    int best = 0;
    for (int i = 1; i < classes; i++)
        if (logits[i] > logits[best] || (isnan(logits[best]) && !isnan(logits[i]))) best = i;
    return best;
}

double evaluate_confidence(const float *logits, int classes, int best, float *scores)
{
    double others = 0;
    for (int i = 0; i < best; i++) others += exp((double)logits[i] - logits[best]);
    for (int i = best + 1; i < classes; i++) others += exp((double)logits[i] - logits[best]);
    double log_sum = log1p(others);
    for (int i = 0; scores && i < classes; i++)
        scores[i] = (float)((double)logits[i] - logits[best] - log_sum);
    if (scores && others < 1) scores[best] = (float)(log_sum - 2 * M_LN2 - log(others));
    return 1 / (1 + others);
}

static const float *logits_of(const struct counting *counting)
{
    return counting->several ? counting->views.logits : exec_logits(counting->step->exec);
}

static bool all_finite(const float *values, int count)
{
    for (int i = 0; i < count; i++)
        if (!isfinite(values[i])) return false;
    return true;
}

/* Outputs as people get them, NaN if one is not finite, followed by the data set's own targets. */
static void take_rows(struct counting *counting, const struct batch *batch)
{
    const struct data *data = &counting->session->data;
    const struct dataset *dataset = counting->images->dataset;
    size_t classes = (size_t)data->classes;
    for (int i = 0; i < batch->count; i++) {
        float *row = counting->rows + 2 * classes * (size_t)i;
        memcpy(row, logits_of(counting) + classes * (size_t)i, classes * sizeof *row);
        if (all_finite(row, data->classes)) counting->session->hyper.task->activate(data, row);
        else for (size_t k = 0; k < classes; k++) row[k] = NAN;
        memset(row + classes, 0, classes * sizeof *row);
        int64_t image = loader_image(counting->queue.loader, batch, i);
        if (batch->labels[i] >= 0 && dataset->target > TARGET_CLASS)
            dataset_target(dataset, image, data->value_mean, data->value_std, row + classes);
    }
}

static void predict_batch(struct counting *counting, const struct batch *batch)
{
    int classes = counting->session->data.classes;
    if (counting->sums.outputs.values) {
        take_rows(counting, batch);
        return;
    }
    for (int i = 0; i < batch->count; i++) {
        const float *logits = logits_of(counting) + (int64_t)i * classes;
        float *scores = counting->rows ? counting->rows + (int64_t)i * classes : NULL;
        int best = evaluate_best(logits, classes);
        bool finite = all_finite(logits, classes);
        counting->predictions[i] = finite ? best : LOST;
        counting->confidences[i] = (float)evaluate_confidence(logits, classes, best, finite ? scores : NULL);
        for (int k = 0; scores && !finite && k < classes; k++) scores[k] = NAN;
    }
}

/* Gives unreadable images a row of NaN, which no finite output equals, and numbers in their own unit. */
static enum status give_logits(const struct counting *counting, const struct batch *batch)
{
    const struct evaluate_options *options = counting->options;
    const float *logits = logits_of(counting);
    const struct data *data = &counting->session->data;
    int classes = data->classes;
    size_t count = (size_t)batch->count * (size_t)classes;
    bool number = data->target == TARGET_NUMBER;
    if (batch->bad == 0 && !number) return options->logits(options->context, logits, batch->count, classes);
    float *rows = memory_new(count, sizeof *rows);
    for (size_t i = 0; i < count; i++) rows[i] = number ? (float)task_value(data, logits[i]) : logits[i];
    for (size_t i = 0; i < count; i++)
        if (batch->labels[i / (size_t)classes] < 0) rows[i] = NAN;
    enum status status = options->logits(options->context, rows, batch->count, classes);
    free(rows);
    return status;
}

/* False: other views follow. */
static bool take_view(struct counting *counting, const struct batch *batch)
{
    const float *logits = exec_logits(counting->step->exec);
    bool last = batch->view + 1 == batch->views;
    views_add(&counting->views, logits, batch->count, batch->weight, batch->view == 0);
    if (last)
        views_end(&counting->views, counting->session->hyper.loss, batch->labels, batch->targets,
                  batch->count);
    return last;
}

/* The outputs of the image at a place of the gathered batch are kept. */
static void keep_outputs(struct counting *counting, int place)
{
    struct evaluation *sums = &counting->sums;
    size_t classes = (size_t)counting->session->data.classes, at = (size_t)sums->images * classes;
    const float *row = counting->all_rows + 2 * classes * (size_t)place;
    memcpy(sums->outputs.values + at, row, classes * sizeof *row);
    memcpy(sums->outputs.targets + at, row + classes, classes * sizeof *row);
    sums->places[sums->images] = counting->seen + place;
    sums->lost += !isfinite(row[0]) || !isfinite(counting->ranks->losses[place]);
    const struct mistake mistake = {.image = counting->seen + place, .row = sums->images,
                                    .confidence = counting->ranks->losses[place]};
    evaluation_keep_mistake(sums, mistake);
    sums->outputs.images = ++sums->images;
}

static void count_class(struct counting *counting, int place)
{
    const struct ranks *all = counting->ranks;
    bool lost = all->predictions[place] == LOST || !isfinite(all->losses[place]);
    int64_t cell = (int64_t)all->labels[place] * counting->session->data.classes + all->predictions[place];
    counting->sums.lost += lost;
    counting->top1 += !lost && all->ranks[place] < 1;
    counting->top5 += !lost && all->ranks[place] < 5;
    *array_push(counting->sums.cells, counting->sums.images) = lost ? -1 - all->labels[place] : cell;
    if (lost || all->predictions[place] == all->labels[place]) return;
    const struct mistake mistake = {
        .image = counting->seen + place, .label = all->labels[place], .predicted = all->predictions[place],
        .confidence = all->confidences[place]};
    evaluation_keep_mistake(&counting->sums, mistake);
}

/* Keeps what is known of every image of a class. Scores of a class lie together. */
static void keep_answers(struct counting *counting)
{
    const struct ranks *all = counting->ranks;
    struct evaluation *sums = &counting->sums;
    int classes = counting->session->data.classes;
    for (int i = 0; i < all->count; i++) {
        bool lost = all->predictions[i] == LOST || !isfinite(all->losses[i]);
        sums->answers[counting->seen + i] =
            (struct answer){all->labels[i], lost ? -1 : all->predictions[i], all->confidences[i]};
    }
    for (int c = 0; sums->scores && c < classes; c++)
        for (int i = 0; i < all->count; i++)
            sums->scores[c * sums->seen + counting->seen + i] =
                all->labels[i] < 0 ? (float)NAN : counting->all_rows[(int64_t)i * classes + c];
}

static enum status count_batch(struct counting *counting, const struct batch *batch)
{
    bool several = counting->several;
    if (several && !take_view(counting, batch)) return OK;
    predict_batch(counting, batch);
    const struct ranks_batch own = {
        .count = batch->count, .bad = batch->bad, .labels = batch->labels,
        .losses = several ? counting->views.losses : exec_losses(counting->step->exec),
        .ranks = several ? counting->views.ranks : exec_ranks(counting->step->exec),
        .predictions = counting->predictions, .confidences = counting->confidences,
    };
    TRY(ranks_gather(counting->ranks, &own));
    if (counting->rows)
        TRY(ranks_gather_rows(counting->ranks, counting->rows, counting->width, counting->all_rows));
    const struct ranks *all = counting->ranks;
    counting->sums.bad += all->bad;
    for (int i = 0; i < all->count; i++) {
        if (all->labels[i] < 0) continue;
        counting->loss += all->losses[i];
        if (counting->sums.outputs.values) keep_outputs(counting, i);
        else count_class(counting, i);
    }
    if (counting->sums.answers) keep_answers(counting);
    counting->seen += all->count;
    ranks_report(counting->ranks, COMM_EVALUATION, counting->ranks->progress.step);
    return counting->options->logits ? give_logits(counting, batch) : OK;
}

static enum status launch_batch(struct counting *counting, bool *more)
{
    struct queued_step next = {0};
    if (ranks_stop(counting->ranks)) return STOPPED;
    TRY(loader_next(counting->queue.loader, &next.batch, NULL));
    *more = next.batch != NULL;
    if (!next.batch) return OK;
    const struct exec_batch input = gpu_preprocessing_batch(counting->session->gpu_preprocessing, next.batch);
    return step_queue_start(&counting->queue, &next, &input);
}

/* Names the cause the first time that a loss is not finite. */
static enum status diagnose_batch(struct counting *counting, const struct batch *batch)
{
    struct exec_finding found;
    struct text text = {0};
    if (counting->lost || counting->sums.lost == 0) return OK;
    counting->lost = true;
    if (!counting->ranks->own_lost) return OK;
    if (counting->options->lost && *counting->options->lost) return OK;
    TRY(exec_diagnose(counting->step->exec, &found));
    finding_add(&found, counting->images->dataset, counting->queue.loader, batch, &text);
    log_warning("evaluation: the loss is not finite: %s", text.data);
    text_free(&text);
    return OK;
}

/* The oldest queued batch. */
static enum status collect_batch(struct counting *counting)
{
    struct queued_step made;
    TRY(step_queue_collect(&counting->queue, &made));
    enum status status = count_batch(counting, made.batch);
    if (status == OK) status = diagnose_batch(counting, made.batch);
    step_queue_return(&counting->queue, &made);
    return status;
}

static enum status count_all(struct counting *counting)
{
    bool more = true;
    TRY(loader_start(counting->queue.loader, 0, 0));
    while (more || counting->queue.count > 0) {
        while (more && !step_queue_full(&counting->queue)) TRY(launch_batch(counting, &more));
        if (counting->queue.count > 0) TRY(collect_batch(counting));
    }
    return OK;
}

static void open_rows(struct counting *counting, int width)
{
    size_t share = (size_t)counting->ranks->share, ranks = (size_t)comm_count(counting->ranks->comm);
    counting->width = width;
    counting->rows = memory_new(share * (size_t)width, sizeof(float));
    counting->all_rows = memory_new(ranks * share * (size_t)width, sizeof(float));
}

static void open_outputs(struct counting *counting)
{
    size_t classes = (size_t)counting->session->data.classes, images = (size_t)counting->images->count;
    open_rows(counting, 2 * (int)classes);
    counting->sums.outputs = (struct task_outputs){
        .outputs = (int)classes,
        .values = memory_new(images * classes, sizeof(float)),
        .targets = memory_new(images * classes, sizeof(float)),
    };
    counting->sums.places = memory_new(images, sizeof(int64_t));
}

static void open_answers(struct counting *counting)
{
    size_t classes = (size_t)counting->session->data.classes, images = (size_t)counting->images->count;
    counting->sums.seen = counting->images->count;
    counting->sums.answers = memory_new(images, sizeof *counting->sums.answers);
    if (images * classes > counting->options->scores_bytes / sizeof(float)) return;
    open_rows(counting, (int)classes);
    counting->sums.scores = memory_new(images * classes, sizeof(float));
}

static enum status counting_open(const struct session *session, const struct images *images,
                                 const struct step *step, const struct evaluate_options *options,
                                 struct counting *counting)
{
    struct loader *loader = options->loader ? *options->loader : NULL;
    int batch = step->compiled.program.batch;
    if (!loader) TRY(session_loader_open(session, images, &options->views, &loader));
    if (options->loader) *options->loader = loader;
    *counting = (struct counting){
        .session = session, .images = images, .step = step, .options = options,
        .ranks = options->ranks ? options->ranks : &counting->alone,
        .predictions = memory_new((size_t)batch, sizeof *counting->predictions),
        .confidences = memory_new((size_t)batch, sizeof *counting->confidences),
        .several = options->views.mirrored || options->views.shift > 0,
        .queue = {.device = session->device, .step = step, .loader = loader},
    };
    if (!options->ranks) ranks_open(NULL, batch, NULL, &counting->alone);
    if (session->hyper.task->measure) open_outputs(counting);
    else open_answers(counting);
    if (counting->several) counting->views = views_open(batch, session->data.classes);
    return OK;
}

static void counting_close(struct counting *counting)
{
    step_queue_drop(&counting->queue);
    if (!counting->options->loader) loader_close(counting->queue.loader);
    ranks_close(&counting->alone);
    free(counting->predictions);
    free(counting->confidences);
    free(counting->rows);
    free(counting->all_rows);
    views_close(&counting->views);
}

static void take_means(struct counting *counting)
{
    struct evaluation *sums = &counting->sums;
    double images = (double)sums->images;
    const struct data_task *task = counting->session->hyper.task;
    sums->loss = sums->lost > 0 && isfinite(counting->loss) ? (double)NAN : counting->loss / images;
    if (task->measure) {
        sums->top1 = sums->top5 = NAN;
        task->measure(&sums->outputs, &counting->session->data, sums->metrics);
        return;
    }
    evaluation_sort(sums);
    sums->errors = sums->images - counting->top1;
    sums->metrics[0] = sums->top1 = (double)counting->top1 / images;
    sums->metrics[1] = sums->top5 = (double)counting->top5 / images;
}

enum status evaluate(const struct session *session, const struct images *images, const struct step *step,
                     const struct evaluate_options *options, struct evaluation *evaluation)
{
    struct counting counting;
    double start = clock_seconds();
    if (session->data.target == TARGET_MASK)
        return evaluate_masks(session, images, step, options, evaluation);
    TRY(counting_open(session, images, step, options, &counting));
    enum status status = count_all(&counting);
    counting_close(&counting);
    if (status == OK && counting.sums.images == 0)
        status = fail(BAD_DATA, "there is no image to evaluate on");
    if (status != OK) {
        evaluation_free(&counting.sums);
        return status;
    }
    take_means(&counting);
    counting.sums.seconds = clock_seconds() - start;
    if (options->lost) *options->lost = counting.sums.lost > 0;
    *evaluation = counting.sums;
    return OK;
}
