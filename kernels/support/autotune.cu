#include "kernels/support/autotune.cuh"
#include "kernels/support/planned.cuh"

extern "C" {
#include "base/log.h"
#include "base/memory.h"
#include "device/cuda_tuning.h"
}

#define CANDIDATES 96

struct candidate {
    struct kernel_plan *plan;
    float time;                          /* milliseconds; negative: none */
    bool failed;                         /* it was tried and failed */
    bool other;                          /* its results have other bits than they must have */
};

/* Candidates whose plan could be made, in the order of the list. */
struct candidates {
    const struct call *call;
    const struct algorithm *const *algorithms;
    size_t limit;                        /* bytes: candidates that need more are excluded */
    int count;
    struct candidate at[CANDIDATES];
};

/* ---- Candidates ---- */

/* A plan with the workspace of what is done behind it. */
static struct kernel_plan *plan_make(const struct algorithm *const *algorithms, const struct call *call,
                                     const char *name)
{
    struct kernel_plan *plan = algorithm_plan(algorithms, call, name);
    size_t behind = plan ? epilogues_workspace(call, plan) : 0;
    if (plan && behind > plan->workspace) plan->workspace = behind;
    return plan;
}

static void candidate_add(struct candidates *list, const char *name)
{
    const char *variant = list->call->variant;
    if (list->count == CANDIDATES || (variant && !op_variant_is(name, variant))) return;
    struct kernel_plan *plan = plan_make(list->algorithms, list->call, name);
    if (plan) list->at[list->count++] = (struct candidate){.plan = plan, .time = -1};
}

static void candidates_of(struct candidates *list, const struct algorithm *algorithm)
{
    if (!algorithm->candidates) {
        candidate_add(list, algorithm->name);
        return;
    }
    auto names = (char(*)[PLAN_NAME])memory_new(CANDIDATES, PLAN_NAME);
    int count = algorithm->candidates(list->call, CANDIDATES - list->count, names);
    for (int i = 0; i < count; i++) candidate_add(list, names[i]);
    free(names);
}

/* True if the algorithm supports the call, and its plans' names may begin with the variant's. */
static bool is_wanted(const struct algorithm *algorithm, const struct call *call)
{
    if (algorithm->supports && !algorithm->supports(call)) return false;
    return !call->variant || op_variant_is(call->variant, algorithm->name);
}

/* Without any, the last that is made of its algorithm's name alone. */
static struct candidates *candidates_new(const struct algorithm *const *algorithms, const struct call *call,
                                         size_t granted)
{
    struct candidates *list = (struct candidates *)memory_new(1, sizeof *list);
    list->call = call;
    list->algorithms = algorithms;
    int rows = 0;
    for (; algorithms[rows]; rows++)
        if (is_wanted(algorithms[rows], call)) candidates_of(list, algorithms[rows]);
    while (list->count == 0 && rows-- > 0) candidate_add(list, algorithms[rows]->name);
    size_t least = list->count > 0 ? list->at[0].plan->workspace : 0;
    for (int i = 1; i < list->count; i++)
        if (list->at[i].plan->workspace < least) least = list->at[i].plan->workspace;
    list->limit = least > granted ? least : granted;
    return list;
}

/* Frees all but `kept`, whose plan now belongs to the caller. */
static void candidates_free(struct candidates *list, const struct candidate *kept)
{
    for (int i = 0; i < list->count; i++)
        if (&list->at[i] != kept) kernel_plan_free(list->at[i].plan);
    free(list);
}

/* ---- Trials ---- */

/* The call with its own stream and memory: operands, then the workspace. */
struct trial {
    struct call call;
    struct tensor x[OP_MAX_INPUTS], d_x[OP_MAX_INPUTS], params[OP_MAX_PARAMS], d_params[OP_MAX_PARAMS];
    struct tensor saved[OP_MAX_SAVED];
    struct call_tensor tensors[CALL_TENSORS];    /* of the call */
    int tensor_count;
    struct device *device;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *memory;
    size_t bytes, operands, workspace;   /* of the memory and its parts */
};

/* Magnitudes between 1/4 and 1: the power of a product, and so the clock rate, depends on its bits. For more
 * octaves some are halved, up to octaves - 1 times. */
