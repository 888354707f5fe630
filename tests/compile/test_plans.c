/* Plans of every model that comes with amptrain: how close to the bound, and how long it takes. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/memory.h"
#include "compile/compile.h"
#include "compile/ir/call_equal.h"
#include "compile/ir/program_parts.h"
#include "compile/lower/lower.h"
#include "compile/memory/fit_memory.h"
#include "compile/memory/plan.h"
#include "compile/memory/recompute.h"
#include "compile/rewrite/rewrites.h"
#include "graph/model.h"
#include "tests/support/unit.h"

/* How far above the bound an arena may be: of the tensors alone, which are the same everywhere; and with
 * the workspaces of this processor's kernel plans, which differ from one to the next. */
#define WASTE_MAX 1.005
#define WASTE_MOST_HERE 1.01
#define SECONDS 60   /* work is counted: the clock is only for very slow machines */

static const char *const folders[] = {SOURCEDIR "/conf/models", NULL};

/* False, without a graph: the network's output is not one vector for each image. */
static bool load(const char *name, struct graph *graph)
{
    const struct model_options model = {.arch = name, .folders = folders, .outputs = OUTPUTS_ANY, .dropout = -1};
    assert_int_equal(model_load(&model, graph), OK);
    if (graph->nodes[graph->output].shape.h == 1) return true;
    graph_free(graph);
    return false;
}

static void recompute_cheap_values(struct program *program)
{
    enum recompute_mode *modes = memory_new((size_t)program->count, sizeof *modes);
    recompute_cheap(program, modes);
    recompute(program, modes);
    free(modes);
}

struct way {
    bool cheap;      /* normalised activations are made again, and there are two streams */
    bool kernel_plans; /* with their workspaces */
};

/* Lowers, prepares and plans, as `amptrain plan` does; the caller frees the plan. */
static struct plan plan_model(const struct graph *graph, const struct lower_options *options, struct way way)
{
    struct program program;
    struct kernel_plans kernel_plans = {0};
    struct plan plan;
    const struct kernel_options kernel_plan = {.code_of = kernel_plans_code(DEVICE_CPU)};
    assert_int_equal(lower(graph, options, &kernel_plan, &program), OK);
    if (way.cheap) recompute_cheap_values(&program);
    assert_int_equal(streams_assign(&program, way.cheap ? 2 : 1, BY_MICRO_BATCH), OK);
    if (way.kernel_plans) assert_int_equal(kernel_plans_prepare(&program, &kernel_plan, &kernel_plans), OK);
    assert_int_equal(plan_make(&program, true, SECONDS, &plan), OK);
    if (way.kernel_plans) kernel_plans_release(&kernel_plans);
    program_free(&program);
    return plan;
}

static bool check_waste(const struct graph *graph, const struct lower_options *options, struct way way)
{
    struct plan plan = plan_model(graph, options, way);
    double waste = (double)plan.arena_bytes / (double)plan.live_bytes_bound;
    bool right = waste <= (way.kernel_plans ? WASTE_MOST_HERE : WASTE_MAX);
    if (!right)
        print_message("%s %s, batch %d, %s%s%s: arena is %.4f times the bound\n", graph->arch,
                      options->training ? "training" : "evaluation", options->batch,
                      dtype_table[options->storage].name, way.cheap ? ", made again" : "",
                      way.kernel_plans ? ", with workspaces" : "", waste);
    plan_free(&plan);
    return right;
}

static bool check_model(const char *name)
{
    static const enum dtype storages[] = {F32, F16, BF16};
    static const int batches[] = {1, 32, 256};
    struct graph graph;
    bool right = true;
    if (!load(name, &graph)) return true;
    assert_int_equal(fuse(&graph), OK);
    for (int b = 0; b < 3; b++)
        for (int kind = 0; kind < 3; kind++)
            for (int s = 0; s < 3; s++) {
                struct lower_options options = {.batch = batches[b], .micro_batches = 1, .training = kind > 0,
                                                .storage = storages[s]};
                right = check_waste(&graph, &options, (struct way){.cheap = kind == 2}) && right;
                if (storages[s] != BF16 && batches[b] > 1)
                    right = check_waste(&graph, &options, (struct way){kind == 2, true}) && right;
            }
    graph_free(&graph);
    return right;
}

/* Every model; under sanitizers, to which they are alike, every eighth. */
static void test_waste(void **state)
{
    int count, step = getenv("AMPTRAIN_SANITIZED") ? 8 : 1;
    bool right = true;
    char **names = model_names(folders, &count);
    assert_true(count >= 10);
    for (int i = 0; i < count; i++) {
        if (i % step == 0) right = check_model(names[i]) && right;
        free(names[i]);
    }
    free(names);
    assert_true(right);
}

