/* test_kernel_plans: which plans a program has, what they are asked for, and the workspaces that follow. */
#include <string.h>

#include "base/memory.h"
#include "tests/support/caught.h"
#include "tests/support/net.h"
#include "tests/support/unit.h"

/* conv2 and conv3 are equal, conv4 differs in its settings alone, conv5 in its shapes alone; sigmoid and
 * hardsigmoid are alike but for the op. */
static const char convolutions[] =
    "[input]\n"
    "channels = 3\n"
    "size = 8\n"
    "[layers]\n"
    "conv1 = conv input filters=16 kernel=3 pad=1\n"
    "conv2 = conv conv1 filters=16 kernel=3 pad=1\n"
    "conv3 = conv conv2 filters=16 kernel=3 pad=1\n"
    "conv4 = conv conv3 filters=16 kernel=3 pad=2 dilation=2\n"
    "conv5 = conv conv4 filters=8 kernel=3 pad=1\n"
    "soft = sigmoid conv5\n"
    "hard = hardsigmoid soft\n"
    "pool = globalavgpool hard\n"
    "fc = linear pool units=5\n";

/* Four different convolutions and linear, the first without its input's gradient; both sigmoids. */
#define ASKED (3 * 5 - 1 + 2 * 2)
#define BYTES 4096                        /* of every plan's workspace */

/* The calls that plans were made for. */
static struct call asked[ASKED];
static int asked_count, released;
static int fails_at;                      /* the number of the call whose plan cannot be made; 0: none */

static void plan_release(struct kernel_plan *plan)
{
    (void)plan;
    released++;
}
static const struct algorithm made_up = {.name = "made up", .release = plan_release};
static const struct algorithm *const algorithms[] = {&made_up, NULL};

static enum status choose(const struct op_code *code, const struct call *call, struct kernel_plan **made)
{
    enum status status = OK;
    (void)code;
    *made = NULL;
#pragma omp critical(asking)
    {
        asked[asked_count++] = *call;
        if (asked_count == fails_at) status = FAILED;
    }
    if (status != OK) return status;
    *made = kernel_plan_bound(BYTES);
    (*made)->algorithm = &made_up;
    return OK;
}

/* A byte more if all options are set. */
static size_t workspace(const struct call *call)
{
    return call->kernel_plan->workspace + (call->tf32 && call->deterministic && call->device);
}

/* Linear is planned alone, pooling and losses need no plans, and others are planned on several threads. */
static const struct op_code together = {.plans_together = true, .algorithms = algorithms, .choose = choose},
                            sized = {.plans_together = true, .algorithms = algorithms, .choose = choose,
                                     .workspace = workspace},
                            alone = {.algorithms = algorithms, .choose = choose};

static const struct op_code *code_of(const struct op *op)
{
    if (strcmp(op->name, "conv") == 0) return &together;
    if (strstr(op->name, "sigmoid")) return &sized;
    return strcmp(op->name, "linear") == 0 ? &alone : op->reference;
}

static const struct op_code *code_but_pooling(const struct op *op)
{
    return strcmp(op->name, "globalavgpool") == 0 ? NULL : code_of(op);
}

struct planned {
    struct graph graph;
    struct program program;
    struct kernel_plans plans;
};

static enum status prepare(struct planned *p, struct kernel_options options)
{
    const struct lower_options lowering = {.batch = 4, .micro_batches = 2, .training = true, .storage = F32};
    p->graph = net_graph(convolutions, true);
    assert_int_equal(lower(&p->graph, &lowering, &(struct kernel_options){0}, &p->program), OK);
    asked_count = released = 0;
    return kernel_plans_prepare(&p->program, &options, &p->plans);
}

static void planned_free(struct planned *p)
{
    program_free(&p->program);
    graph_free(&p->graph);
}

/* An instruction of a node in a phase, of some micro-batch. */
static struct instruction *at_node(const struct planned *p, const char *node, enum phase phase, int which)
{
    for (int i = 0; i < p->program.count; i++) {
        struct instruction *at = &p->program.instructions[i];
        size_t length = strlen(node);
        bool named = strncmp(at->name, node, length) == 0 && at->name[length] == ' ';
        if (named && at->op && at->phase == phase && which-- == 0) return at;
    }
    fail_msg("no %s", node);
    return NULL;
}

static struct kernel_plan *plan_at(const struct planned *p, const char *node, enum phase phase)
{
    return kernel_plans_of(&p->plans, at_node(p, node, phase, 0));
}

