#include "kernels/support/autotune.cuh"

extern "C" {
#include "base/log.h"
#include "base/memory.h"
#include "device/cuda_tuning.h"
}

#define CANDIDATES 96

struct candidate {
    char name[CANDIDATE_NAME];
    void *plan;
    size_t workspace;
    float time;                          /* milliseconds; negative: none */
    bool failed;                         /* it was tried and failed */
    bool other;                          /* its results have other bits than they must have */
};

/* Those whose plan could be made, in the order of the list. */
struct candidates {
    const struct autotune_problem *problem;
    size_t limit;                        /* bytes: candidates that need more are excluded */
    int count;
    struct candidate at[CANDIDATES];
};

/* ---- Candidates ---- */

static void candidate_add(struct candidates *list, const char *name)
{
    const struct autotune_problem *p = list->problem;
    struct candidate *made = &list->at[list->count];
    if (!candidate_is(name, p->only)) return;
    *made = (struct candidate){.time = -1};
    snprintf(made->name, sizeof made->name, "%s", name);
    made->plan = p->functions->plan_make(p->self, name, &made->workspace);
    if (made->plan) list->count++;
}

static struct candidates *candidates_new(const struct autotune_problem *p)
{
    struct candidates *list = (struct candidates *)memory_new(1, sizeof *list);
    auto names = (char(*)[CANDIDATE_NAME])memory_new(CANDIDATES, CANDIDATE_NAME);
    list->problem = p;
    int count = p->functions->candidates(p->self, CANDIDATES, names);
    for (int i = 0; i < count; i++) candidate_add(list, names[i]);
    if (list->count == 0) candidate_add(list, p->functions->fallback);
    free(names);
    size_t least = list->count > 0 ? list->at[0].workspace : 0;
    for (int i = 1; i < list->count; i++)
        if (list->at[i].workspace < least) least = list->at[i].workspace;
    list->limit = least > p->workspace_limit ? least : p->workspace_limit;
    return list;
}

/* Frees all but `kept`, whose plan now belongs to the caller. */
static void candidates_free(struct candidates *list, const struct candidate *kept)
{
    for (int i = 0; i < list->count; i++)
        if (&list->at[i] != kept) list->problem->functions->plan_free(list->at[i].plan);
    free(list);
}

/* ---- Trials ---- */

/* A call with its own stream and memory: operands, then the workspace. */
struct trial {
    const struct autotune_problem *problem;
    struct tensor x, y, sums, mask, more, params[2], d_params[2];
    struct call call;
    cudaStream_t stream;
    cudaEvent_t begin, end;
    char *memory;
    size_t bytes, operands, workspace;   /* of the memory and its parts */
};

/* Magnitudes between 1/4 and 1: the power of a product, and so the clock rate, depends on its bits. */
template <class T> __global__ void autotune_fill_kernel(T *data, int64_t count, unsigned seed)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned bits = ((unsigned)i + seed) * 2654435761u ^ (unsigned)(i >> 7) * 40503u;
        bits ^= bits >> 15;
        float value = 0.25f + (float)(bits & 0xffff) * (0.75f / 65536);
        data[i] = from_float<T>(bits & 0x10000 ? value : -value);
    }
}

static enum status tensor_fill(const struct call *call, const struct tensor *tensor, unsigned seed)
{
    int64_t count = shape_count(tensor->shape);
    if (count == 0) return OK;
    return with_type(tensor->dtype, [&](auto type) {
        using T = decltype(type);
        autotune_fill_kernel<<<grid_of(call, count, 256), 256, 0, stream_of(call)>>>((T *)tensor->data, count,
                                                                                     seed);
        return launched(call);
    });
}

static enum status trial_fill(const struct trial *t, unsigned seed)
{
    TRY(tensor_fill(&t->call, &t->x, seed));
    TRY(tensor_fill(&t->call, &t->y, seed + 1));
    if (t->problem->joins) TRY(tensor_fill(&t->call, &t->mask, seed));
    if (t->problem->joins) TRY(tensor_fill(&t->call, &t->more, seed + 2));
    for (int i = 0; i < 2; i++) TRY(tensor_fill(&t->call, &t->params[i], seed + 3));
    return OK;
}

