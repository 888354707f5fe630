#include "evaluate/knn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "explain/inference.h"
#include "explain/layer_output.h"
#include "session/session_loader.h"

#define TEMPERATURE 0.07

/* Features of images, of length 1. */
struct bank {
    int64_t count, features;
    float *rows;                 /* [count][features] */
    int32_t *labels;             /* [count] */
    int64_t *places;             /* [count] in the images of the data set */
    int64_t bad;                 /* images that cannot be used, and are not in it */
};

static void bank_free(struct bank *bank)
{
    free(bank->rows);
    free(bank->labels);
    free(bank->places);
}

static enum status take_batch(void *context, const struct batch *batch, const float *outputs)
{
    struct bank *bank = context;
    for (int i = 0; i < batch->count; i++) {
        const float *from = outputs + i * bank->features;
        float *row = bank->rows + bank->count * bank->features;
        double squares = 0;
        for (int64_t f = 0; f < bank->features; f++) squares += (double)from[f] * from[f];
        if (batch->labels[i] < 0 || !isfinite(squares)) {
            bank->bad++;
            continue;
        }
        for (int64_t f = 0; f < bank->features; f++) row[f] = (float)(from[f] / fmax(sqrt(squares), 1e-30));
        bank->labels[bank->count] = batch->labels[i];
        bank->places[bank->count++] = batch->first + i;
    }
    return OK;
}

static enum status bank_fill(const struct session *session, const struct layer_output *output,
                             const struct images *of, struct bank *bank)
{
    struct images images = *of;
    images.h = session->data.val.h;
    images.w = session->data.val.w;
    struct loader *loader;
    *bank = (struct bank){.features = output->count};
    bank->rows = memory_try((size_t)images.count * (size_t)output->count, sizeof *bank->rows);
    if (!bank->rows) return fail(FAILED, "not enough host memory for features of %lld images",
                                 (long long)images.count);
    bank->labels = memory_new((size_t)images.count, sizeof *bank->labels);
    bank->places = memory_new((size_t)images.count, sizeof *bank->places);
    TRY(session_loader_open(session, &images, &(struct loader_views){0}, &loader));
    const struct inference inference = {session, &output->step, loader, take_batch, bank};
    enum status status = inference_run(&inference);
    loader_close(loader);
    if (status == OK && bank->count == 0) status = fail(BAD_DATA, "there is no image to compute features of");
    return status;
}

/* ---- Neighbours ---- */

struct neighbour {
    float cosine;
    int32_t label;
};

