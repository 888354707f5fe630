#include "compile/passes.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/plan.h"

/* Makes a program without instructions, which owns a fused copy of the graph. */
static enum status fuse_copy(const struct pass_input *input, struct program *program)
{
    struct graph *fused = memory_new(1, sizeof *fused);
    *fused = graph_copy(input->graph);
    enum status status = fuse(fused);
    if (status == OK) {
        program_free(program);
        *program = lower_nothing(fused, &input->options->lower);
        program->fused = fused;
        return OK;
    }
    graph_free(fused);
    free(fused);
    return status;
}

/* Lowers the graph that the program owns, or else the one that the compiler was given. */
static enum status lower_fused(const struct pass_input *input, struct program *program)
{
    struct program made;
    struct graph *fused = program->fused;
    TRY(lower_forward(fused ? fused : input->graph, &input->options->lower, &made));
    made.fused = fused;
    program->fused = NULL;
    program_free(program);
    *program = made;
    return OK;
}

/* A pass from the call that makes it, of a function that returns a status, or of one that cannot fail. */
#define PASS(name, call)                                                                                 \
    static enum status run_##name(const struct pass_input *input, struct program *program)               \
    {                                                                                                    \
        return call;                                                                                     \
    }
#define REWRITE(name, call) PASS(name, (call, OK))

PASS(fuse, fuse_copy(input, program))
PASS(lower, lower_fused(input, program))
REWRITE(autocast, autocast(program))
REWRITE(saved, lower_saved(program))
REWRITE(differentiate,
        (backward(program), update_set_workspace(program, input->options->lower.update_workspace)))
REWRITE(running_statistics, running_statistics(program))
REWRITE(fuse_data_and_weight_gradients,
        fuse_data_and_weight_gradients(program, &input->options->kernel_plans))
PASS(cut, cut(program, &input->options->cut))
REWRITE(sync_statistics, sync_statistics(program))
REWRITE(buckets, buckets(program, &input->options->buckets))
REWRITE(rank_statistics, rank_statistics(program))
REWRITE(stage_norm, stage_norm(program))
REWRITE(recompute, recompute(program, input->choice->modes))
REWRITE(fuse_recompute, fuse_recompute(program, input->choice->fuse_limit))
REWRITE(offload, offload(program, &input->choice->offload, &(struct offload_forecast){0}))
PASS(streams, streams_within(program, input->choice->streams, input->options->stream_division,
                             input->choice->stream_limit))

/* Instructions of one op. */
static int count_op(const struct program *program, const char *name)
{
    int count = 0;
    for (int i = 0; i < program->count; i++) {
        const struct op *op = program->instructions[i].op;
        count += op && strcmp(op->name, name) == 0;
    }
    return count;
}

static bool reads_part(const struct program *program, const struct instruction *at)
{
    bool found = false;
    FOR_OPERANDS(o, at)
        found = found || (o->role == OPERAND_SAVED && program->values[o->value].home == HOME_PART);
    return found;
}

/* Traces of the pass in the program, and those that each instruction, `at`, adds. */
#define TRACES(name, done_, left_, more_done, more_left)                            \
    static struct traces name##_traces(const struct program *program)               \
    {                                                                               \
        const struct instruction *at = program->instructions;                       \
        struct traces traces = {done_, left_};                                      \
        for (const struct instruction *end = at + program->count; at < end; at++) { \
            traces.done += more_done;                                               \
            traces.left += more_left;                                               \
        }                                                                           \
        return traces;                                                              \
    }
TRACES(lower, program->count > 0, program->count == 0, 0, 0)
TRACES(running_statistics, count_op(program, "moments"), 0, 0,
       instruction_is_op_update(at) && at->micro_batch < program->micro_batches - 1)
TRACES(cut, program->stages > 1, program->stages == 1, 0, 0)
TRACES(sync_statistics, count_op(program, "rank_moments"), 0, 0, 0)
TRACES(buckets, program->flags_sum >= 0, program->flags_sum < 0, 0, 0)
TRACES(rank_statistics, 0, 0, instruction_is_op_update(at) && reads_part(program, at), 0)
TRACES(stage_norm, 0, 0, at->kind == INSTRUCTION_MEASURE, 0)
TRACES(recompute, 0, 0, at->op && at->phase == PHASE_RECOMPUTE, 0)
TRACES(offload, program->host_bytes > 0, 0, 0, 0)
TRACES(streams, program->streams > 1, 0, 0, 0)