static size_t tensor_place(struct tensor *tensor, char *memory, size_t offset)
{
    if (memory) tensor->data = memory + offset;
    return offset + workspace_align(tensor_bytes(tensor));
}

/* Assigns offsets to the tensors; returns that of the workspace. */
static size_t trial_place(struct trial *t, char *memory)
{
    size_t bytes = tensor_place(&t->x, memory, 0);
    bytes = tensor_place(&t->y, memory, bytes);
    bytes = tensor_place(&t->sums, memory, bytes);
    bytes = tensor_place(&t->mask, memory, bytes);
    bytes = tensor_place(&t->more, memory, bytes);
    for (int i = 0; i < 2; i++) {
        bytes = tensor_place(&t->params[i], memory, bytes);
        bytes = tensor_place(&t->d_params[i], memory, bytes);
    }
    return bytes;
}

/* The largest workspace below `below`, and within the limit, that a candidate needs. False: there is none. */
static bool next_workspace(const struct candidates *list, size_t below, size_t *workspace)
{
    bool found = false;
    for (int i = 0; i < list->count; i++) {
        size_t bytes = list->at[i].workspace;
        if (bytes > list->limit || bytes >= below || (found && bytes <= *workspace)) continue;
        *workspace = bytes;
        found = true;
    }
    return found;
}

/* Without memory for any candidate trial->memory stays NULL. */
static enum status trial_allocate(struct trial *t, const struct candidates *list)
{
    struct device *device = t->problem->device;
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
    return trial_fill(t, 0);
}

static void trial_describe(struct trial *t)
{
    const struct autotune_problem *p = t->problem;
    int64_t filters = p->weight.dim[0], most = p->joins && p->x.c > filters ? p->x.c : filters;
    struct shape shapes[2] = {p->weight, shape_vector(filters)};
    t->x = {.dtype = p->dtype, .shape = p->x};
    t->y = {.dtype = p->dtype, .shape = p->y};
    t->sums = {.dtype = F32, .shape = {.rank = 2, .dim = {2, most, 1, 1}}};
    if (p->joins) {
        t->mask = {.dtype = F16, .shape = shape_vector(div_up(shape_count(p->x), (int64_t)16))};
        t->more = t->x;
    }
    for (int i = 0; i < 2; i++) {
        t->params[i] = (struct tensor){.dtype = p->dtype, .shape = shapes[i]};
        t->d_params[i] = (struct tensor){.dtype = F32, .shape = shapes[i]};
    }
    t->call.phase = p->phase;
    t->call.device = p->device;
    t->call.stream = t->stream;
}

/* After the tensors have been placed. */
static void trial_fill_in(struct trial *t)
{
    t->call.x_count = 1;
    t->call.param_count = t->problem->bias ? 2 : 1;
    t->call.x = t->call.d_x = &t->x;
    t->call.y = t->call.d_y = t->y;
    bool forward = t->problem->phase == PHASE_FORWARD;
    *call_put(&t->call, forward ? OPERAND_Y_MOMENTS : OPERAND_D_X_SUMS) = t->sums;
    *call_put(&t->call, OPERAND_MASK) = t->mask;
    *call_put(&t->call, OPERAND_D_X_ADDEND) = t->more;
    t->call.params = t->params;
    t->call.d_params = t->d_params;
}

/* It starts after the work queued on the device's first stream. */
static enum status trial_begin(struct trial *t)
{
    struct device *device = t->problem->device;
    cudaStream_t first = (cudaStream_t)device->backend->stream(device, 0);
    TRY(cuda_status(device, cudaEventCreate(&t->begin), "creating an event"));
    TRY(cuda_status(device, cudaEventCreate(&t->end), "creating an event"));
    TRY(cuda_status(device, cudaEventRecord(t->begin, first), "recording an event"));
    return cuda_status(device, cudaStreamWaitEvent(t->stream, t->begin, 0), "waiting for an event");
}

static enum status trial_open(struct trial *t, const struct candidates *list, cudaStream_t stream)
{
    *t = (struct trial){.problem = list->problem, .stream = stream};
    trial_describe(t);
    TRY(trial_begin(t));
    TRY(trial_allocate(t, list));
    trial_fill_in(t);
    return OK;
}

