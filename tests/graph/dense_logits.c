/* dense_logits ARCH CLASSES HEIGHT WIDTH WEIGHTS < IMAGES > LOGITS: an installed network with these weights,
 * applied to normalised fp32 images, [h][w][3] each, until their end; the first output's logits, [h][w][classes]
 * each. It runs where AMPTRAIN_DEVICE says, in fp32. */
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "checkpoint/weights.h"
#include "exec/exec.h"
#include "graph/model.h"
#include "tests/support/place.h"

#define BATCH 2

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};

static enum status compute(struct exec *exec, const struct graph *graph)
{
    size_t in = (size_t)shape_count(graph->nodes[0].shape);
    size_t out = (size_t)shape_count(graph->nodes[graph->output].shape);
    float *images = memory_new(BATCH * in, sizeof *images);
    enum status status = OK;
    for (size_t count; status == OK && (count = fread(images, in * sizeof *images, BATCH, stdin)) > 0;) {
        status = exec_run(exec, &(struct exec_batch){.images = images}, 0, 0);
        if (status == OK && fwrite(exec_logits(exec), out * sizeof(float), count, stdout) != count)
            status = FAILED;
    }
    free(images);
    return status;
}

static enum status run(const struct model_options *options, const char *weights)
{
    struct graph graph;
    struct store store;
    struct compiled compiled;
    struct exec *exec;
    struct device *device = place_open(0);
    TRY(model_load(options, &graph));
    TRY(store_open(device, &graph, &(struct store_options){.low = F32}, &store));
    TRY(store_init(&store, 1));
    TRY(weights_load(weights, &(struct weights_options){.fine_tuned = true, .encoder = true}, &store));
    const struct compile_options compiling = {
        .lower = {.batch = BATCH, .micro_batches = 1, .storage = F32, .features = true, .logits = true},
        .kernel_plans = {.code_of = kernel_plans_code(device->backend->kind), .device = device},
        .streams = 1,
    };
    TRY(compile_plan(&graph, &compiling, &compiled));
    TRY(exec_open(&compiled, &(struct exec_options){.device = device, .store = &store}, &exec));
    enum status status = compute(exec, &graph);
    exec_close(exec);
    compiled_free(&compiled);
    store_close(&store);
    graph_free(&graph);
    device_close(device);
    return status;
}

int main(int argc, char **argv)
{
    if (argc != 6) return USAGE;
    const struct model_options options = {
        .arch = argv[1], .folders = folders, .outputs = OUTPUTS_OF_PIXELS, .dropout = -1,
        .classes = atoi(argv[2]), .size_h = atoi(argv[3]), .size_w = atoi(argv[4]),
    };
    return run(&options, argv[5]);
}
