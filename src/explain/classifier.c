#include "explain/classifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "explain/inference.h"
#include "session/session_loader.h"
#include "explain/views.h"

int classifier_batch(int64_t count, int most)
{
    if (count <= 1) return 1;
    int64_t batches = (count + most - 1) / most;
    return (int)((count + batches - 1) / batches);
}

/* The state of classifier_run. */
struct classifying {
    const struct classifier *classifier;
    const struct dataset *dataset;       /* the list of images */
    char **problems;             /* [its count] as the loader reported them; NULL: none */
    enum status (*take)(void *context, int64_t image, const struct classified *what);
    void *context;
    struct views views;          /* of a batch, whose logits are averaged; classes 0: there is one */
};

/* Reasons of files and of sizes begin with the image's name, those of contents do not. */
static void note_problem(void *context, int64_t index, const char *why)
{
    struct classifying *classifying = context;
    char *name = dataset_image_path(classifying->dataset, index);
    size_t length = name ? strlen(name) : 0;
    bool named = length > 0 && strncmp(why, name, length) == 0 && strncmp(why + length, ": ", 2) == 0;
    free(classifying->problems[index]);
    classifying->problems[index] = text_copy(named ? why + length + 2 : why);
    free(name);
}

static bool all_finite(const float *logits, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!isfinite(logits[i])) return false;
    return true;
}

static int64_t outputs_of(const struct classifier *classifier)
{
    return classifier->outputs ? classifier->outputs : classifier->session->data.classes;
}

static struct classified examine(const struct classifying *classifying, const struct batch *batch, int place,
                                 const float *outputs)
{
    int64_t count = outputs_of(classifying->classifier);
    const float *logits = outputs + place * count;
    const char *problem = classifying->problems[batch->first + place];
    if (batch->labels[place] < 0) return (struct classified){BAD_DATA, problem, NULL};
    if (!all_finite(logits, count))
        return (struct classified){FAILED, "the network's output is not finite", NULL};
    return (struct classified){OK, NULL, logits};
}

static enum status take_batch(void *context, const struct batch *batch, const float *outputs)
{
    struct classifying *classifying = context;
    struct views *views = &classifying->views;
    if (views->classes > 0) {
        views_add(views, outputs, batch->count, batch->weight, batch->view == 0);
        if (batch->view + 1 < batch->views) return OK;
        outputs = views->logits;
    }
    for (int i = 0; i < batch->count; i++) {
        struct classified what = examine(classifying, batch, i, outputs);
        TRY(classifying->take(classifying->context, batch->first + i, &what));
    }
    return OK;
}

/* A thread that does not return from reading keeps the data set. */
void classifier_loader_close(struct classifier_loader *kept)
{
    loader_close(kept->loader);
    if (kept->dataset && !kept->dataset->held) {
        dataset_close(kept->dataset);
        free(kept->dataset);
    }
    *kept = (struct classifier_loader){0};
}

static void classifying_close(struct classifying *classifying, int64_t count)
{
    views_close(&classifying->views);
    for (int64_t i = 0; i < count; i++) free(classifying->problems[i]);
    free(classifying->problems);
}

/* Thresholds of labels are those of the views in which they were chosen. */
static struct loader_views views_of(const struct classifier *classifier)
{
    const struct settings *settings = classifier->session->settings;
    if (classifier->outputs || !classifier->session->data.thresholds) return (struct loader_views){0};
    return (struct loader_views){settings->augment.val_flip, (int)settings->augment.val_shift};
}

static bool in_memory(const struct listed_image *images, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (!images[i].pixels && !images[i].bytes) return false;
    return true;
}

enum status classifier_run(const struct classifier *classifier, const struct listed_image *images,
                           int64_t count,
                           enum status (*take)(void *context, int64_t image, const struct classified *what),
                           void *context)
{
    const struct session *session = classifier->session;
    if (session->data.target == TARGET_MASK)
        return fail(USAGE, "%s gives every pixel a class, so that an image has no class and no features",
                    session->graphs.evaluation.arch);
    struct classifier_loader own = {0}, *kept = classifier->kept ? classifier->kept : &own;
    if (!kept->dataset) kept->dataset = memory_new(1, sizeof *kept->dataset);
    struct classifying classifying = {
        .classifier = classifier, .take = take, .context = context, .dataset = kept->dataset,
        .problems = memory_new((size_t)count, sizeof *classifying.problems),
    };
    const struct loader_views views = views_of(classifier);
    if (views.mirrored || views.shift > 0)
        classifying.views = views_open(classifier->step->compiled.program.batch, session->data.classes);
    image_list_open(images, count, session_image_options(session), kept->dataset);
    enum status status = session_loader_open_list(session, kept->dataset, in_memory(images, count), &views,
                                                  note_problem, &classifying, &kept->loader);
    const struct inference inference = {session, classifier->step, kept->loader, take_batch, &classifying};
    if (status == OK) status = inference_run(&inference);
    /* After a failure threads may still be reading. */
    if (status != OK || kept == &own) classifier_loader_close(kept);
    else dataset_close(kept->dataset);
    classifying_close(&classifying, count);
    return status;
}

/* The class that follows `last` in the order of falling logits, then of numbers; after -1, the first. */
static int next_class(const float *logits, int classes, int last)
{
    int best = -1;
    for (int i = 0; i < classes; i++) {
        bool follows = last < 0 || logits[i] < logits[last] || (logits[i] == logits[last] && i > last);
        if (follows && (best < 0 || logits[i] > logits[best])) best = i;
    }
    return best;
}

void classifier_top(const float *logits, int classes, int count, struct class_probability *top)
{
    double sum = 0;
    for (int i = 0; i < count; i++) top[i].class = next_class(logits, classes, i ? top[i - 1].class : -1);
    for (int i = 0; i < classes; i++) sum += exp((double)logits[i] - logits[top[0].class]);
    for (int i = 0; i < count; i++)
        top[i].probability = exp((double)logits[top[i].class] - logits[top[0].class]) / sum;
}