static void trial_close(struct trial *t)
{
    cudaStreamSynchronize(t->stream);
    if (t->memory) device_release(t->problem->device, t->memory, t->bytes);
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
}

static enum status trial_queue(const struct trial *t, const struct candidate *c)
{
    return t->problem->functions->plan_try(t->problem->self, c->plan, &t->call);
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
    struct trial t = {.problem = list->problem, .stream = stream};
    char *nowhere = (char *)((size_t)1 << 40);
    trial_describe(&t);
    t.call.workspace = nowhere + trial_place(&t, nowhere);
    trial_fill_in(&t);
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
static int bits_rounds(const struct autotune_problem *p)
{
    struct shape of = p->phase == PHASE_FORWARD ? p->y : p->phase == PHASE_BACKWARD_PARAMS ? p->weight : p->x;
    int64_t rounds = div_up(BITS_RESULTS, shape_count(of));
    return rounds <= BITS_ROUNDS ? (int)rounds : 0;
}

/* Adds the digest of all operands after a run to *sum; false if the candidate does not work. The
 * workspace's first bytes hold it. */
static bool trial_digest(const struct trial *t, const struct candidate *c, unsigned seed,
                         unsigned long long *sum)
{
    unsigned long long *at = (unsigned long long *)t->call.workspace, more = 0;
    int64_t words = (int64_t)(t->operands / sizeof(uint32_t));
    if (cudaMemsetAsync(t->memory, 0, t->operands, t->stream) || trial_fill(t, seed) != OK ||
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
    int rounds = bits_rounds(t->problem);
    *sum = 0;
    for (int i = 0; i < rounds; i++)
        if (!trial_digest(t, c, 7919u * (unsigned)i, sum)) return false;
    return true;
}

/* Clears the error of a refused launch; serious errors persist. */
static enum status candidate_fail(const struct trial *t, struct candidate *c)
{
    c->failed = true;
    return cuda_status(t->problem->device, (cudaGetLastError(), cudaGetLastError()), "trying a kernel plan");
}

/* Marks as `other` all candidates but those that compute the bits of the first one which works, in any run.
 * *tried false: there is no memory to try that one in, so that it is taken as it is; or none works. */
static enum status candidates_agree(struct candidates *list, const struct trial *t, bool *tried)
{
    unsigned long long first = 0, sum;
    *tried = false;
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->workspace > list->limit) continue;
        if (!*tried && c->workspace > t->workspace) return OK;
        bool fits = c->workspace <= t->workspace, works = fits && trial_bits(t, c, &sum);
        if (fits && !works) TRY(candidate_fail(t, c));
        if (works && !*tried) first = sum, *tried = true;
        c->other = !works || sum != first;
    }
    return trial_fill(t, 0);
}

/* ---- Results of timing by family (device/cuda_families.h) ---- */

/* Multiples of the best time that are far from it, apart from loading, and near it. */
#define FAR_TIMES 8
#define NEAR_TIMES 3
#define FAMILY_WORDS 3                   /* of a name: "cudnn plain 37" */

/* The name of the candidate's family; the caller frees it. */
static char *family_new(const struct autotune_problem *p, const struct candidate *c)
{
    int length = 0;
    for (int words = 0; c->name[length]; length++)
        if (c->name[length] == ' ' && ++words == FAMILY_WORDS) break;
    return text_format("%d %s %.*s", p->phase, dtype_table[p->dtype].name, length, c->name);
}

static bool is_hopeless(const struct families *families, const struct autotune_problem *p,
                        const struct candidate *c)
{
    char *family = family_new(p, c);
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
        char *family = family_new(list->problem, &list->at[i]);
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
        if (c->workspace > list->limit || c->workspace > t->workspace || c->other) continue;
        if (best < 1e9 && is_hopeless(families, list->problem, c)) continue;
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
        if (c->workspace > list->limit) continue;
        if (c->workspace > t->workspace || trial_once(t, c) >= 0) return OK;
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
        if (c->time >= 0 && c->time < 1.02f * best->time && c->workspace < chosen->workspace) chosen = c;
    }
    return chosen;
}