/* The smallest program that is found needs no less than the bound, which is close enough to refuse with. */
static void check_bound(const char *name)
{
    struct compile_options options = {
        .lower = {.batch = 4, .micro_batches = 2, .training = true, .storage = F16},
        .kernel_plans = {.code_of = kernel_plans_code(DEVICE_CPU)},
        .cut = {.stages = 1}, .streams = 1, .budget = {.total = 1, .store = 1000, .batches = 1},
    };
    struct graph graph;
    struct compiled compiled;
    int64_t bound;
    if (!load(name, &graph)) return;
    assert_int_equal(fit_memory_bound(&graph, &options, &bound), OK);
    for (int offload = 0; offload < 2; offload++) {
        options.fit = offload ? FIT_OFFLOAD : FIT_AUTO;
        assert_int_equal(compile_plan(&graph, &options, &compiled), OK);
        int64_t needed = budget_taken(&options.budget, &compiled.program, compiled.plan.arena_bytes).total;
        if (bound > needed || 20 * bound < needed)
            fail_msg("%s: at least %lld bytes, but needs %lld", name, (long long)bound, (long long)needed);
        compiled_free(&compiled);
    }
    graph_free(&graph);
}

static void test_bound(void **state)
{
    int count;
    char **names = model_names(folders, &count);
    for (int i = 0; i < count; i++) {
        if (i % 4 == 0) check_bound(names[i]);
        free(names[i]);
    }
    free(names);
}

/* Processor time, so that a busy machine does not fail it. */
static void test_time(void **state)
{
    struct model_options model = {.arch = "resnet152", .folders = folders, .dropout = -1};
    struct lower_options options = {.batch = 256, .micro_batches = 1, .training = true, .storage = F16};
    struct graph graph;
    clock_t begin = clock();
    assert_int_equal(model_load(&model, &graph), OK);
    assert_int_equal(fuse(&graph), OK);
    struct plan plan = plan_model(&graph, &options, (struct way){.kernel_plans = true});
    assert_true((double)(clock() - begin) / CLOCKS_PER_SEC < 2.0);
    plan_free(&plan);
    graph_free(&graph);
}

/* A kernel plan is shared by calls that are equal: every member that prepare may read makes a difference. */
static void test_shared(void **state)
{
    static const struct tensor some = {.dtype = F32, .shape = {.rank = 1, .dim = {8}}};
    struct tensor lists[5] = {some, some, some, some, some};
    const struct call call = {
        .x_count = 1, .param_count = 1, .saved_count = 1, .x = &lists[0], .d_x = &lists[1],
        .params = &lists[2], .d_params = &lists[3], .saved = &lists[4], .y = some,
        .operands = {{OPERAND_MASK, some}}, .operand_count = 1,
        .epilogues = {{EPILOGUE_MASK, OPERAND_MASK, 0}}, .epilogue_count = 1,
    };
    struct call other = call;
    assert_true(call_equal(&call, &other));
    struct tensor *const tensors[] = {&other.y, &other.d_y, &other.operands[0].tensor};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        other = call;
        tensors[i]->dtype = F16;
        assert_false(call_equal(&call, &other));
        other = call;
        tensors[i]->shape.rank = 3;
        assert_false(call_equal(&call, &other));
    }
    struct tensor **const listed[] = {&other.x, &other.d_x, &other.params, &other.d_params, &other.saved};
    struct tensor wider = some;
    wider.shape.dim[0] = 16;
    for (size_t i = 0; i < sizeof listed / sizeof *listed; i++) {
        other = call;
        *listed[i] = &wider;
        assert_false(call_equal(&call, &other));
    }
    int *const counts[] = {&other.x_count, &other.param_count, &other.saved_count, &other.ranks,
                           &other.operand_count, &other.epilogue_count};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        other = call;
        *counts[i] += 1;
        assert_false(call_equal(&call, &other));
    }
    uint8_t *const words[] = {&other.epilogues[0].kind, &other.epilogues[0].operand};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        other = call;
        *words[i] += 1;
        assert_false(call_equal(&call, &other));
    }
    other = call;
    other.operands[0].role = OPERAND_D_X_SUMS;
    assert_false(call_equal(&call, &other));
    other = call;
    other.op = op_find("conv");
    assert_false(call_equal(&call, &other));
    other = call;
    other.training = true;
    assert_false(call_equal(&call, &other));
    other = call;
    other.phase = PHASE_BACKWARD;
    assert_false(call_equal(&call, &other));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_waste), cmocka_unit_test(test_bound), cmocka_unit_test(test_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