static void test_plans_by_call(void **state)
{
    static const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
    struct planned p;
    assert_int_equal(prepare(&p, (struct kernel_options){.code_of = code_of}), OK);
    for (int i = 0; i < 3; i++) {
        struct kernel_plan *plan = plan_at(&p, "conv2", phases[i]);
        assert_non_null(plan);
        assert_ptr_equal(plan_at(&p, "conv3", phases[i]), plan);
        assert_ptr_equal(kernel_plans_of(&p.plans, at_node(&p, "conv2", phases[i], 1)), plan);
        assert_ptr_not_equal(plan_at(&p, "conv4", phases[i]), plan);
        assert_ptr_not_equal(plan_at(&p, "conv5", phases[i]), plan);
        for (int j = 0; j < i; j++) assert_ptr_not_equal(plan_at(&p, "conv2", phases[j]), plan);
    }
    struct instruction again = *at_node(&p, "conv2", PHASE_FORWARD, 0);
    again.phase = PHASE_RECOMPUTE;
    assert_ptr_equal(kernel_plans_of(&p.plans, &again), plan_at(&p, "conv2", PHASE_FORWARD));
    assert_ptr_not_equal(plan_at(&p, "soft", PHASE_FORWARD), plan_at(&p, "hard", PHASE_FORWARD));
    assert_null(kernel_plans_of(&p.plans, at_node(&p, "pool", PHASE_FORWARD, 0)));
    assert_int_equal(asked_count, ASKED);
    kernel_plans_release(&p.plans);
    assert_int_equal(released, asked_count);
    assert_null(p.plans.plan);
    planned_free(&p);
}

static void assert_workspace(const struct planned *p, const struct instruction *at, int64_t bytes)
{
    int workspace = operand(at, OPERAND_WORKSPACE, 0);
    assert_true(workspace >= 0);
    const struct value *value = &p->program.values[workspace];
    assert_int_equal(value->bytes, bytes);
    assert_true(shape_equal(value->shape, shape_vector(bytes)));
    assert_int_equal(value->home, HOME_ARENA);
    assert_int_equal(value->kind, KIND_WORKSPACE);
    assert_true(instruction_reads(at, workspace) || instruction_writes(at, workspace));
}

static void test_options(void **state)
{
    struct device *device;
    struct planned p;
    assert_int_equal(device_open("cpu", 0, &device), OK);
    assert_int_equal(prepare(&p, (struct kernel_options){
        .code_of = code_of, .device = device, .tf32 = true, .deterministic = true,
        .forced = op_find("linear"), .variant = "cublaslt"}), OK);
    for (int i = 0; i < asked_count; i++) {
        bool forced = strcmp(asked[i].op->name, "linear") == 0;
        assert_true(asked[i].tf32 && asked[i].deterministic && asked[i].device == device);
        assert_int_equal(asked[i].timed, forced);
        if (forced) assert_string_equal(asked[i].variant, "cublaslt");
        else assert_null(asked[i].variant);
    }
    assert_workspace(&p, at_node(&p, "soft", PHASE_FORWARD, 0), BYTES + 1);
    assert_workspace(&p, at_node(&p, "conv2", PHASE_FORWARD, 0), BYTES);
    kernel_plans_release(&p.plans);
    planned_free(&p);
    device_close(device);
}

static void test_workspaces(void **state)
{
    struct planned p;
    assert_int_equal(prepare(&p, (struct kernel_options){.code_of = code_of}), OK);
    for (int i = 0; i < 2; i++) assert_workspace(&p, at_node(&p, "conv2", PHASE_FORWARD, i), BYTES);
    assert_int_not_equal(operand(at_node(&p, "conv2", PHASE_FORWARD, 0), OPERAND_WORKSPACE, 0),
                         operand(at_node(&p, "conv2", PHASE_FORWARD, 1), OPERAND_WORKSPACE, 0));
    assert_true(operand(at_node(&p, "pool", PHASE_FORWARD, 0), OPERAND_WORKSPACE, 0) < 0);
    int values = p.program.value_count;
    plan_at(&p, "conv2", PHASE_FORWARD)->workspace = 2 * BYTES;
    kernel_plans_set_workspaces(&p.plans, &p.program);
    assert_workspace(&p, at_node(&p, "conv3", PHASE_FORWARD, 1), 2 * BYTES);
    assert_workspace(&p, at_node(&p, "conv2", PHASE_BACKWARD_DATA, 0), BYTES);
    assert_int_equal(p.program.value_count, values);
    kernel_plans_release(&p.plans);
    planned_free(&p);
}

/* A plan that cannot be made, on several threads or behind them, ends it; those that were made are freed. */
static void test_failures(void **state)
{
    for (int which = 0; which < 2; which++) {
        struct planned p;
        fails_at = which ? ASKED : 2;
        assert_int_equal(prepare(&p, (struct kernel_options){.code_of = code_of}), FAILED);
        assert_int_equal(released, asked_count - 1);
        if (!which)
            for (int i = 0; i < asked_count; i++) assert_string_not_equal(asked[i].op->name, "linear");
        fails_at = 0;
        planned_free(&p);
    }
    struct planned p;
    struct caught caught;
    caught_begin(&caught);
    enum status status = prepare(&p, (struct kernel_options){.code_of = code_but_pooling});
    caught_end(&caught);
    assert_int_equal(status, NO_DEVICE);
    assert_int_equal(asked_count, 0);
    assert_non_null(strstr(caught.words.data, "pool forward: op globalavgpool has no code for this device"));
    text_free(&caught.words);
    planned_free(&p);
}

static void test_codes(void **state)
{
    for (const struct op *const *op = op_table; *op; op++) {
        assert_ptr_equal(kernel_plans_code(DEVICE_CPU)(*op), op_cpu(*op));
        assert_ptr_equal(kernel_plans_code(DEVICE_CUDA)(*op), (*op)->cuda);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_plans_by_call),
        cmocka_unit_test(test_options),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_failures),
        cmocka_unit_test(test_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
