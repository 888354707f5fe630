#include "evaluate/scores.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/memory.h"
#include "task/ranking.h"

static double share(int64_t part, int64_t of)
{
    return of > 0 ? (double)part / (double)of : (double)NAN;
}

/* A probability, and whether it is one of what is there. */
static void add_bin(struct scores *scores, double probability, bool right)
{
    int place = (int)ceil(probability * SCORES_BINS) - 1;
    struct score_bin *bin = &scores->bins[place < 0 ? 0 : place >= SCORES_BINS ? SCORES_BINS - 1 : place];
    bin->count++;
    bin->right += right;
    bin->probability += probability;
}

static void add_steps(struct scores *scores, double probability, bool right)
{
    scores->count++;
    for (int i = 0; i < SCORES_STEPS && probability >= scores->steps[i].threshold; i++) {
        scores->steps[i].taken++;
        scores->steps[i].right += right;
    }
}

static double ece_of(const struct scores *scores)
{
    double sum = 0;
    int64_t count = 0;
    for (int i = 0; i < SCORES_BINS; i++) {
        sum += fabs((double)scores->bins[i].right - scores->bins[i].probability);
        count += scores->bins[i].count;
    }
    return count > 0 ? sum / (double)count : (double)NAN;
}

/* Classes. */

static void count_answer(const struct answer *answer, struct scores *scores)
{
    bool two = scores->classes == 2, right = answer->predicted == answer->label;
    scores->each[answer->label].images++;
    scores->positives += !two || answer->label == 1;
    if (answer->predicted < 0) {
        scores->count++;
        return;
    }
    scores->each[answer->predicted].predicted++;
    scores->each[answer->label].hits += right;
    double confidence = (double)answer->confidence;
    add_bin(scores, confidence, right);
    if (two) add_steps(scores, answer->predicted == 1 ? confidence : 1 - confidence, answer->label == 1);
    else add_steps(scores, confidence, right);
}

static void put_ranking(struct ranking ranking, struct class_score *score)
{
    score->values.roc_auc = ranking.roc_auc;
    score->values.average_precision = ranking.average_precision;
}

static void rank_class(const struct evaluation *evaluation, int class, uint8_t *sides,
                       struct class_score *score)
{
    for (int64_t i = 0; i < evaluation->seen; i++) {
        int label = evaluation->answers[i].label;
        sides[i] = label < 0 ? RANKING_NONE : label == class ? RANKING_POSITIVE : RANKING_NEGATIVE;
    }
    put_ranking(ranking_of(evaluation->scores + class * evaluation->seen, 1, sides, evaluation->seen), score);
}

static void score_classes(const struct evaluation *evaluation, struct scores *scores)
{
    scores->positive = scores->classes == 2 ? 1 : -1;
    for (int64_t i = 0; i < evaluation->seen; i++)
        if (evaluation->answers[i].label >= 0) count_answer(&evaluation->answers[i], scores);
    scores->ranked = evaluation->scores != NULL;
#pragma omp parallel if (scores->ranked)
    {
        uint8_t *sides = memory_new((size_t)evaluation->seen + 1, sizeof *sides);
#pragma omp for schedule(dynamic)
        for (int c = 0; c < scores->classes; c++)
            if (scores->ranked) rank_class(evaluation, c, sides, &scores->each[c]);
        free(sides);
    }
}

/* Labels. */

static void score_label(const struct task_outputs *outputs, int label, double threshold, uint8_t *sides,
                        struct scores *scores)
{
    struct class_score *score = &scores->each[label];
    const float *values = outputs->values + label, *targets = outputs->targets + label;
    for (int64_t i = 0; i < outputs->images; i++) {
        double probability = (double)values[i * outputs->outputs];
        bool positive = targets[i * outputs->outputs] > 0.5f, predicted = probability >= threshold;
        sides[i] = positive ? RANKING_POSITIVE : RANKING_NEGATIVE;
        score->images += positive;
        score->predicted += predicted;
        score->hits += positive && predicted;
        add_steps(scores, probability, positive);
        if (isfinite(probability)) add_bin(scores, probability, positive);
    }
    scores->positives += score->images;
    put_ranking(ranking_of(values, outputs->outputs, sides, outputs->images), score);
}

static void score_labels(const struct task_outputs *outputs, const struct data *data, struct scores *scores)
{
    uint8_t *sides = memory_new((size_t)outputs->images + 1, sizeof *sides);
    scores->positive = -1;
    scores->ranked = true;
    for (int i = 0; i < scores->classes; i++)
        score_label(outputs, i, data->thresholds ? data->thresholds[i] : 0.5, sides, scores);
    free(sides);
}

/* Means. */

/* `score` is the offset of one in struct score_values. */
static double mean_of(const struct scores *scores, size_t score, bool weighted)
{
    double sum = 0, weights = 0;
    for (int i = 0; i < scores->classes; i++) {
        double value = *(const double *)((const char *)&scores->each[i].values + score);
        double weight = weighted ? (double)scores->each[i].images : 1;
        if (isnan(value)) continue;
        sum += weight * value;
        weights += weight;
    }
    return weights > 0 ? sum / weights : (double)NAN;
}

static struct score_values means_of(const struct scores *scores, bool weighted)
{
    return (struct score_values){
        mean_of(scores, offsetof(struct score_values, precision), weighted),
        mean_of(scores, offsetof(struct score_values, recall), weighted),
        mean_of(scores, offsetof(struct score_values, f1), weighted),
        mean_of(scores, offsetof(struct score_values, roc_auc), weighted),
        mean_of(scores, offsetof(struct score_values, average_precision), weighted),
    };
}

struct scores scores_of(const struct evaluation *evaluation, const struct data *data)
{
    bool labels = data->target == TARGET_LABELS;
    struct scores made = {.classes = data->classes}, *scores = &made;
    scores->each = memory_new((size_t)scores->classes, sizeof *scores->each);
    for (int i = 0; i < scores->classes; i++)
        scores->each[i].values.roc_auc = scores->each[i].values.average_precision = NAN;
    for (int i = 0; i < SCORES_STEPS; i++) scores->steps[i].threshold = (i + 1) / (SCORES_STEPS + 1.0);
    if (labels) score_labels(&evaluation->outputs, data, scores);
    else score_classes(evaluation, scores);
    for (int i = 0; i < scores->classes; i++) {
        struct class_score *score = &scores->each[i];
        score->values.precision = share(score->hits, score->predicted);
        score->values.recall = share(score->hits, score->images);
        score->values.f1 = share(2 * score->hits, score->images + score->predicted);
    }
    scores->macro = means_of(scores, false);
    scores->weighted = means_of(scores, true);
    scores->ece = ece_of(scores);
    return made;
}

void scores_free(struct scores *scores)
{
    free(scores->each);
    *scores = (struct scores){0};
}

double score_step_precision(const struct score_step *step) { return share(step->right, step->taken); }

double score_step_recall(const struct scores *scores, int step)
{
    return share(scores->steps[step].right, scores->positives);
}
