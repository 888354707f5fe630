#include "session/classifier.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "input/gpu_preprocessing.h"
#include "session/session_loader.h"
#include "session/step_queue.h"

int classifier_batch(int64_t count, int most)
{
    if (count <= 1) return 1;
    int64_t batches = (count + most - 1) / most;
    return (int)((count + batches - 1) / batches);
}

/* The state of classifier_run. */
struct classifying {
    const struct classifier *classifier;
    struct dataset *dataset;     /* the list of images */
    char **problems;             /* [its count] as the loader reported them; NULL: none */
    enum status (*take)(void *context, int64_t image, const struct classified *what);
    void *context;
    struct step_queue queue;
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

static bool all_finite(const float *logits, int classes)
{
    for (int i = 0; i < classes; i++)
        if (!isfinite(logits[i])) return false;
    return true;
}

static struct classified examine(const struct classifying *classifying, const struct batch *batch, int place)
{
    int classes = classifying->classifier->session->data.classes;
    const float *logits = exec_logits(classifying->classifier->step->exec) + (int64_t)place * classes;
    const char *problem = classifying->problems[batch->first + place];
    if (batch->labels[place] < 0) return (struct classified){BAD_DATA, problem, NULL};
    if (!all_finite(logits, classes))
        return (struct classified){FAILED, "the network's output is not finite", NULL};
    return (struct classified){OK, NULL, logits};
}

static enum status take_batch(const struct classifying *classifying, const struct batch *batch)
{
    for (int i = 0; i < batch->count; i++) {
        struct classified what = examine(classifying, batch, i);
        TRY(classifying->take(classifying->context, batch->first + i, &what));
    }
    return OK;
}

static enum status launch_batch(struct classifying *classifying, bool *more)
{
    struct queued_step next = {0};
    TRY(loader_next(classifying->queue.loader, &next.batch, NULL));
    *more = next.batch != NULL;
    if (!next.batch) return OK;
    struct gpu_preprocessing *gpu = classifying->classifier->session->gpu_preprocessing;
    const struct exec_batch input = gpu_preprocessing_batch(gpu, next.batch);
    return step_queue_start(&classifying->queue, &next, &input);
}

static enum status collect_batch(struct classifying *classifying)
{
    struct queued_step made;
    TRY(step_queue_collect(&classifying->queue, &made));
    enum status status = take_batch(classifying, made.batch);
    step_queue_return(&classifying->queue, &made);
    return status;
}

static enum status classify_all(struct classifying *classifying)
{
    bool more = true;
    TRY(loader_start(classifying->queue.loader, 0, 0));
    while (more || classifying->queue.count > 0) {
        while (more && !step_queue_full(&classifying->queue)) TRY(launch_batch(classifying, &more));
        if (classifying->queue.count > 0) TRY(collect_batch(classifying));
    }
    return OK;
}

static void classifying_close(struct classifying *classifying)
{
    int64_t count = classifying->dataset->count;
    step_queue_drop(&classifying->queue);
    if (classifying->queue.loader) loader_close(classifying->queue.loader);
    /* A thread that does not return from reading keeps the data set. */
    if (!classifying->dataset->held) {
        dataset_close(classifying->dataset);
        free(classifying->dataset);
    }
    for (int64_t i = 0; i < count; i++) free(classifying->problems[i]);
    free(classifying->problems);
}

enum status classifier_run(const struct classifier *classifier, const struct listed_image *images,
                           int64_t count,
                           enum status (*take)(void *context, int64_t image, const struct classified *what),
                           void *context)
{
    const struct session *session = classifier->session;
    const struct image_options options = {
        session->data.channels, session->settings->data.orientation == ORIENTATION_IGNORE};
    struct classifying classifying = {
        .classifier = classifier, .take = take, .context = context,
        .dataset = memory_new(1, sizeof *classifying.dataset),
        .problems = memory_new((size_t)count, sizeof *classifying.problems),
        .queue = {.device = session->device, .step = classifier->step},
    };
    image_list_open(images, count, options, classifying.dataset);
    enum status status = session_loader_open_list(session, classifying.dataset, note_problem, &classifying,
                                                  &classifying.queue.loader);
    if (status == OK) status = classify_all(&classifying);
    classifying_close(&classifying);
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
