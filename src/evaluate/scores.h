/* scores.h: scores of an evaluation by class or label, and means of them, as scikit-learn defines them; and
 * how far probabilities can be trusted. */
#pragma once

#include "evaluate/evaluation.h"

/* Scores of a class, or means over the classes in which a score is defined. */
struct score_values {
    double precision, recall, f1;      /* NAN: nothing is predicted so; no image has it; neither */
    double roc_auc;                    /* NAN: no image has it, or all have; not known */
    double average_precision;          /* NAN: no image has it; not known */
};

/* Labels are predicted from their thresholds on. */
struct class_score {
    int64_t images, predicted, hits;   /* that have it, that are predicted to have it, and both */
    struct score_values values;
};

#define SCORES_BINS 15
#define SCORES_STEPS 19

/* Probabilities in a fifteenth of 0 to 1, its upper end among them. */
struct score_bin {
    int64_t count, right;
    double probability;                /* their sum */
};

struct scores {
    int classes;
    struct class_score *each;          /* [classes] */
    struct score_values macro, weighted;    /* weighted: by images that have a class */
    bool ranked;                       /* roc_auc and average_precision are known */
    /* Probabilities that count: of several classes that of the predicted one, which is right or wrong; of two
     * classes that of the second one; of labels each label's, which an image has or has not. */
    int64_t count, positives;          /* probabilities; those that there are to be found */
    int positive;                      /* the class meant; -1: any */
    struct score_bin bins[SCORES_BINS];    /* of several and of two classes the predicted one's */
    double ece;                        /* expected calibration error (Guo et al. 2017); NAN: no probability */
    struct score_step {
        double threshold;
        int64_t taken, right;          /* probabilities from it on */
    } steps[SCORES_STEPS];
};

/* For an evaluation of classes or of labels; scores_free follows. */
struct scores scores_of(const struct evaluation *evaluation, const struct data *data);
void scores_free(struct scores *scores);

/* Precision and recall at the threshold of a step; NAN where nothing is predicted, or to be found. */
double score_step_precision(const struct score_step *step);
double score_step_recall(const struct scores *scores, int step);
