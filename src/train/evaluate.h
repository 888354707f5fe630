/* evaluate.h: evaluates a network on every image exactly once, whatever the batch size. */
#pragma once

#include "session/session.h"
#include "session/step.h"
#include "train/ranks.h"

/* An image that is taken for one of another class. */
struct mistake {
    int64_t image;                 /* its place in the images evaluated */
    int label, predicted;
    float confidence;              /* the probability of that class, as the network has it */
};

#define MISTAKES_MAX 24

struct evaluation {
    int64_t images, errors;        /* images that could be read */
    int64_t bad;                   /* and those that could not */
    double top1, top5, loss;       /* fractions of the images; their mean loss */
    double seconds;
    int64_t *cells;                /* [images] where each counts in the confusion matrix, sorted: true class *
                                    * classes + predicted class */
    struct mistake mistakes[MISTAKES_MAX];   /* the most confident ones, the worst first */
    int mistake_count;
};

struct evaluate_options {
    bool *lost;                    /* whether the last evaluation's loss was not finite, of which the cause
                                    * has then been said; NULL: there was none */
    struct ranks *ranks;           /* that share the images; NULL: this one has them all */
    struct loader_views views;     /* an image's logits are the mean of theirs */
    /* Called with the logits of every batch, in file order, unreadable images (as NaN)
     * included; NULL: nobody wants them. Not for several ranks. */
    enum status (*logits)(void *context, const float *logits, int images, int classes);
    void *context;
};

/* `step` is an evaluation's, `images` what it is run on. A request to stop (ranks_stop) ends it
 * with STOPPED. */
enum status evaluate(const struct session *session, const struct images *images, const struct step *step,
                     const struct evaluate_options *options, struct evaluation *evaluation);
void evaluation_free(struct evaluation *evaluation);

/* Index of the largest that is not NaN, the first of several: the class whose rank is 0 (kernels/topk.c). */
int evaluate_best(const float *logits, int classes);

/* The probability of this class, none of which has a larger one. */
double evaluate_confidence(const float *logits, int classes, int best);