static struct traces saved_traces(const struct program *program)
{
    struct traces traces = {0};
    for (int i = 0; i < program->count; i++) {
        struct op_saved saved[OP_MAX_SAVED];
        int count = lower_saves(program, i, saved);
        bool has = count > 0 && operand(&program->instructions[i], OPERAND_SAVED, count - 1) >= 0;
        traces.done += has;
        traces.left += count > 0 && !has;
    }
    return traces;
}

static struct traces differentiate_traces(const struct program *program)
{
    struct traces traces = {0, 1};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        traces.done += at->phase != PHASE_FORWARD;
        if (at->kind == INSTRUCTION_UPDATE) traces.left = 0;
    }
    return traces;
}

static bool is_training(const struct pass_input *input)
{
    return input->options->lower.training;
}

/* Folded ops do not support moments of other ranks, and are not as exact as products in fp32. */
static bool has_fold(const struct pass_input *input)
{
    const struct lower_options *lower = &input->options->lower;
    bool exact = lower->storage == F32 && !input->options->kernel_plans.tf32;
    return lower->fold_least > 0 && !exact && !lower->sync_bn;
}

static bool has_training_fold(const struct pass_input *input)
{
    return is_training(input) && has_fold(input);
}

static bool has_micro_batches(const struct pass_input *input)
{
    return input->options->lower.training && input->options->lower.micro_batches > 1;
}

static bool has_ranks(const struct pass_input *input)
{
    const struct lower_options *lower = &input->options->lower;
    return lower->training && lower->all_micro_batches > lower->micro_batches;
}

static bool has_stages(const struct pass_input *input)
{
    return input->options->lower.training && input->options->cut.stages > 1;
}

static bool has_sync_bn(const struct pass_input *input)
{
    return has_ranks(input) && input->options->lower.sync_bn;
}

static bool has_rank_statistics(const struct pass_input *input)
{
    return has_ranks(input) && !input->options->lower.sync_bn;
}

static bool has_modes(const struct pass_input *input)
{
    return input->choice->modes;
}

static bool has_offload(const struct pass_input *input)
{
    return input->choice->offloads;
}

/* Copies overlap with computation if the device supports it, even with one stream. */
static bool has_streams(const struct pass_input *input)
{
    return input->choice->streams > 1 || (input->choice->offloads && input->options->streams > 1);
}

#define FIRST_OF_MEMORY "recompute"

/* The fourth and fifth member of a row. */
#define ALWAYS NULL, "always"
#define TRAINING is_training, "training"
#define FOLDING has_fold, "GPU, not in fp32"
#define TRAINING_FOLDING has_training_fold, "GPU training, not in fp32"
#define MICRO_BATCHES has_micro_batches, "micro-batches"
#define STAGES has_stages, "a pipeline"
#define RANKS has_ranks, "several ranks"
#define SYNC_BN has_sync_bn, "several ranks, train.sync_bn"
#define NO_SYNC_BN has_rank_statistics, "several ranks, no train.sync_bn"
#define MODES has_modes, "training"
#define OFFLOADING has_offload, "if chosen"
#define STREAMS has_streams, "several, or offload"

/* Every pass keeps the rule that no tensor is read before it is written; the last column lists further
 * properties that it keeps, the one before it the passes that it comes after, because it reads what they make
 * or would hide from them what they look for. Stages and ranks have what the passes before `cut` and
 * `buckets` made of the whole step, so what must not depend on their number comes before these. */
