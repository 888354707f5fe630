#include "session/step.h"

#include "base/text.h"
#include "compile/fit_memory.h"
#include "session/gpu_preprocessing.h"
#include "session/largest.h"

/* Overflows in a row, with the loss scale at its floor, after which it is clear that they will not
 * stop by themselves. A static scale cannot move: the first is enough. */
#define STUCK_DYNAMIC 3
#define STUCK_STATIC 1

int step_stuck(const struct setup *setup)
{
    return setup->scaling.dynamic ? STUCK_DYNAMIC : STUCK_STATIC;
}

struct update_rates step_rates(const struct setup *setup, int64_t updates)
{
    struct update_rates rates = {.updates = updates};
    for (int k = 0; k < 2; k++) {
        struct schedule_rate rate = schedule_at(&setup->schedule, updates + k);
        rates.lr[k] = rate.lr;
        rates.momentum[k] = rate.momentum;
    }
    return rates;
}

static struct kernel_options kernel_options(const struct setup *setup)
{
    return (struct kernel_options){
        .code_of = kernel_plans_code(setup_device_kind(setup)),
        .device = setup->device,
        .tf32 = setup->precision->tf32,
        .deterministic = setup->settings->run.deterministic,
    };
}

/* Where the host runs ahead, one batch is on its way while another is worked on. */
static int batches_on_device(const struct setup *setup)
{
    return setup_device_kind(setup) == DEVICE_CUDA ? 2 : 1;
}

struct compile_options step_options(const struct setup *setup, enum step_kind kind)
{
    bool training = kind == STEP_TRAINING;
    struct compile_options options = {
        .lower = {
            .batch = setup->batch,
            .micro_batches = training ? setup->micro_batches : 1,
            .training = training,
            .storage = setup->precision->storage,
            .label_smoothing = training ? setup->settings->augment.label_smoothing : 0,
            .soft_targets = training && mix_wanted(&setup->mix),
            .logits = !training,
        },
        .kernel_plans = kernel_options(setup),
        .streams = setup_streams(setup),
        .strategy = setup->settings->memory.strategy,
        .limit = training ? setup_limit(setup) : 0,
        .batches = batches_on_device(setup),
    };
    if (options.limit > 0) options.reserved = step_store_bytes(setup) + gpu_preprocessing_bytes(setup);
    return options;
}

const struct graph *step_graph(const struct setup *setup, enum step_kind kind)
{
    return kind == STEP_TRAINING ? &setup->graph : &setup->val_graph;
}

enum status step_program(const struct setup *setup, enum step_kind kind, struct program *program)
{
    struct compile_options options = step_options(setup, kind);
    return compile(step_graph(setup, kind), &options, program);
}

const char *step_strategy(const struct setup *setup, const struct program *program)
{
    bool keep = setup->settings->memory.strategy == STRATEGY_KEEP || recompute_count(program) == 0;
    if (offload_bytes(program) > 0) return "offload";
    return keep ? "keep" : "recompute";
}

enum status step_prepare(const struct setup *setup, enum step_kind kind, struct store *store,
                         struct step *step)
{
    struct step opened = {0};
    TRY(step_program(setup, kind, &opened.program));
    *step = opened;
    struct exec_options options = {
        .device = setup->device,
        .store = store,
        .optimizer = kind == STEP_TRAINING ? setup->optimizer : NULL,
        .optimizer_settings = setup->optimizer_settings,
        .scaling = setup->scaling,
        .decay_norm_bias = setup->settings->optimizer.decay_norm_bias,
        .tf32 = setup->precision->tf32,
        .deterministic = setup->settings->run.deterministic,
        .stop_at = setup->settings->train.on_nan == ON_NAN_STOP ? step_stuck(setup) : 0,
        .seed = (uint64_t)setup->settings->run.seed,
    };
    enum status status = exec_prepare(&step->program, &options, &step->exec);
    if (status != OK) step_close(step);
    return status;
}

enum status step_open(const struct setup *setup, enum step_kind kind, struct store *store, struct step *step)
{
    TRY(step_prepare(setup, kind, store, step));
    enum status status = exec_place(step->exec, &(struct exec_memory){0});
    if (status != OK) step_close(step);
    return status;
}

void step_close(struct step *step)
{
    if (step->exec) exec_close(step->exec);
    if (step->program.graph) program_free(&step->program);
    *step = (struct step){0};
}

struct step_bytes step_bytes(const struct setup *setup, const struct program *program,
                             const struct plan *plan, int64_t store)
{
    const struct compile_options beside = {.batches = batches_on_device(setup)};
    struct step_bytes bytes = {
        .arena = plan->arena_bytes,
        .live_bound = plan->live_bytes_bound,
        .store = store,
        .batch = fit_memory_beside(&beside, program) + gpu_preprocessing_bytes(setup),
        .workspace = plan->workspace_bytes,
    };
    bytes.total = bytes.arena + bytes.store + bytes.batch;
    return bytes;
}

int64_t step_store_bytes(const struct setup *setup)
{
    struct store_options options = setup_store_options(setup, true);
    struct store_layout layout;
    store_lay_out(&setup->graph, &options, &layout);
    int64_t bytes = layout.bytes;
    store_layout_free(&layout);
    return bytes;
}

enum status step_check_limit(const struct setup *setup, const struct step_bytes *bytes)
{
    int64_t limit = setup_limit(setup);
    if (limit == 0 || bytes->total <= limit) return OK;
    char has[TEXT_BYTES], needs[TEXT_BYTES];
    text_bytes((uint64_t)limit, has);
    text_bytes((uint64_t)bytes->total, needs);
    struct text advice = {0};
    largest_say(setup, limit, &advice);
    if (limit == setup->left)
        fail(NO_DEVICE, "the device has only %s left for this run, %s are needed; %s",
             has, needs, advice.data);
    else
        fail(NO_DEVICE, "%s: memory.limit: %s is not enough, %s are needed; %s",
             settings_where(setup->settings, "memory", "limit"), has, needs, advice.data);
    text_free(&advice);
    return NO_DEVICE;
}

#define LOOK_SECONDS 0.001   /* after which a waiting host looks whether the device still works */

enum status step_next(const struct step *step, struct loader *loader, struct batch **batch,
                      double *wait_seconds)
{
    while (!exec_idle(step->exec) && !loader_wait(loader, LOOK_SECONDS)) {}
    return loader_next(loader, batch, wait_seconds);
}