/* The first within the limit that has not failed, or that has. */
static struct candidate *candidates_first(struct candidates *list)
{
    struct candidate *failed = NULL;
    for (int i = 0; i < list->count; i++) {
        struct candidate *c = &list->at[i];
        if (c->workspace > list->limit) continue;
        if (!c->failed) return c;
        if (!failed) failed = c;
    }
    return failed;
}

static bool takes_first(const struct autotune_problem *p)
{
    return (p->deterministic && bits_rounds(p) == 0) || (p->only && !p->timed);
}

static enum status candidates_time_on(struct candidates *list, cudaStream_t stream)
{
    struct trial t;
    const struct autotune_problem *p = list->problem;
    bool timed = !takes_first(p);
    if (timed) candidates_load(list, stream);
    struct families *families = cuda_timing_begin(p->device);
    enum status status = trial_open(&t, list, stream);
    if (status == OK && t.memory && timed && p->deterministic) status = candidates_agree(list, &t, &timed);
    if (status == OK && t.memory)
        status = timed ? candidates_time(list, &t, families) : candidates_try(list, &t);
    trial_close(&t);
    cuda_timing_end(p->device);
    return status;
}

static enum status candidates_choose(struct candidates *list, struct candidate **chosen)
{
    cudaStream_t stream;
    TRY(cuda_status(list->problem->device, cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                    "creating a stream"));
    enum status status = candidates_time_on(list, stream);
    cudaStreamDestroy(stream);
    *chosen = candidates_fastest(list);
    if (!*chosen) *chosen = candidates_first(list);
    return status;
}

/* ---- The caches ---- */

/* A choice has its time, 0 if it was not timed, and its workspace: "131.2 us 1048576 bytes cudnn
 * plain 37 2=5". NULL: there is none, or it is not valid any more. */
static void *recall(const struct autotune_problem *p, const char *choice)
{
    float time;
    size_t bytes, needed;
    int used = 0;
    if (!choice || sscanf(choice, "%f us %zu bytes %n", &time, &bytes, &used) < 2 || used == 0) return NULL;
    if (strlen(choice + used) >= CANDIDATE_NAME) return NULL;
    void *plan = p->functions->plan_make(p->self, choice + used, &needed);
    if (!plan || needed <= bytes) return plan;
    p->functions->plan_free(plan);
    return NULL;
}

/* The device's cache keeps all choices during the run; the file keeps those that were timed, for others. */
static void remember(const struct autotune_problem *p, const struct candidate *c, struct tuning *tuning)
{
    float time = c->time < 0 ? 0 : 1000 * c->time;
    char *choice = text_format("%.1f us %zu bytes %s", time, c->workspace, c->name);
    if (tuning && c->time >= 0) tuning_set(tuning, p->key, choice);
    cuda_choose(p->device, p->key, choice);
    log_detail("%s: %s", p->key, choice);
    free(choice);
}

static enum status search(const struct autotune_problem *p, struct tuning *tuning, void **plan)
{
    struct candidates *list = candidates_new(p);
    struct candidate *chosen = NULL;
    enum status status = list->count > 0 ? candidates_choose(list, &chosen) : OK;
    if (status != OK) chosen = NULL;
    if (chosen && !p->only) remember(p, chosen, tuning);
    *plan = chosen ? chosen->plan : NULL;
    candidates_free(list, chosen);
    return status;
}

static enum status search_file(const struct autotune_problem *p, void **plan)
{
    struct tuning *tuning = tuning_open();
    const char *remembered = tuning_find(tuning, p->key);
    enum status status = OK;
    *plan = recall(p, remembered);
    if (*plan) cuda_choose(p->device, p->key, remembered);
    else status = search(p, tuning, plan);
    tuning_close(tuning);
    return status;
}

enum status autotune(const struct autotune_problem *p, void **plan)
{
    if (p->only) return search(p, NULL, plan);
    char *known = cuda_choice(p->device, p->key);
    *plan = recall(p, known);
    free(known);
    if (*plan) return OK;
    return p->deterministic ? search(p, NULL, plan) : search_file(p, plan);
}
