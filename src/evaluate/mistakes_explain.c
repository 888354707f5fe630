/* mistakes_explain.c: runs the network again on the images of mistakes, for Grad-CAM. */
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/memory.h"
#include "evaluate/evaluate.h"
#include "evaluate/mistakes.h"
#include "explain/gradcam.h"
#include "explain/inference.h"
#include "session/session_loader.h"

/* Weights behind the layer, on which the host takes some nanoseconds each for every image. */
#define TAIL_MOST 10000000

struct explaining {
    struct mistakes *mistakes;
    struct gradcam gradcam;
    struct loader *loader;
};

static int64_t tail_weights(const struct graph *graph, int node)
{
    int64_t weights = 0;
    for (int i = 0; i < graph->param_count; i++)
        if (graph->params[i].node > node) weights += shape_count(graph->params[i].spec.shape);
    return weights;
}

static int compare_indices(const void *a, const void *b)
{
    const int64_t *x = a, *y = b;
    return *x < *y ? -1 : *x > *y;
}

/* The mistake of this image in the data set; -1: none. */
static int find_mistake(const struct mistakes *mistakes, int64_t index)
{
    for (int i = 0; i < mistakes->evaluation->mistake_count; i++)
        if (images_index(mistakes->images, mistakes->evaluation->mistakes[i].image) == index) return i;
    return -1;
}

static enum status take_batch(void *context, const struct batch *batch, const float *outputs)
{
    struct explaining *explaining = context;
    struct mistakes *mistakes = explaining->mistakes;
    for (int i = 0; i < batch->count; i++) {
        int found = find_mistake(mistakes, loader_image(explaining->loader, batch, i));
        const float *own = outputs + i * explaining->gradcam.output.count, *logits;
        if (found < 0 || batch->labels[i] < 0) continue;
        TRY(gradcam_logits(&explaining->gradcam, own, &logits));
        TRY(gradcam_map(&explaining->gradcam, own, mistakes->evaluation->mistakes[found].predicted,
                        mistakes->maps + (int64_t)found * mistakes->h * mistakes->w));
    }
    return OK;
}

static enum status explain_all(const struct session *session, struct explaining *explaining)
{
    const struct mistakes *mistakes = explaining->mistakes;
    int64_t subset[MISTAKES_MAX];
    struct images images = *mistakes->images;
    images.subset = subset;
    images.count = mistakes->evaluation->mistake_count;
    for (int i = 0; i < images.count; i++)
        subset[i] = images_index(mistakes->images, mistakes->evaluation->mistakes[i].image);
    qsort(subset, (size_t)images.count, sizeof *subset, compare_indices);
    TRY(session_loader_open(session, &images, &(struct loader_views){0}, &explaining->loader));
    const struct inference inference = {session, &explaining->gradcam.output.step, explaining->loader,
                                        take_batch, explaining};
    enum status status = inference_run(&inference);
    loader_close(explaining->loader);
    return status;
}

/* Attention rollout needs memory of its own, which on a GPU is not planned for. */
static bool has_memory(const struct session *session)
{
    struct rollout rollout;
    bool rolls = rollout_open(&session->graphs.evaluation, &rollout);
    rollout_close(&rollout);
    return !rolls || session_device_kind(session) == DEVICE_CPU;
}

static enum status draw_strips(const struct session *session, const struct step *step,
                               struct mistakes *mistakes)
{
    int64_t subset[MISTAKES_MAX];
    struct images images = *mistakes->images;
    struct evaluation unused = {0};
    bool lost = true;
    images.subset = subset;
    images.count = mistakes->evaluation->mistake_count;
    for (int i = 0; i < images.count; i++)
        subset[i] = images_index(mistakes->images, mistakes->evaluation->mistakes[i].image);
    mistakes->strips = memory_new((size_t)images.count, sizeof *mistakes->strips);
    mistakes->count = (int)images.count;
    const struct evaluate_options options = {
        .lost = &lost, .strips = mistakes->strips, .strip_count = mistakes->count};
    enum status status = evaluate(session, &images, step, &options, &unused);
    evaluation_free(&unused);
    return status;
}

enum status mistakes_explain(const struct session *session, struct store *store, const struct step *step,
                             struct mistakes *mistakes)
{
    const struct graph *graph = &session->graphs.evaluation;
    struct explaining explaining = {.mistakes = mistakes};
    int node = gradcam_layer(graph);
    int64_t count = mistakes->evaluation->mistake_count;
    bool classes = session->hyper.task->ranked;
    if (session->data.target == TARGET_MASK && !session->comm && count > 0)
        return draw_strips(session, step, mistakes);
    if (!classes || session->comm || node < 0 || count == 0) return OK;
    if (tail_weights(graph, node) > TAIL_MOST || !has_memory(session)) return OK;
    struct text shortage = {0};
    bool probe = session->features.head.nodes;          /* whose steps are smaller */
    const struct exec_memory memory = {.lender = probe ? NULL : step->exec, .shortage = &shortage};
    enum status status = gradcam_open(session, store, node, false, &memory, &explaining.gradcam);
    bool short_of_memory = status != OK && shortage.data;
    if (short_of_memory) log_detail("mistakes have no explanations: %s", shortage.data);
    text_free(&shortage);
    if (status != OK) return short_of_memory ? OK : status;
    mistakes->h = explaining.gradcam.h;
    mistakes->w = explaining.gradcam.w;
    int64_t numbers = count * mistakes->h * mistakes->w;
    mistakes->maps = memory_new((size_t)numbers, sizeof *mistakes->maps);
    for (int64_t i = 0; i < numbers; i++) mistakes->maps[i] = NAN;
    status = explain_all(session, &explaining);
    gradcam_close(&explaining.gradcam);
    return status;
}

void mistakes_free(struct mistakes *mistakes)
{
    for (int i = 0; i < mistakes->count; i++) image_free(&mistakes->strips[i].picture);
    free(mistakes->strips);
    free(mistakes->maps);
    *mistakes = (struct mistakes){0};
}