template <class T>
__global__ void autotune_fill_kernel(T *data, int64_t count, unsigned seed, unsigned octaves)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned bits = ((unsigned)i + seed) * 2654435761u ^ (unsigned)(i >> 7) * 40503u;
        bits ^= bits >> 15;
        float value = 0.25f + (float)(bits & 0xffff) * (0.75f / 65536);
        value = ldexpf(value, -(int)((bits >> 17) % octaves));
        data[i] = from_float<T>(bits & 0x10000 ? value : -value);
    }
}

/* Fills a tensor; one of other types than floats gets the bits of some. */
static enum status tensor_fill(const struct call *call, const struct tensor *tensor, unsigned seed,
                               unsigned octaves)
{
    bool number = dtype_is_float(tensor->dtype);
    int64_t count = number ? shape_count(tensor->shape) : (int64_t)tensor_bytes(tensor) / 4;
    if (count == 0) return OK;
    return with_type(number ? tensor->dtype : F32, [&](auto type) {
        using T = decltype(type);
        autotune_fill_kernel<<<grid_of(call, count, 256), 256, 0, stream_of(call)>>>((T *)tensor->data, count,
                                                                                     seed, octaves);
        return launched(call);
    });
}

static enum status trial_fill(const struct trial *t, unsigned seed, unsigned octaves)
{
    for (int i = 0; i < t->tensor_count; i++)
        if (t->tensors[i].reads)
            TRY(tensor_fill(&t->call, t->tensors[i].tensor, seed + (unsigned)i, octaves));
    return OK;
}

/* Places the tensors; returns the offset of the workspace. */
static size_t trial_place(struct trial *t, char *memory)
{
    size_t bytes = 0;
    for (int i = 0; i < t->tensor_count; i++) {
        struct tensor *tensor = t->tensors[i].tensor;
        if (memory) tensor->data = memory + bytes;
        bytes += workspace_align(tensor_bytes(tensor));
    }
    return bytes;
}

/* The largest workspace below `below`, and within the limit, that a candidate needs. False: there is none. */
static bool next_workspace(const struct candidates *list, size_t below, size_t *workspace)
{
    bool found = false;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = list->at[i].plan->workspace;
        if (bytes > list->limit || bytes >= below || (found && bytes <= *workspace)) continue;
        *workspace = bytes;
        found = true;
    }
    return found;
}

/* Without memory for any candidate trial->memory stays NULL. */
static enum status trial_allocate(struct trial *t, const struct candidates *list)
{
    struct device *device = t->device;
    size_t below = SIZE_MAX;
    t->operands = trial_place(t, NULL);
    while (!t->memory && next_workspace(list, below, &t->workspace)) {
        t->bytes = t->operands + t->workspace + 256;
        t->memory = (char *)device_allocate_within(device, t->bytes, "timing of kernels");
        below = t->workspace;
    }
    if (!t->memory) return OK;
    trial_place(t, t->memory);
    t->call.workspace = t->memory + t->operands;
    return trial_fill(t, 0, 1);
}

static struct tensor *tensors_copy(struct tensor *to, const struct tensor *from, int count)
{
    for (int i = 0; i < count; i++) {
        to[i] = from[i];
        to[i].data = NULL;
    }
    return to;
}

static void trial_describe(struct trial *t, const struct call *call)
{
    t->call = *call;
    t->device = call->device;
    t->call.x = tensors_copy(t->x, call->x, call->x_count);
    t->call.d_x = tensors_copy(t->d_x, call->d_x, call->x_count);
    t->call.params = tensors_copy(t->params, call->params, call->param_count);
    t->call.d_params = tensors_copy(t->d_params, call->d_params, call->param_count);
    t->call.saved = tensors_copy(t->saved, call->saved, call->saved_count);
    t->call.stream = t->stream;
    t->tensor_count = call_tensors(&t->call, t->tensors);
}