static const struct pass passes[] = {
    {"fuse", run_fuse, NULL, ALWAYS, "", "what the network computes; its parameters"},
    {"lower", run_lower, lower_traces, ALWAYS, "fuse",
     "one forward call for each node, in the graph's order, a teacher's first, for each micro-batch"},
    {"autocast", run_autocast, NULL, ALWAYS, "lower",
     "what is computed; every op gets its inputs in the type of its class"},
    {"fuse_activations", RULES, NULL, ALWAYS, "autocast",
     "what is computed, but for rounding; every op but norms, activations and additions"},
    {"fold_concat_conv", RULES, NULL, FOLDING, "autocast",
     "what is computed, but for rounding; every op that is not folded"},
    {"fold_conv_batchnorm", RULES, NULL, FOLDING, "autocast fold_concat_conv",
     "what is computed, but for rounding; every op that is not folded"},
    {"fold_maxpool", RULES, NULL, TRAINING_FOLDING, "fold_conv_batchnorm",
     "what is computed, but for rounding; all other ops"},
    {"saved", run_saved, saved_traces, ALWAYS,
     "autocast fuse_activations fold_concat_conv fold_conv_batchnorm fold_maxpool",
     "instructions; what backward reads besides outputs becomes values"},
    {"differentiate", run_differentiate, differentiate_traces, TRAINING, "saved",
     "forward, as it stands in each micro-batch"},
    {"running_statistics", run_running_statistics, running_statistics_traces, MICRO_BATCHES, "differentiate",
     "all but the updates of running statistics, which become one a step"},
    {"fuse_gradient_sums", RULES, NULL, ALWAYS, "differentiate",
     "the order of sums, which only move into adjacent ops"},
    {"relu_mask", RULES, NULL, ALWAYS, "differentiate", "every bit"},
    {"fuse_data_and_weight_gradients", run_fuse_data_and_weight_gradients, NULL, TRAINING,
     "fuse_gradient_sums", "what is computed, but for rounding; sums only move into the op before them"},
    {"cut", run_cut, cut_traces, STAGES,
     "running_statistics fuse_gradient_sums relu_mask fuse_data_and_weight_gradients",
     "the stage's instructions, in the order of the schedule; what crosses is sent and received"},
    {"sync_statistics", run_sync_statistics, sync_statistics_traces, SYNC_BN, "fuse_gradient_sums relu_mask",
     "all but batch norm, which normalises the micro-batches of all ranks together"},
    {"buckets", run_buckets, buckets_traces, RANKS, "cut",
     "every instruction; gradients lie in buckets, which ranks exchange and add up"},
    {"rank_statistics", run_rank_statistics, rank_statistics_traces, NO_SYNC_BN, "running_statistics cut",
     "all but the updates of running statistics, which know the moments of all ranks"},
    {"stage_norm", run_stage_norm, stage_norm_traces, STAGES, "cut buckets",
     "every instruction; the update knows the squares of the gradients of all stages"},
    {"join_residual_gradients", RULES, NULL, TRAINING, "fuse_gradient_sums relu_mask sync_statistics",
     "what is computed, but for rounding; sums only move into the op before them"},
    {"gradient_products", RULES, NULL, TRAINING, "fuse_gradient_sums join_residual_gradients sync_statistics",
     "what is computed, but for rounding; every value that there was"},
    {"add_gradients", RULES, NULL, TRAINING, "fuse_gradient_sums join_residual_gradients gradient_products",
     "every bit; sums only move into the op before them"},
    {"fuse_pooling", RULES, NULL, TRAINING, "fuse_gradient_sums sync_statistics", "every bit"},
    {"fuse_relu", RULES, NULL, ALWAYS, "fuse_gradient_sums", "every bit; backward, and all other ops"},
    {"add_residual", RULES, NULL, ALWAYS, "differentiate",
     "what is computed, but for rounding; backward, and all other ops"},
    {"bias_gradients", RULES, NULL, TRAINING, "fuse_data_and_weight_gradients buckets",
     "the numbers that a bias's gradient is the sum of; all other gradients"},
    {FIRST_OF_MEMORY, run_recompute, recompute_traces, MODES,
     "join_residual_gradients gradient_products add_gradients fuse_pooling fuse_relu add_residual "
     "bias_gradients",
     "every bit; forward's own instructions"},
    {"fuse_recompute", run_fuse_recompute, NULL, MODES, "recompute", "every bit; the limit of live bytes"},
    {"offload", run_offload, offload_traces, OFFLOADING, "fuse_recompute",
     "every bit; the order of computation"},
    {"streams", run_streams, streams_traces, STREAMS, "fuse_recompute offload",
     "every bit; each read waits for its write, whatever the stream"},
};
enum { PASS_COUNT = sizeof passes / sizeof *passes };

