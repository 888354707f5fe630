#include "measure/op_time.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/random.h"
#include "compile/ir/kernel_plans.h"

#define OWNER "timing ops"
#define PARAMS 2

/* A call on tensors outside of any program. */
struct trial {
    const struct op_problem *problem;
    struct device *device;
    const struct op_code *code;
    struct call call;
    struct tensor x, d_x, params[PARAMS], d_params[PARAMS];
    struct kernel_plan *plans[PHASE_COUNT];
    size_t workspace;
};

static const enum phase phases[] = {PHASE_FORWARD, PHASE_BACKWARD_DATA, PHASE_BACKWARD_PARAMS};
#define PHASES 3

static enum status (*function_of(const struct op_code *code, enum phase phase))(const struct call *)
{
    switch (phase) {
    case PHASE_FORWARD: return code->forward;
    case PHASE_BACKWARD_DATA: return code->backward_data;
    case PHASE_BACKWARD_PARAMS: return code->backward_params;
    case PHASE_BACKWARD:
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return NULL;
}

/* Shapes and types; gradients are there if any phase wants them. */
static void op_time_describe(struct trial *trial, unsigned wanted)
{
    const struct op_problem *p = trial->problem;
    enum dtype dtype = p->session->hyper.precision->storage;
    struct op_param specs[OP_MAX_PARAMS];
    struct reason reason;
    struct call *call = &trial->call;
    int count = p->op->params ? p->op->params(p->settings, 1, &p->x, specs) : 0;
    assert(count <= PARAMS);
    trial->x = (struct tensor){.dtype = dtype, .shape = p->x};
    if (wanted & 1u << PHASE_BACKWARD_DATA) trial->d_x = trial->x;
    for (int i = 0; i < count; i++) {
        trial->params[i] = (struct tensor){.dtype = dtype, .shape = specs[i].shape};
        trial->d_params[i] = (struct tensor){.dtype = F32};
        if (wanted & 1u << PHASE_BACKWARD_PARAMS) trial->d_params[i].shape = specs[i].shape;
    }
    *call = (struct call){
        .op = p->op, .settings = p->settings, .phase = PHASE_FORWARD, .training = true, .x_count = 1,
        .param_count = count, .x = &trial->x, .d_x = &trial->d_x, .y = {.dtype = dtype},
        .params = trial->params, .d_params = trial->d_params, .variant = p->variant, .timed = true,
        .tf32 = p->session->hyper.precision->tf32, .device = trial->device,
        .deterministic = p->session->settings->run.deterministic,
        .stream = trial->device->backend->stream(trial->device, 0),
    };
    p->op->shape(p->settings, 1, &p->x, &call->y.shape, &reason);
    if (wanted & ~(1u << PHASE_FORWARD)) call->d_y = call->y;
}

/* The variant's phases, and what they need. */
static enum status op_time_prepare(struct trial *trial, unsigned wanted, struct op_time times[PHASE_COUNT])
{
    const struct op_code *code = trial->code;
    struct call *call = &trial->call;
    const char *variant = trial->problem->variant;
    for (int i = 0; i < PHASES; i++) {
        struct op_time *time = &times[phases[i]];
        call->phase = phases[i];
        if (!(wanted & 1u << phases[i]) || !function_of(code, phases[i])) continue;
        struct kernel_plan **plan = &trial->plans[phases[i]];
        if (code->algorithms) TRY(kernel_plan_make(code, call, plan));
        call->kernel_plan = *plan;
        const char *name = *plan ? (*plan)->name : "";
        if (variant && !op_variant_is(name, variant)) continue;
        time->there = true;
        time->workspace = op_code_workspace(code, call);
        snprintf(time->algorithm, sizeof time->algorithm, "%.63s", name);
        if (time->workspace > trial->workspace) trial->workspace = time->workspace;
    }
    return OK;
}

/* Repeated random bytes. */
#define REPEATED ((size_t)4 << 20)

static enum status upload_repeated(struct device *device, const struct tensor *tensor, const char *pattern)
{
    const struct device_backend *backend = device->backend;
    size_t bytes = tensor_bytes(tensor);
    for (size_t i = 0; i < bytes; i += REPEATED) {
        size_t count = bytes - i < REPEATED ? bytes - i : REPEATED;
        TRY(backend->transfers.upload(device, 0, (char *)tensor->data + i, pattern, count));
    }
    return backend->synchronize(device);
}

/* Values matter: with zeros the GPU uses less power and clocks higher. */
static enum status op_time_fill(struct device *device, const struct tensor *tensor)
{
    struct random random = random_open(0, PURPOSE_SYNTHETIC, 1, 0);
    size_t bytes = tensor_bytes(tensor), filled = bytes < REPEATED ? bytes : REPEATED;
    char *pattern = memory_new(1, filled);
    for (size_t i = 0; i < filled / dtype_bytes(tensor->dtype); i++)
        dtype_set(tensor->dtype, pattern, (int64_t)i, random_uniform(&random) - 0.5);
    enum status status = upload_repeated(device, tensor, pattern);
    free(pattern);
    return status;
}

struct tensors {
    struct tensor *at[4 + 2 * PARAMS];
    int count;
};

static struct tensors tensors_of(struct trial *trial)
{
    struct tensor *all[] = {&trial->x, &trial->d_x, &trial->call.y, &trial->call.d_y, &trial->params[0],
                            &trial->params[1], &trial->d_params[0], &trial->d_params[1]};
    struct tensors found = {.count = 0};
    for (int i = 0; i < (int)(sizeof all / sizeof *all); i++)
        if (all[i]->shape.rank > 0) found.at[found.count++] = all[i];
    return found;
}

static bool allocate(struct trial *trial)
{
    struct tensors tensors = tensors_of(trial);
    for (int i = 0; i < tensors.count; i++) {
        struct tensor *tensor = tensors.at[i];
        tensor->data = device_allocate(trial->device, tensor_bytes(tensor), OWNER);
        if (!tensor->data) return false;
    }
    if (trial->workspace == 0) return true;
    trial->call.workspace = device_allocate(trial->device, trial->workspace, OWNER);
    return trial->call.workspace;
}

static void op_time_release(struct trial *trial)
{
    struct tensors tensors = tensors_of(trial);
    for (int i = 0; i < tensors.count; i++)
        if (tensors.at[i]->data)
            device_release(trial->device, tensors.at[i]->data, tensor_bytes(tensors.at[i]));
    if (trial->call.workspace) device_release(trial->device, trial->call.workspace, trial->workspace);
    for (int i = 0; i < PHASE_COUNT; i++) kernel_plan_free(trial->plans[i]);
}

#define ROUNDS 5
#define ROUND_SECONDS 3e-3   /* target time of a round */
#define SLOW_SECONDS 0.2     /* time for which two calls are enough */
#define CALLS 32             /* maximum calls in a round */

/* Captured if possible, so that the host does not slow down short calls. */
static enum status run_calls(const struct trial *trial, int calls, struct captured **captured)
{
    const struct device_backend *backend = trial->device->backend;
    enum status (*function)(const struct call *) = function_of(trial->code, trial->call.phase);
    if (*captured) return backend->capture.launch(trial->device, *captured);
    enum status status = OK;
    for (int i = 0; i < calls && status == OK; i++) status = function(&trial->call);
    return status;
}

static enum status capture(const struct trial *trial, int calls, struct captured **captured)
{
    const struct device_capture *capture = &trial->device->backend->capture;
    struct captured *none = NULL;
    if (!capture->begin) return OK;
    TRY(capture->begin(trial->device));
    enum status status = run_calls(trial, calls, &none), ended = capture->end(trial->device, captured);
    return status != OK ? status : ended;
}

static enum status time_round(const struct trial *trial, int calls, struct captured **captured,
                              double *seconds)
{
    double start = clock_seconds();
    TRY(run_calls(trial, calls, captured));
    TRY(trial->device->backend->synchronize(trial->device));
    *seconds = fmin(*seconds, (clock_seconds() - start) / calls);
    return OK;
}

static enum status time_phase(const struct trial *trial, double *seconds)
{
    struct captured *captured = NULL;
    *seconds = INFINITY;
    /* In the first call libraries load their code, and the host's memory gets its pages. */
    TRY(time_round(trial, 1, &captured, seconds));
    TRY(time_round(trial, 1, &captured, seconds));
    if (*seconds > SLOW_SECONDS) return OK;
    int calls = *seconds > ROUND_SECONDS ? 1 : (int)fmin(CALLS, ROUND_SECONDS / *seconds) + 1;
    TRY(capture(trial, calls, &captured));
    *seconds = INFINITY;
    enum status status = OK;
    for (int round = 0; round < ROUNDS && status == OK; round++)
        status = time_round(trial, calls, &captured, seconds);
    if (captured) trial->device->backend->capture.free(captured);
    return status;
}

static enum status fill_all(struct trial *trial)
{
    TRY(op_time_fill(trial->device, &trial->x));
    if (trial->call.d_y.data) TRY(op_time_fill(trial->device, &trial->call.d_y));
    for (int i = 0; i < trial->call.param_count; i++) TRY(op_time_fill(trial->device, &trial->params[i]));
    return OK;
}

static enum status time_phases(struct trial *trial, struct op_time times[PHASE_COUNT])
{
    TRY(fill_all(trial));
    for (int i = 0; i < PHASES; i++) {
        trial->call.phase = phases[i];
        trial->call.kernel_plan = trial->plans[phases[i]];
        if (times[phases[i]].there) TRY(time_phase(trial, &times[phases[i]].seconds));
    }
    return OK;
}

static void clear(struct op_time times[PHASE_COUNT])
{
    for (int i = 0; i < PHASE_COUNT; i++) times[i] = (struct op_time){.there = false};
}

enum status op_time_measure(const struct op_problem *problem, unsigned wanted,
                            struct op_time times[PHASE_COUNT], bool *fits)
{
    struct device *device = problem->session->device;
    struct trial trial = {.problem = problem, .device = device,
                          .code = kernel_plans_code(device->backend->kind)(problem->op)};
    bool any = false;
    clear(times);
    *fits = true;
    op_time_describe(&trial, wanted);
    enum status status = op_time_prepare(&trial, wanted, times);
    for (int i = 0; i < PHASES; i++) any = any || times[phases[i]].there;
    if (status == OK && any) {
        *fits = allocate(&trial);
        if (*fits) status = time_phases(&trial, times);
        else clear(times);
    }
    op_time_release(&trial);
    return status;
}
