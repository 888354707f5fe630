/* evaluation.h: the results of an evaluation, and how it is done. */
#pragma once

#include "evaluate/mask_strip.h"
#include "evaluate/ranks.h"
#include "session/session.h"
#include "session/step.h"

/* A misclassified image; or, where targets are no classes, one of large loss. */
struct mistake {
    int64_t image;                 /* its index in the evaluated images */
    int label, predicted;
    float confidence;              /* the predicted probability of that class; or the loss */
    int64_t row;                   /* among the outputs of the evaluation */
};

#define MISTAKES_MAX 24

/* The answer to an image of a class. */
struct answer {
    int32_t label;                 /* -1: the image is unusable */
    int32_t predicted;             /* -1: an output is not finite */
    float confidence;              /* the predicted probability of that class */
};

struct evaluation {
    int64_t images, errors;        /* readable images */
    int64_t lost;                  /* images whose outputs or loss are not finite, which are errors */
    int64_t bad;                   /* unreadable images */
    double top1, top5, loss;       /* fractions of the images; their mean loss, not finite if some are lost */
    double metrics[TASK_METRICS_MAX];    /* of the task */
    struct task_outputs outputs;   /* of readable images, if targets are no classes, */
    int64_t *places;               /* [images] and the place of each among all that were evaluated */
    double seconds;
    int neighbours;                /* of eval --knn, whose loss is NAN; 0: these are the classifier's */
    int64_t *cells;                /* [images] entry of each in the confusion matrix, sorted: true class *
                                    * classes + predicted class; -1 - true class: lost; NULL: targets are no
                                    * classes */
    struct answer *answers;        /* [seen] of all images, unusable ones too, in order; NULL: as cells */
    int64_t seen;
    float *scores;                 /* [classes][seen] what grows with a class's probability (evaluate.h), NAN
                                    * where none is known; NULL: not kept */
    float *ious;                   /* [seen][classes] of masks, NAN likewise; NULL: not kept */
    int64_t *pixels;               /* [classes][classes] of masks, true by predicted; NULL: targets are no
                                    * masks. Without those of images that are lost */
    struct mistake mistakes[MISTAKES_MAX];   /* the most confident ones, or of largest loss, worst first */
    int mistake_count;
};

/* The true class of a cell. */
static inline int64_t evaluation_label(int64_t cell, int64_t classes)
{
    return cell < 0 ? -1 - cell : cell / classes;
}

/* Memory that ROC AUC and average precision may take: in a run, and in an evaluation by itself. */
#define SCORES_BYTES_OF_RUN ((size_t)64 << 20)
#define SCORES_BYTES_ALONE ((size_t)1 << 30)

struct evaluate_options {
    bool *lost;                    /* True if the last evaluation was not finite, whose cause was then
                                    * reported; NULL: there was none */
    struct ranks *ranks;           /* that share the images; NULL: no sharing */
    struct loader_views views;     /* an image's logits are the mean of theirs */
    struct loader **loader;        /* stays open for the next evaluation of the same images, with the same
                                    * views; NULL there: it is opened. NULL: it is closed in the end */
    size_t scores_bytes;           /* that `scores` may take */
    bool ious;                     /* are kept; not for several ranks */
    /* Called with the logits of every batch, in file order, including unreadable images (as NaN); may be
     * NULL. Not for several ranks. */
    enum status (*logits)(void *context, const float *logits, int images, int classes);
    void *context;
    /* Pictures of the first `strip_count` images, of those that this rank evaluates, with masks. */
    struct mask_strip *strips;
    int strip_count;
};

void evaluation_free(struct evaluation *evaluation);

/* Keeps a mistake if it is one of the most confident, and sorts the cells, of which there must be one for
 * each image; for other ways to find classes. */
void evaluation_keep_mistake(struct evaluation *evaluation, struct mistake mistake);
void evaluation_sort(struct evaluation *evaluation);
