#include "session/step.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/members.h"
#include "base/memory.h"
#include "comm/nccl_exchange.h"
#include "kernels/optimizer/matrix_sharing.h"
#include "session/session_store.h"
#include "session/tiles.h"

/* Overflows in a row, with the loss scale at its floor, after which it is clear that they will not
 * stop by themselves. A static scale cannot move: the first is enough. */
#define STUCK_DYNAMIC 3
#define STUCK_STATIC 1

int step_stuck(const struct hyperparameters *hyper)
{
    return hyper->scaling.dynamic ? STUCK_DYNAMIC : STUCK_STATIC;
}

/* The decay by which the average follows at update `t`, from 1; 1: it does not. Without lookahead it is
 * warmed up as torch-ema's, so that the average of a short run is not its initial weights. */
static double decay_at(const struct hyperparameters *hyper, int64_t t)
{
    if (hyper->optimizer_settings.ema == 0) return 1;      /* train.swa averages at the end of epochs */
    double decay = hyper->optimizer_settings.ema, over = fmin(1, (double)t / (double)hyper->schedule.total);
    if (hyper->lookahead == 0) return fmin(decay, (1 + (double)t) / (10 + (double)t));
    return t % hyper->lookahead == 0 ? pow(decay, (double)hyper->lookahead) * over * over * over : 1;
}

struct update_rates step_rates(const struct hyperparameters *hyper, int64_t updates)
{
    struct update_rates rates = {.updates = updates};
    for (int k = 0; k < 2; k++) {
        struct schedule_rate rate = schedule_at(&hyper->schedule, updates + k);
        rates.lr[k] = rate.lr;
        rates.momentum[k] = rate.momentum;
        rates.ema[k] = decay_at(hyper, updates + k + 1);
    }
    return rates;
}

static struct kernel_options kernel_options(const struct session *session)
{
    const char *algorithm = session_conv_algorithm(session);
    return (struct kernel_options){
        .code_of = kernel_plans_code(session_device_kind(session)),
        .device = session->device,
        .tf32 = session->hyper.precision->tf32,
        .deterministic = session->settings->run.deterministic,
        .forced = algorithm ? op_find("conv") : NULL,
        .variant = algorithm,
    };
}

/* Ranks must choose alike, whatever GPUs and processors they have: they plan for the ones that are assumed
 * where no device is known. */
static struct machine machine_of(const struct session *session)
{
    int threads = (int)session->settings->run.threads;
    bool alone = !session->comm && session->hyper.replicas * session->hyper.stages == 1;
    const char *gpu = session->device ? session->device->model : session->gpu;
    if (session_device_kind(session) == DEVICE_CPU) return machine_cpu(threads > 0 ? threads : 2);
    return machine_gpu(alone ? gpu : NULL, session->hyper.precision->tf32);
}

/* Where the host runs ahead, one batch is on its way while another is worked on. */
static int batches_on_device(const struct session *session)
{
    return session_device_kind(session) == DEVICE_CUDA ? 2 : 1;
}

/* NCCL's sum of two ranks' gradients has the bits of the program's; of more, its order is its own. Before
 * there are ranks, NCCL is taken for one that exchanges beside the step. */
static int64_t all_reduce_bytes(const struct session *session)
{
    bool orders = session->hyper.replicas > 2 && session->settings->run.deterministic;
    if (session_device_kind(session) != DEVICE_CUDA || orders) return 0;
    const struct comm *comm = session->replicas;
    int64_t beside = comm ? comm->exchange->beside_bytes : EXCHANGE_BESIDE_BYTES;
    return beside > 0 ? beside : INT64_MAX;
}

/* True if stages write into each other's memory, as on one host; which is known when the device is open. */
static bool has_mail(const struct session *session)
{
    if (session_device_kind(session) == DEVICE_CPU || session->hyper.stages == 1) return false;
    return !session->device || !session->stages || session->stages->exchange->expect;
}

/* Besides mail. */
static int64_t exchange_bytes(const struct session *session)
{
    if (session_device_kind(session) == DEVICE_CPU) return 0;
    bool messages = session->hyper.stages > 1 && !has_mail(session);
    const struct nccl_use use = {.parts = all_reduce_bytes(session) == 0};
    return nccl_exchange_bytes(session->hyper.replicas, use) +
           (messages ? nccl_stages_bytes() : 0);
}