/* It starts after the work queued on the device's first stream. */
static enum status trial_begin(struct trial *t)
{
    struct device *device = t->device;
    cudaStream_t first = (cudaStream_t)device->backend->stream(device, 0);
    TRY(cuda_status(device, cudaEventCreate(&t->begin), "creating an event"));
    TRY(cuda_status(device, cudaEventCreate(&t->end), "creating an event"));
    TRY(cuda_status(device, cudaEventRecord(t->begin, first), "recording an event"));
    return cuda_status(device, cudaStreamWaitEvent(t->stream, t->begin, 0), "waiting for an event");
}

static enum status trial_open(struct trial *t, const struct candidates *list, cudaStream_t stream)
{
    *t = (struct trial){.stream = stream};
    trial_describe(t, list->call);
    TRY(trial_begin(t));
    return trial_allocate(t, list);
}

static void trial_close(struct trial *t)
{
    cudaStreamSynchronize(t->stream);
    if (t->memory) device_release(t->device, t->memory, t->bytes);
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
}

static enum status trial_queue(const struct trial *t, const struct candidate *c)
{
    return planned_run(&t->call, c->plan);
}

/* Milliseconds from `begin` to `end`; negative if the work between them failed. */
static float trial_elapsed(const struct trial *t)
{
    float elapsed = -1;
    if (cudaEventSynchronize(t->end) != cudaSuccess ||
        cudaEventElapsedTime(&elapsed, t->begin, t->end) != cudaSuccess)
        return -1;
    return elapsed;
}

static float trial_once(const struct trial *t, const struct candidate *c)
{
    cudaEventRecord(t->begin, t->stream);
    if (trial_queue(t, c) != OK) return -1;
    cudaEventRecord(t->end, t->stream);
    return trial_elapsed(t);
}

/* Several runs captured as one graph, like steps; NULL if the candidate cannot be captured. */
static cudaGraphExec_t trial_capture(const struct trial *t, const struct candidate *c, int runs,
                                     cudaStreamCaptureMode mode)
{
    cudaStream_t stream = t->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    bool good = true;
    if (cudaStreamBeginCapture(stream, mode) != cudaSuccess) return NULL;
    for (int i = 0; good && i < runs; i++) good = trial_queue(t, c) == OK;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || !graph) return NULL;
    if (good && cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = NULL;
    cudaGraphDestroy(graph);
    return executable;
}

/* Loads the code of all candidates, which takes longer than timing them, while those of other problems are
 * timed: by creating graphs that are never launched, since their addresses are not allocated. */
static void candidates_load(const struct candidates *list, cudaStream_t stream)
{
    struct trial t = {.stream = stream};
    char *nowhere = (char *)((size_t)1 << 40);
    trial_describe(&t, list->call);
    t.call.workspace = nowhere + trial_place(&t, nowhere);
    for (int i = 0; i < list->count; i++) {
        cudaGraphExec_t graph = trial_capture(&t, &list->at[i], 1, cudaStreamCaptureModeRelaxed);
        if (graph) cudaGraphExecDestroy(graph);
        cudaGetLastError();              /* code that cannot be captured is loaded by its first run */
    }
}

#define TRIAL_ROUNDS 3
#define TRIAL_ENOUGH 0.15f               /* milliseconds per round */
#define TRIAL_RUNS 8
#define TRIAL_LONG 1                     /* ms; above that the cost of a launch or a graph is negligible */
#define TRIAL_LOADING 20                 /* additional milliseconds that a first run may take */

static float trial_round(const struct trial *t, cudaGraphExec_t graph, int runs)
{
    cudaEventRecord(t->begin, t->stream);
    cudaGraphLaunch(graph, t->stream);
    cudaEventRecord(t->end, t->stream);
    return trial_elapsed(t) / (float)runs;
}

/* Milliseconds of one run, the best of a few rounds; negative if the candidate does not work; less accurate
 * if far from `best`. */