const struct pass *passes_table(int *count)
{
    *count = PASS_COUNT;
    return passes;
}

enum status pass_run(const struct pass *pass, const char *name, const struct pass_input *input,
                     struct program *program)
{
    const struct compile_options *options = input->options;
    if (pass->run) return pass->run(input, program);
    rules_apply(program, name, &(struct rule_options){&options->kernel_plans, options->lower.fold_least});
    return OK;
}

static bool is_named(const struct pass *pass, const char *names)
{
    size_t length = strlen(pass->name);
    for (const char *at = names; (at = strstr(at, pass->name)); at += length)
        if ((at == names || at[-1] == ' ') && (at[length] == ' ' || at[length] == '\0')) return true;
    return false;
}

/* True if a pass comes after another one, directly or after what does. */
static bool comes_after(int number, int other)
{
    for (int i = other; i < number; i++)
        if (is_named(&passes[i], passes[number].after) && (i == other || comes_after(i, other))) return true;
    return false;
}

bool pass_is_next(int number, const struct pass_input *input, const struct program *program,
                  struct reason *reason)
{
    const char *name = passes[number].name;
    for (int i = 0; i < PASS_COUNT && passes[number].run != RULES; i++) {
        const struct pass *other = &passes[i];
        if (!other->traces || (other->condition && !other->condition(input))) continue;
        struct traces traces = other->traces(program);
        if (traces.done > 0 && i == number)
            return because(reason, "has gone through the pass %s already", name);
        if (traces.done > 0 && i > number && comes_after(i, number))
            return because(reason, "has gone through the pass %s, which comes after %s", other->name, name);
        if (traces.left > 0 && i < number && comes_after(number, i))
            return because(reason, "has not gone through the pass %s, which %s comes after", other->name,
                           name);
    }
    return true;
}

static int number_of(const char *name)
{
    int i = 0;
    while (strcmp(passes[i].name, name) != 0) i++;
    return i;
}

/* Makes a rough plan of the program, which verifies it. */
static enum status verify(const struct pass *pass, const struct program *program)
{
    struct plan plan = {0};
    enum status status = plan_fit(program, 0, 0, &plan);
    plan_free(&plan);
    return status == OK ? OK : fail(status, "%s: invalid program after pass %s", program->graph->arch,
                                    pass->name);
}

/* Runs the passes from `first` up to `end`. */
static enum status passes_run(const struct pass_input *input, int first, int end, struct program *program)
{
    const struct compile_options *options = input->options;
    for (const struct pass *pass = &passes[first]; pass < &passes[end]; pass++) {
        if (pass->condition && !pass->condition(input)) continue;
        TRY(pass_run(pass, pass->name, input, program));
        if (options->verify_each && program->count > 0) TRY(verify(pass, program));
        if (options->after) options->after(pass->name, program, options->context);
    }
    return OK;
}

/* Makes a program by the passes from `first` up to `end`. */
static enum status program_make(const struct pass_input *input, int first, int end, struct program *program)
{
    struct program made = {0};
    enum status status = passes_run(input, first, end, &made);
    if (status == OK) status = lower_check(&made);
    if (status == OK) *program = made;
    else if (made.graph) program_free(&made);
    return status;
}

enum status passes_lower(const struct graph *graph, const struct compile_options *options,
                         struct program *program)
{
    const struct pass_input input = {.graph = graph, .options = options};
    return program_make(&input, 0, number_of(FIRST_OF_MEMORY), program);
}

enum status lower(const struct graph *graph, const struct lower_options *options,
                  const struct kernel_options *kernels, struct program *program)
{
    const struct compile_options all = {.lower = *options, .kernel_plans = *kernels};
    const struct pass_input input = {.graph = graph, .options = &all};
    return program_make(&input, number_of("lower"), number_of("running_statistics") + 1, program);
}

enum status passes_memory(const struct compile_options *options, const struct memory_choice *choice,
                          struct program *program)
{
    const struct pass_input input = {.options = options, .choice = choice};
    return passes_run(&input, number_of(FIRST_OF_MEMORY), PASS_COUNT, program);
}