/* The budget of a training step, without its program. */
static struct budget budget_before(const struct session *session)
{
    return (struct budget){
        .total = session_limit(session),
        .store = step_store_bytes(session) +
                 teacher_bytes(&session->teacher, session->hyper.precision->storage),
        .input = session_preprocessing_bytes(session) + tiles_batches_bytes(session),
        .exchange = exchange_bytes(session),
        .batches = batches_on_device(session),
        .mail = has_mail(session),
    };
}

/* The part of memory.limit that is left for a stage's values; ranks must not differ in it, as their devices
 * may. Where activations may be recomputed, that costs less than stages of unequal work. */
static int64_t stage_limit(const struct session *session, const struct budget *budget)
{
    bool keeps = session->settings->memory.strategy == STRATEGY_KEEP;
    int64_t left = session->settings->memory.limit - budget->store - budget->input;
    return keeps && left > 0 ? left : 0;
}

/* True if messages of other stages stay where they arrive; without a device, as on one host. */
static bool keeps_mail(const struct session *session)
{
    if (session_device_kind(session) == DEVICE_CPU) return false;
    return !session->stages || session->stages->exchange->place;
}

static struct cut_options cut_options(const struct session *session, const struct budget *budget)
{
    static const enum pipeline_schedule schedules[] = {
        [PIPELINE_SCHEDULE_AUTO] = PIPELINE_1F1B,
        [PIPELINE_SCHEDULE_GPIPE] = PIPELINE_GPIPE,
        [PIPELINE_SCHEDULE_1F1B] = PIPELINE_1F1B,
        [PIPELINE_SCHEDULE_ZERO_BUBBLE] = PIPELINE_ZERO_BUBBLE,
        [PIPELINE_SCHEDULE_V] = PIPELINE_V,
    };
    const struct settings *settings = session->settings;
    return (struct cut_options){
        .stages = session->hyper.stages, .stage = session->stage,
        .schedule = schedules[settings->parallel.schedule],
        .choose = settings->parallel.schedule == PIPELINE_SCHEDULE_AUTO && settings->memory.limit == 0,
        .on_cpu = session_device_kind(session) == DEVICE_CPU,
        .limit = stage_limit(session, budget), .in_mail = keeps_mail(session),
    };
}

/* Weight gradients compute beside each chain. The stages of a pipeline take micro-batches in an
 * order of their own; GPUs that share a batch take theirs one after another so far. */
static int streams_wanted(const struct session *session)
{
    int streams = session_streams(session), count = (int)session->settings->parallel.microbatches;
    bool several = count > 1 && session->hyper.stages == 1 && session->hyper.replicas == 1;
    if (streams < 2 || !several) return streams < 2 ? streams : 2;
    bool by_layer = session->settings->parallel.streams == STREAMS_LAYERS;
    return by_layer || count > streams / 2 ? streams : 2 * count;
}

static enum stream_division stream_division(int streams)
{
    return streams == STREAMS_LAYERS ? BY_LAYER : BY_MICRO_BATCH;
}

static enum fit_mode fit_mode(int strategy)
{
    static const enum fit_mode modes[] = {
        [STRATEGY_AUTO] = FIT_AUTO,
        [STRATEGY_KEEP] = FIT_KEEP,
        [STRATEGY_RECOMPUTE] = FIT_RECOMPUTE,
        [STRATEGY_OFFLOAD] = FIT_OFFLOAD,
    };
    return modes[strategy];
}

/* Below that, kernels on matrices of channels cost more than is spared; on CPUs it is slower. */
#define FOLD_LEAST (INT64_C(1) << 24)

static bool folds(const struct session *session)
{
    return session_device_kind(session) == DEVICE_CUDA && !session_conv_algorithm(session);
}

/* Targets that the loader makes are smoothed there (data/loader/targets.h). */
static bool has_soft_targets(const struct session *session, bool training)
{
    bool made = mix_is_on(&session->data.mix) || data_weighs_classes(session->settings);
    if (session->data.target == TARGET_MASK) return false;
    return session->data.target != TARGET_CLASS || (training && made);
}