static float trial_time(const struct trial *t, const struct candidate *c, float best)
{
    float least = trial_once(t, c);
    if (least < 0 || least > 3 * best + TRIAL_LOADING) return least;
    bool loaded = least <= 1.3f * best + 0.05f && least <= TRIAL_LONG;
    if (!loaded) least = trial_once(t, c);
    if (least < 0 || least > 1.3f * best + 0.05f || least > TRIAL_LONG) return least;
    int runs = (int)(TRIAL_ENOUGH / (least + 0.001f)) + 1;
    if (runs > TRIAL_RUNS) runs = TRIAL_RUNS;
    cudaGraphExec_t graph = trial_capture(t, c, runs, cudaStreamCaptureModeThreadLocal);
    if (!graph) return -1;
    least = trial_round(t, graph, runs);
    for (int i = 1; i < TRIAL_ROUNDS && least >= 0; i++) {
        float round = trial_round(t, graph, runs);
        if (round < least) least = round;
        if (least > 1.1f * best) break;
    }
    cudaGraphExecDestroy(graph);
    return least;
}

/* ---- The bits of results ---- */

/* Results that are compared, in several rounds if a call has fewer. Where an order of additions is not the
 * first candidate's, one in 10,000 of the numbers in 16 bits differs, and most of those in fp32. */
#define BITS_RESULTS ((int64_t)1 << 20)
#define BITS_ROUNDS 16
/* Sums of a few hundred products of bf16 within two octaves are exact in fp32, in any order. */
#define BITS_OCTAVES 12

__global__ void autotune_digest_kernel(unsigned long long *sum, const uint32_t *words, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    unsigned long long own = 0;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned long long bits = words[i] + 0x9e3779b97f4a7c15ull * (unsigned long long)(i + 1);
        bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9ull;
        own += bits ^ bits >> 31;
    }
    atomicAdd(sum, own);
}

/* How often a call is repeated with other numbers; 0: its results are too few to tell orders apart. */
static int bits_rounds(const struct call *call)
{
    bool forward = call->phase == PHASE_FORWARD, params = call->phase == PHASE_BACKWARD_PARAMS;
    struct shape of = forward ? call->y.shape : params ? call->d_params[0].shape : call->d_x[0].shape;
    int64_t rounds = div_up(BITS_RESULTS, shape_count(of));
    return rounds <= BITS_ROUNDS ? (int)rounds : 0;
}

static bool trial_digest(const struct trial *t, const struct candidate *c, unsigned seed,
                         unsigned long long *sum)
{
    unsigned long long *at = (unsigned long long *)t->call.workspace, more = 0;
    int64_t words = (int64_t)(t->operands / sizeof(uint32_t));
    if (cudaMemsetAsync(t->memory, 0, t->operands, t->stream) || trial_fill(t, seed, BITS_OCTAVES) != OK ||
        trial_queue(t, c) != OK || cudaMemsetAsync(at, 0, sizeof *at, t->stream))
        return false;
    autotune_digest_kernel<<<grid_of(&t->call, words, 256, 8), 256, 0, t->stream>>>(
        at, (const uint32_t *)t->memory, words);
    if (cudaMemcpyAsync(&more, at, sizeof more, cudaMemcpyDeviceToHost, t->stream) ||
        cudaStreamSynchronize(t->stream))
        return false;
    *sum = *sum * 31 + more;
    return true;
}

static bool trial_bits(const struct trial *t, const struct candidate *c, unsigned long long *sum)
{
    int rounds = bits_rounds(&t->call);
    *sum = 0;
    for (int i = 0; i < rounds; i++)
        if (!trial_digest(t, c, 7919u * (unsigned)i, sum)) return false;
    return true;
}

/* Clears the error of a refused launch; serious errors persist. */
static enum status candidate_fail(const struct trial *t, struct candidate *c)
{
    c->failed = true;
    return cuda_status(t->device, (cudaGetLastError(), cudaGetLastError()), "trying a kernel plan");
}

/* Marks as `other` all candidates but those that compute the bits of the first one which works, in any run.
 * *tried false: there is no memory to try that one in, so that it is taken as it is; or none works. */
static enum status candidates_agree(struct candidates *list, const struct trial *t, bool *tried)
{
    unsigned long long first = 0, sum;
    *tried = false;
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->plan->workspace > list->limit) continue;
        if (!*tried && c->plan->workspace > t->workspace) return OK;
        bool fits = c->plan->workspace <= t->workspace, works = fits && trial_bits(t, c, &sum);
        if (fits && !works) TRY(candidate_fail(t, c));
        if (works && !*tried) first = sum, *tried = true;
        c->other = !works || sum != first;
    }
    return trial_fill(t, 0, 1);
}