static float cosine_of(const float *a, const float *b, int64_t count)
{
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

/* The nearest, in falling order; of equals, the first in the data set. */
static void find_nearest(const struct bank *bank, const float *row, int k, struct neighbour *nearest)
{
    int found = 0;
    for (int64_t i = 0; i < bank->count; i++) {
        struct neighbour next = {cosine_of(row, bank->rows + i * bank->features, bank->features),
                                 bank->labels[i]};
        int at = found;
        while (at > 0 && nearest[at - 1].cosine < next.cosine) at--;
        if (at == k) continue;
        if (found < k) found++;
        memmove(&nearest[at + 1], &nearest[at], (size_t)(found - at - 1) * sizeof next);
        nearest[at] = next;
    }
}

/* The votes for each class. */
static void count_votes(const struct neighbour *nearest, int k, int classes, double *votes)
{
    for (int c = 0; c < classes; c++) votes[c] = 0;
    for (int i = 0; i < k; i++)
        votes[nearest[i].label] += exp((nearest[i].cosine - nearest[0].cosine) / TEMPERATURE);
}

struct verdict {
    int32_t predicted, rank;     /* the number of classes with more votes than the true one */
    float confidence;
};

static struct verdict judge(const double *votes, int classes, int label)
{
    struct verdict verdict = {0};
    double sum = 0;
    for (int c = 0; c < classes; c++) {
        sum += votes[c];
        if (votes[c] > votes[verdict.predicted]) verdict.predicted = c;
        verdict.rank += votes[c] > votes[label] || (votes[c] == votes[label] && c < label);
    }
    verdict.confidence = (float)(votes[verdict.predicted] / sum);
    return verdict;
}

static void judge_all(const struct bank *train, const struct bank *val, int k, int classes,
                      struct verdict *verdicts)
{
#pragma omp parallel
    {
        struct neighbour *nearest = memory_new((size_t)k + 1, sizeof *nearest);
        double *votes = memory_new((size_t)classes, sizeof *votes);
#pragma omp for schedule(static)
        for (int64_t i = 0; i < val->count; i++) {
            find_nearest(train, val->rows + i * val->features, k, nearest);
            count_votes(nearest, k, classes, votes);
            verdicts[i] = judge(votes, classes, val->labels[i]);
        }
        free(nearest);
        free(votes);
    }
}

static void sum_up(const struct bank *val, const struct verdict *verdicts, int classes, int k,
                   struct evaluation *evaluation)
{
    int64_t top1 = 0, top5 = 0;
    *evaluation = (struct evaluation){.images = val->count, .bad = val->bad, .loss = NAN, .neighbours = k};
    evaluation->cells = memory_new((size_t)val->count, sizeof *evaluation->cells);
    evaluation->seen = val->count + val->bad;
    evaluation->answers = memory_new((size_t)evaluation->seen, sizeof *evaluation->answers);
    for (int64_t i = 0; i < evaluation->seen; i++) evaluation->answers[i].label = -1;
    for (int64_t i = 0; i < val->count; i++) {
        const struct verdict *is = &verdicts[i];
        top1 += is->rank < 1;
        top5 += is->rank < 5;
        evaluation->cells[i] = val->labels[i] * (int64_t)classes + is->predicted;
        evaluation->answers[val->places[i]] = (struct answer){val->labels[i], is->predicted, is->confidence};
        if (is->rank > 0)
            evaluation_keep_mistake(evaluation, (struct mistake){
                .image = val->places[i], .label = val->labels[i], .predicted = is->predicted,
                .confidence = is->confidence});
    }
    evaluation->errors = val->count - top1;
    evaluation->metrics[0] = evaluation->top1 = (double)top1 / (double)val->count;
    evaluation->metrics[1] = evaluation->top5 = (double)top5 / (double)val->count;
    evaluation_sort(evaluation);
}

static enum status judge_images(const struct session *session, const struct layer_output *output, int k,
                                struct evaluation *evaluation)
{
    struct bank train = {0}, val = {0};
    enum status status = bank_fill(session, output, &session->data.train, &train);
    if (status == OK) status = bank_fill(session, output, &session->data.val, &val);
    if (status == OK && k > train.count)
        status = fail(USAGE, "--knn: there are %lld training images, not %d", (long long)train.count, k);
    if (status == OK) {
        struct verdict *verdicts = memory_new((size_t)val.count, sizeof *verdicts);
        judge_all(&train, &val, k, session->data.classes, verdicts);
        sum_up(&val, verdicts, session->data.classes, k, evaluation);
        free(verdicts);
    }
    bank_free(&train);
    bank_free(&val);
    return status;
}

enum status knn_evaluate(const struct session *session, struct store *store, int k,
                         struct evaluation *evaluation)
{
    struct layer_output output;
    double start = clock_seconds();
    int node;
    if (!session->hyper.task->ranked) return fail(USAGE, "--knn needs images of one class each");
    TRY(layer_output_find(&session->graphs.evaluation, NULL, &node));
    TRY(layer_output_open(session, store, node, true, &(struct exec_memory){0}, &output));
    enum status status = judge_images(session, &output, k, evaluation);
    layer_output_close(&output);
    if (status == OK) evaluation->seconds = clock_seconds() - start;
    return status;
}