/* A program may have fewer of the matrices. */
static int64_t update_workspace(const struct session *session)
{
    const struct graph *graph = &session->graphs.training;
    if (!session->hyper.optimizer->has_matrices) return 0;
    struct optimizer_param *params = memory_new((size_t)graph->param_count, sizeof *params);
    for (int i = 0; i < graph->param_count; i++)
        params[i] = (struct optimizer_param){.count = shape_count(graph->params[i].spec.shape),
                                             .rows = graph->params[i].rows, .alike = graph->params[i].alike};
    const struct matrix_ranks ranks = {.count = session->hyper.replicas};
    bool on_gpu = session_device_kind(session) == DEVICE_CUDA;
    struct matrix_sharing *sharing = matrix_sharing_open(&ranks, on_gpu, params, graph->param_count);
    int64_t bytes = sharing->bytes;
    matrix_sharing_close(sharing);
    free(params);
    return bytes;
}

struct compile_options step_options(const struct session *session, enum step_kind kind)
{
    bool training = kind == STEP_TRAINING, soft = has_soft_targets(session, training);
    bool labels = session->data.target == TARGET_LABELS;
    bool tiled = !training && session->data.target == TARGET_MASK;
    const struct hyperparameters *hyper = &session->hyper;
    const struct budget budget = budget_before(session);
    return (struct compile_options){
        .lower = {
            .batch = tiled ? tiles_of(session).batch : hyperparameters_share(hyper),
            .micro_batches = tiled ? 1 : hyper->micro_batches,
            .first_micro_batch = training ? session_replica(session) * hyper->micro_batches : 0,
            .all_micro_batches = training ? hyper->replicas * hyper->micro_batches : 0,
            .training = training,
            .sync_bn = session->settings->train.sync_bn,
            .storage = session->hyper.precision->storage,
            .wire = session->settings->parallel.wire == WIRE_STORAGE ? hyper->precision->storage : F32,
            .loss = hyper->loss,
            .label_smoothing = training && !soft ? session->settings->augment.label_smoothing : 0,
            .fold_least = folds(session) ? FOLD_LEAST : 0,
            .soft_targets = soft,
            .pixel_loss = session->data.target == TARGET_MASK ? hyper->pixel_loss : NULL,
            .weighted_targets = labels && training && data_weighs_classes(session->settings),
            .logits = !training,
            .features = tiled,
            .distill = session->teacher.path ? session->teacher.distill : NULL,
            .update_workspace = training ? update_workspace(session) : 0,
            .machine = machine_of(session),
        },
        .kernel_plans = kernel_options(session),
        .cut = cut_options(session, &budget),
        .buckets = {session->settings->parallel.bucket, all_reduce_bytes(session)},
        .streams = streams_wanted(session),
        .stream_division = stream_division((int)session->settings->parallel.streams),
        .fit = fit_mode(session->settings->memory.strategy),
        .budget = training ? budget : (struct budget){.behind = tiled ? tiles_behind_bytes(session) : 0},
    };
}

const struct graph *step_graph(const struct session *session, enum step_kind kind)
{
    const struct graphs *graphs = &session->graphs;
    if (session->features.head.nodes) return &session->features.head;
    if (kind == STEP_EVALUATION) return graphs->folded.nodes ? &graphs->folded : &graphs->evaluation;
    return graphs_step(graphs);
}

enum status step_program(const struct session *session, enum step_kind kind, struct program *program)
{
    struct compile_options options = step_options(session, kind);
    return compile(step_graph(session, kind), &options, program);
}

const char *step_strategy(const struct session *session, const struct program *program)
{
    bool keep = session->settings->memory.strategy == STRATEGY_KEEP || recompute_count(program) == 0;
    if (offload_bytes(program) > 0) return "offload";
    return keep ? "keep" : "recompute";
}

