#include "explain/ranges.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "exec/exec_checks.h"
#include "session/preprocessing.h"
#include "session/session_loader.h"

#define BINS 4096              /* of a histogram from -reach to reach */
#define STEPS 255              /* between the numbers of 8 bits */
#define BATCH 32

struct histogram {
    double reach, low, high;   /* ... of all numbers; reach is a power of 2 */
    int64_t counts[BINS];
};

struct calibration {
    const struct graph *graph;
    struct histogram **histograms;   /* by node; NULL: nothing was seen */
};

/* Two bins become one. */
static void widen(struct histogram *h)
{
    int64_t wider[BINS] = {0};
    for (int i = 0; i < BINS; i++) wider[BINS / 4 + i / 2] += h->counts[i];
    for (int i = 0; i < BINS; i++) h->counts[i] = wider[i];
    h->reach *= 2;
}

static void count_numbers(struct histogram *h, const float *numbers, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        h->low = fmin(h->low, numbers[i]);
        h->high = fmax(h->high, numbers[i]);
    }
    while (isfinite(h->high - h->low) && (h->high >= h->reach || -h->low > h->reach)) widen(h);
    double scale = BINS / (2 * h->reach);
    for (int64_t i = 0; i < count; i++) {
        int bin = (int)((numbers[i] + h->reach) * scale);
        if (numbers[i] != 0 && bin >= 0 && bin < BINS) h->counts[bin]++;     /* zeros are exact */
    }
}

static struct histogram *histogram_of(struct calibration *c, int node)
{
    if (!c->histograms[node]) {
        c->histograms[node] = memory_new(1, sizeof **c->histograms);
        c->histograms[node]->reach = 0x1p-10;
    }
    return c->histograms[node];
}

static void see(void *context, const char *name, const float *numbers, int64_t count)
{
    struct calibration *c = context;
    int node = graph_find(c->graph, name);
    if (node > 0) count_numbers(histogram_of(c, node), numbers, count);
}

/* The squared error of rounding to steps between `low` and `high`, and of what lies beyond. */
static double error_of(const struct histogram *h, double low, double high)
{
    double step = (high - low) / STEPS, width = 2 * h->reach / BINS, error = 0;
    for (int i = 0; i < BINS; i++) {
        double x = (i + 0.5) * width - h->reach, beyond = fmax(0, fmax(x - high, low - x));
        error += (double)h->counts[i] * (beyond > 0 ? beyond * beyond : step * step / 12);
    }
    return error;
}

static struct graph_onnx_range range_of(const struct histogram *h)
{
    struct graph_onnx_range best = {0};
    double least = INFINITY;
    for (int share = 100; h && share >= 20; share--) {
        double low = h->low * share / 100, high = h->high * share / 100, error = error_of(h, low, high);
        if (!(error < least)) continue;
        least = error;
        best = (struct graph_onnx_range){low, high};
    }
    return best;
}

/* All nodes are outputs, so that none is fused with its reader, and each can be seen. */
static struct graph graph_of_outputs(const struct graph *from)
{
    struct graph graph = graph_copy(from);
    for (int i = 0; i < graph.output_count; i++) free(graph.outputs[i].name);
    free(graph.outputs);
    graph.output_count = graph.count - 1;
    graph.outputs = memory_new((size_t)graph.output_count, sizeof *graph.outputs);
    for (int i = 1; i < graph.count; i++)
        graph.outputs[i - 1] = (struct graph_output){text_copy(graph.nodes[i].name), i, 1};
    return graph;
}

static enum status run_batch(struct calibration *c, struct step *step, const struct batch *batch)
{
    const struct program *program = &step->compiled.program;
    const struct exec_batch input = {.images = batch->images};
    const struct update_rates rates = {0};
    TRY(exec_start(step->exec, &input, &rates));
    TRY(exec_collect(step->exec));
    count_numbers(histogram_of(c, 0), batch->images, program->images_bytes / (int64_t)sizeof(float));
    return exec_see_outputs(step->exec, see, c);
}

/* Partial batches are left out, if there is another. */
static enum status run_images(struct calibration *c, const struct session *session, struct step *step,
                              const struct images *images)
{
    struct loader *loader;
    double waited = 0;
    int64_t seen = 0;
    TRY(session_loader_open(session, images, &(struct loader_views){0}, &loader));
    enum status status = loader_start(loader, 0, 0);
    while (status == OK) {
        struct batch *batch;
        status = loader_next(loader, &batch, &waited);
        if (status != OK || !batch) break;
        if (seen == 0 || batch->count == step->compiled.program.batch) status = run_batch(c, step, batch);
        seen += batch->count;
        loader_return(loader, batch);
    }
    loader_close(loader);
    if (status == OK) log_info("%" PRId64 " training images tell the ranges of the layers' outputs", seen);
    return status;
}

/* Evenly from all, since files of a class lie one behind the other. */
static struct images choose_images(const struct session *session, int wanted)
{
    struct images images = session->data.train;
    int64_t count = images.count < wanted ? images.count : wanted;
    int64_t *subset = memory_new((size_t)count, sizeof *subset);
    for (int64_t i = 0; i < count; i++) {
        int64_t at = i * images.count / count;
        subset[i] = images.subset ? images.subset[at] : at;
    }
    images.subset = subset;
    images.count = count;
    images.cache = NULL;
    images.h = session->data.val.h;
    images.w = session->data.val.w;
    return images;
}

enum status ranges_find(struct trained *trained, int wanted, struct graph_onnx_range *ranges)
{
    struct session *session = &trained->session;
    struct graph graph = graph_of_outputs(&session->graphs.evaluation);
    struct images images = choose_images(session, wanted);
    struct step step = {0};
    struct calibration c = {.graph = &session->graphs.evaluation,
                            .histograms = memory_new((size_t)graph.count, sizeof *c.histograms)};
    session->hyper.batch = images.count < BATCH ? (int)images.count : BATCH;
    session->hyper.micro_batches = 1;
    enum status status = preprocessing_open(session, false);
    if (status == OK) status = step_open_features(session, &graph, &trained->store, &(struct exec_memory){0},
                                                  &step);
    if (status == OK) status = run_images(&c, session, &step, &images);
    for (int i = 0; i < graph.count; i++) {
        ranges[i] = range_of(c.histograms[i]);
        free(c.histograms[i]);
    }
    step_close(&step);
    graph_free(&graph);
    free(c.histograms);
    free((void *)images.subset);
    return status;
}