/* ---- Results of timing by family (device/cuda_families.h) ---- */

/* Multiples of the best time that are far from it, apart from loading, and near it. */
#define FAR_TIMES 8
#define NEAR_TIMES 3
#define FAMILY_WORDS 3                   /* of a name: "cudnn plain 37" */

/* The name of the candidate's family; the caller frees it. */
static char *family_new(const struct call *call, const struct candidate *c)
{
    int length = 0;
    const char *name = c->plan->name;
    for (int words = 0; name[length]; length++)
        if (name[length] == ' ' && ++words == FAMILY_WORDS) break;
    return text_format("%d %s %.*s", call->phase, dtype_table[call->x[0].dtype].name, length, name);
}

static bool is_hopeless(const struct families *families, const struct call *call, const struct candidate *c)
{
    char *family = family_new(call, c);
    bool hopeless = families_hopeless(families, family);
    free(family);
    return hopeless;
}

static void families_teach(struct families *families, const struct candidates *list, float best)
{
    for (int i = 0; i < list->count; i++) {
        float time = list->at[i].time;
        if (time < 0) continue;
        bool near = time < NEAR_TIMES * best, far = time > FAR_TIMES * best + 2 * TRIAL_LOADING;
        char *family = family_new(list->call, &list->at[i]);
        families_learn(families, family, near ? FAMILY_NEAR : far ? FAMILY_FAR : FAMILY_BETWEEN);
        free(family);
    }
}

/* ---- The choice ---- */

static enum status candidates_time(struct candidates *list, const struct trial *t, struct families *families)
{
    float best = 1e9;
    enum status status = OK;
    for (int i = 0; status == OK && i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->plan->workspace > list->limit || c->plan->workspace > t->workspace || c->other) continue;
        if (best < 1e9 && is_hopeless(families, list->call, c)) continue;
        c->time = trial_time(t, c, best);
        if (c->time < 0) status = candidate_fail(t, c);
        else if (c->time < best) best = c->time;
    }
    families_teach(families, list, best);
    return status;
}

/* Runs candidates in order until one works. */
static enum status candidates_try(struct candidates *list, const struct trial *t)
{
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->plan->workspace > list->limit) continue;
        if (c->plan->workspace > t->workspace || trial_once(t, c) >= 0) return OK;
        TRY(candidate_fail(t, c));
    }
    return OK;
}

/* The fastest; of equally fast ones, that with the smallest workspace. NULL: none was timed. */
static struct candidate *candidates_fastest(struct candidates *list)
{
    struct candidate *best = NULL, *chosen;
    for (int i = 0; i < list->count; i++)
        if (list->at[i].time >= 0 && (!best || list->at[i].time < best->time)) best = &list->at[i];
    chosen = best;
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        bool near = c->time >= 0 && c->time < 1.02f * best->time;
        if (near && c->plan->workspace < chosen->plan->workspace) chosen = c;
    }
    return chosen;
}

/* The first within the limit that has not failed, or that has. */
static struct candidate *candidates_first(struct candidates *list)
{
    struct candidate *failed = NULL;
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->plan->workspace > list->limit) continue;
        if (!c->failed) return c;
        if (!failed) failed = c;
    }
    return failed;
}

static bool takes_first(const struct call *call)
{
    return (call->deterministic && bits_rounds(call) == 0) || (call->variant && !call->timed);
}

static enum status candidates_time_on(struct candidates *list, cudaStream_t stream)
{
    struct trial t;
    const struct call *call = list->call;
    bool timed = !takes_first(call);
    if (timed) candidates_load(list, stream);
    struct families *families = cuda_timing_begin(call->device);
    enum status status = trial_open(&t, list, stream);
    if (status == OK && t.memory && timed && call->deterministic) status = candidates_agree(list, &t, &timed);
    if (status == OK && t.memory)
        status = timed ? candidates_time(list, &t, families) : candidates_try(list, &t);
    trial_close(&t);
    cuda_timing_end(call->device);
    return status;
}