/* `stay`: results on the device. */
static enum status prepare(const struct session *session, enum step_kind kind, const struct graph *graph,
                           const struct compile_options *compiling, bool stay, struct store *store,
                           struct step *step)
{
    *step = (struct step){0};
    TRY(compile_plan(graph, compiling, &step->compiled));
    const struct exec_options options = {
        .device = session->device,
        .store = store,
        .teacher = &session->teacher.store,
        .replicas = session->replicas,
        .stages = session->stages,
        .optimizer = kind == STEP_TRAINING ? session->hyper.optimizer : NULL,
        .optimizer_settings = session->hyper.optimizer_settings,
        .scaling = session->hyper.scaling,
        .decay_norm_bias = session->settings->optimizer.decay_norm_bias,
        .tf32 = session->hyper.precision->tf32,
        .deterministic = session->settings->run.deterministic,
        .stop_at = session->settings->train.on_nan == ON_NAN_STOP ? step_stuck(&session->hyper) : 0,
        .seed = (uint64_t)session->settings->run.seed,
        .results_stay = stay,
    };
    step->exec = exec_prepare(&step->compiled, &options);
    return OK;
}

enum status step_prepare(const struct session *session, enum step_kind kind, struct store *store,
                         struct step *step)
{
    const struct compile_options compiling = step_options(session, kind);
    bool stay = kind == STEP_EVALUATION && session->data.target == TARGET_MASK;
    return prepare(session, kind, step_graph(session, kind), &compiling, stay, store, step);
}

static enum status place(struct step *step, const struct exec_memory *memory)
{
    enum status status = exec_place(step->exec, memory);
    if (status != OK) step_close(step);
    return status;
}

enum status step_open(const struct session *session, enum step_kind kind, struct store *store,
                      struct step *step)
{
    TRY(step_prepare(session, kind, store, step));
    return place(step, &(struct exec_memory){0});
}

enum status step_open_features(const struct session *session, const struct graph *part, struct store *store,
                               const struct exec_memory *memory, struct step *step)
{
    struct compile_options compiling = step_options(session, STEP_EVALUATION);
    compiling.lower.features = true;
    TRY(prepare(session, STEP_EVALUATION, part, &compiling, false, store, step));
    return place(step, memory);
}

void step_close(struct step *step)
{
    if (step->exec) exec_close(step->exec);
    compiled_free(&step->compiled);
    *step = (struct step){0};
}

struct budget step_taken(const struct session *session, const struct program *program, int64_t arena)
{
    const struct budget before = budget_before(session);
    return budget_taken(&before, program, arena);
}

void step_taken_json(const struct budget *taken, const struct plan *plan, struct text *object)
{
    member_integer(object, "arena_bytes", taken->arena);
    member_integer(object, "live_bytes_bound", plan->live_bytes_bound);
    member_integer(object, "store_bytes", taken->store);
    member_integer(object, "batch_bytes", taken->input);
    member_integer(object, "workspace_bytes", plan->workspace_bytes);
    member_integer(object, "total_bytes", taken->total);
}

int64_t step_store_bytes(const struct session *session)
{
    struct store_options options = session_store_options(session, true);
    struct store_layout layout;
    store_lay_out(&session->graphs.training, &options, &layout);
    int64_t bytes = layout.bytes;
    store_layout_free(&layout);
    return bytes;
}

#define LOOK_SECONDS 0.001   /* after which a waiting host looks whether the device still works */

/* Adds up the classes of all ranks' images, or of their pixels; the ranks of a pipeline load the same ones,
 * and one of them has losses. */
static enum status weigh(const struct session *session, const struct loader *loader, struct batch *batch)
{
    size_t numbers = (size_t)batch->count_numbers;
    if (!session_has_losses(session)) memset(batch->counts, 0, numbers * sizeof *batch->counts);
    TRY(comm_sum(session->comm, batch->counts, batch->count_numbers));
    loader_weigh(loader, batch);
    return OK;
}

enum status step_next(const struct session *session, const struct step *step, struct loader *loader,
                      struct batch **batch, double *wait_seconds)
{
    while (!exec_idle(step->exec) && !loader_wait(loader, LOOK_SECONDS)) {}
    TRY(loader_next(loader, batch, wait_seconds));
    return *batch && (*batch)->counts && session->comm ? weigh(session, loader, *batch) : OK;
}
