/* Model files: graphs, and the programs and plans that small ones become for the largest batch. */
#include "fuzz.h"

#include "graph/model.h"
#include "compile/lower/lower.h"
#include "compile/memory/plan.h"

#define BATCH 1048576          /* train.batch's most */
#define LOWERED_MAX 64         /* layers; what lowers is not what is tried here */

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

static void try_program(const struct graph *graph, bool training)
{
    struct lower_options options = {.batch = BATCH, .micro_batches = training ? 2 : 1, .training = training,
                                    .storage = training ? F16 : F32, .logits = !training};
    struct program program;
    struct plan plan;
    struct reason reason = fuzz_reason();
    if (!fuzz_good(lower(graph, &options, &(struct kernel_options){0}, &program), "fuzz")) return;
    if (fuzz_good(plan_make(&program, true, 0.001, &plan), "fuzz.ini")) {
        fuzz_must(plan_verify(&program, &plan, &reason));
        plan_free(&plan);
    }
    program_free(&program);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct model_options options = {.file = fuzz_write("fuzz.ini", data, size), .dropout = -1};
    struct graph graph;
    int side, channels;
    bool input = fuzz_good(model_input(&options, &side, &channels), "fuzz.ini");
    if (!fuzz_good(model_load(&options, &graph), "fuzz.ini")) return 0;
    fuzz_must(input);
    if (graph.count <= LOWERED_MAX && fuzz_good(fuse(&graph), "fuzz.ini")) {
        try_program(&graph, true);
        try_program(&graph, false);
    }
    graph_free(&graph);
    return 0;
}