static enum status candidates_choose(struct candidates *list, struct candidate **chosen)
{
    cudaStream_t stream;
    TRY(cuda_status(list->call->device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                    "creating a stream"));
    enum status status = candidates_time_on(list, stream);
    /* The handle of cuDNN is lent to others later: it must not name a stream that is gone. */
    if (list->call->library) cudnn()->cudnnSetStream((cudnnHandle_t)list->call->library, NULL);
    cudaStreamDestroy(stream);
    *chosen = candidates_fastest(list);
    if (!*chosen) *chosen = candidates_first(list);
    return status;
}

/* ---- The caches ---- */

/* A call to be planned. */
struct search {
    const struct algorithm *const *algorithms;
    const struct call *call;
    size_t granted;
    char *key;
};

/* A choice has its time, 0 if it was not timed, and its workspace: "131.2 us 1048576 bytes cudnn
 * plain 37 2=5". NULL: there is none, or it is not valid any more. */
static struct kernel_plan *recall(const struct search *s, const char *choice)
{
    float time;
    size_t bytes;
    int used = 0;
    if (!choice || sscanf(choice, "%f us %zu bytes %n", &time, &bytes, &used) < 2 || used == 0) return NULL;
    if (strlen(choice + used) >= PLAN_NAME) return NULL;
    struct kernel_plan *plan = plan_make(s->algorithms, s->call, choice + used);
    if (!plan || plan->workspace <= bytes) return plan;
    kernel_plan_free(plan);
    return NULL;
}

/* The device's cache keeps all choices during the run; the file keeps those that were timed, for others. */
static void remember(const struct search *s, const struct candidate *c, struct tuning *tuning)
{
    float time = c->time < 0 ? 0 : 1000 * c->time;
    char *choice = text_format("%.1f us %zu bytes %s", time, c->plan->workspace, c->plan->name);
    if (tuning && c->time >= 0) tuning_set(tuning, s->key, choice);
    cuda_choose(s->call->device, s->key, choice);
    log_detail("%s: %s", s->key, choice);
    free(choice);
}

static enum status choose(const struct search *s, struct tuning *tuning, struct kernel_plan **plan)
{
    struct candidates *list = candidates_new(s->algorithms, s->call, s->granted);
    struct candidate *chosen = NULL;
    enum status status = list->count > 0 ? candidates_choose(list, &chosen) : OK;
    if (status != OK) chosen = NULL;
    if (chosen && !s->call->variant) remember(s, chosen, tuning);
    *plan = chosen ? chosen->plan : NULL;
    candidates_free(list, chosen);
    return status;
}

static enum status choose_by_file(const struct search *s, struct kernel_plan **plan)
{
    struct tuning *tuning = tuning_open();
    const char *remembered = tuning_find(tuning, s->key);
    enum status status = OK;
    *plan = recall(s, remembered);
    if (*plan) cuda_choose(s->call->device, s->key, remembered);
    else status = choose(s, tuning, plan);
    tuning_close(tuning);
    return status;
}

static enum status choose_remembered(const struct search *s, struct kernel_plan **plan)
{
    char *known = cuda_choice(s->call->device, s->key);
    *plan = recall(s, known);
    free(known);
    if (*plan) return OK;
    return s->call->deterministic ? choose(s, NULL, plan) : choose_by_file(s, plan);
}

/* GPU, libraries and the call. */
static char *key_new(const struct call *call)
{
    struct text key = {};
    text_add(&key, "%s, cuDNN %zu, cuBLAS %zu, ", cuda_facts(call->device)->name, cudnn()->cudnnGetVersion(),
             cublaslt()->cublasLtGetVersion());
    call_print(call, &key);
    return key.data;
}

enum status autotune(const struct algorithm *const *algorithms, const struct call *call, size_t granted,
                     struct kernel_plan **made)
{
    struct call any = *call;
    any.variant = NULL;
    struct search search = {algorithms, call, granted, NULL};
    struct kernel_plan *plan = NULL;
    if (call->variant) TRY(choose(&search, NULL, &plan));
    search.call = &any;
    search.key = key_new(call);
    enum status status = plan ? OK : choose_remembered(&search, &plan);
    if (status == OK && !plan) status = fail(FAILED, "%s: no algorithm supports it", search.key);
    if (plan) plan->trusted = true;
    free(search.key);
    *made = plan;
    return status;
}
