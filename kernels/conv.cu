/* conv.cu: convolution on CUDA: every way to run each phase is timed on the real shapes, and the fastest is
 * kept and remembered. */
#include "kernels/conv_cuda.cuh"

extern "C" {
#include "base/log.h"
#include "base/memory.h"
#include "device/cuda_tuning.h"
}

static const struct conv_kind *const kinds[] = {
    &conv_by_cudnn, &conv_by_product, &conv_by_depthwise, &conv_by_stem, &conv_by_direct,
};
#define KINDS 5
#define OFFERS 96                        /* ways worth making */
#define PROBLEM_TEXT 256

/* Scratch memory that is always granted, bytes; beyond it only what nothing else can do. */
#define WORKSPACE_FREELY ((size_t)512 << 20)

struct part {
    bool chosen;
    struct conv_way way;                 /* kind is NULL when there is no device */
    size_t workspace;
};

/* A prepared convolution, of which call->engine is made. */
struct conv_engine {
    struct part parts[PHASE_COUNT];
};

static struct conv_problem problem_of(const struct call *call, enum phase phase)
{
    const struct tensor *x = call->x[0].shape.rank > 0 ? &call->x[0] : &call->d_x[0];
    const struct shape *y = call->y.shape.rank > 0 ? &call->y.shape : &call->d_y.shape;
    struct conv_geometry g = conv_geometry((const struct conv_settings *)call->settings, x->shape.c);
    struct conv_problem p = {
        .phase = phase, .dtype = x->dtype, .bias = phase == PHASE_FORWARD && call->param_count > 1,
        .sums = phase == PHASE_FORWARD && call->sums.shape.rank > 0,
        .tf32 = call->tf32, .deterministic = call->deterministic,
        .n = (int)x->shape.n, .c = (int)x->shape.c, .k = (int)y->c, .groups = (int)g.groups,
        .in = {(int)x->shape.h, (int)x->shape.w}, .out = {(int)y->h, (int)y->w},
    };
    for (int i = 0; i < 2; i++) {
        p.kernel[i] = (int)g.kernel[i];
        p.stride[i] = (int)g.stride[i];
        p.pad[i] = (int)g.pad[i];
        p.dilation[i] = (int)g.dilation[i];
    }
    return p;
}

static const char *phase_name(enum phase phase)
{
    switch (phase) {
    case PHASE_FORWARD: return "forward";
    case PHASE_BACKWARD_DATA: return "data";
    case PHASE_BACKWARD_PARAMS: return "weights";
    case PHASE_BACKWARD:
    case PHASE_UPDATE:
    case PHASE_RECOMPUTE:
    case PHASE_COUNT: break;
    }
    return "none";
}

/* "conv forward fp16 256x56x56x64 to 64, kernel 3x3 stride 1x1 pad 1x1". */
static void problem_print(const struct conv_problem *p, char text[PROBLEM_TEXT])
{
    snprintf(
        text, PROBLEM_TEXT,
        "conv %s %s%s%s%s%s %dx%dx%dx%d to %d, kernel %dx%d stride %dx%d pad %dx%d dilation %dx%d groups %d",
        phase_name(p->phase), dtype_table[p->dtype].name, p->tf32 && p->dtype == F32 ? " tf32" : "",
        p->deterministic ? " deterministic" : "", p->bias ? " bias" : "", p->sums ? " sums" : "", p->n,
        p->in[0], p->in[1], p->c, p->k, p->kernel[0], p->kernel[1], p->stride[0], p->stride[1], p->pad[0],
        p->pad[1], p->dilation[0], p->dilation[1], p->groups);
}

/* For sums that are taken when the kind has done its work: the same bytes again. */
static size_t extra_workspace(const struct conv_way *way)
{
    const struct conv_problem *p = &way->problem;
    bool biases = p->phase == PHASE_BACKWARD_PARAMS, sums = p->sums && !way->gives_sums;
    return biases || sums ? conv_sums_workspace((int64_t)p->n * p->out[0] * p->out[1], p->k, sums) : 0;
}

static bool way_make(struct conv_way *way, const struct conv_problem *problem, const char *choice,
                     const struct conv_tools *tools)
{
    size_t length = strcspn(choice, " ");
    for (int i = 0; i < KINDS; i++) {
        if (strlen(kinds[i]->name) != length || strncmp(kinds[i]->name, choice, length) != 0) continue;
        *way = (struct conv_way){.kind = kinds[i], .problem = *problem};
        snprintf(way->choice, sizeof way->choice, "%s", choice);
        if (!kinds[i]->make(way, tools)) return false;
        size_t bytes = extra_workspace(way);
        if (bytes > way->workspace) way->workspace = bytes;
        return true;
    }
    return false;
}

/* The kind's part of the work, and what it leaves to us. */
static enum status way_run(const struct conv_way *way, const struct call *call,
                           const struct conv_tools *tools)
{
    TRY(way->kind->run(way, call, tools));
    if (way->problem.phase == PHASE_BACKWARD_PARAMS && call->param_count > 1)
        return conv_sums(call, &call->d_y, (float *)call->d_params[1].data, false);
    if (!way->problem.sums || way->gives_sums) return OK;
    return conv_sums(call, &call->y, (float *)call->sums.data, true);
}

/* Values between 1/4 and 1 in magnitude: what chips spend on a product depends on its bits. */
template <class T> __global__ void fill_kernel(T *data, int64_t count)
{
    int64_t stride = (int64_t)gridDim.x * blockDim.x;
    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
        unsigned bits = (unsigned)i * 2654435761u ^ (unsigned)(i >> 7) * 40503u;
        bits ^= bits >> 15;
        float value = 0.25f + (float)(bits & 0xffff) * (0.75f / 65536);
        data[i] = from_float<T>(bits & 0x10000 ? value : -value);
    }
}

static enum status fill(const struct call *call, const struct tensor *tensor)
{
    return with_type(tensor->dtype, [&](auto type) {
        using T = decltype(type);
        int64_t count = shape_count(tensor->shape);
        fill_kernel<<<grid_of(call, count, 256), 256, 0, stream_of(call)>>>((T *)tensor->data, count);
        return launched(call);
    });
}

/* A call on memory of its own, to time ways with. */
struct trial {
    struct tensor x, y, sums, params[2], d_params[2];
    struct call call;
    const struct conv_tools *tools;
    cudaEvent_t begin, end;
    char *memory;
};

static size_t tensor_place(struct tensor *tensor, char *memory, size_t offset)
{
    if (memory) tensor->data = memory + offset;
    return offset + conv_align(tensor_bytes(tensor));
}

/* Lays the tensors out; returns where the workspace begins. */
static size_t trial_place(struct trial *t, char *memory)
{
    size_t bytes = tensor_place(&t->x, memory, 0);
    bytes = tensor_place(&t->y, memory, bytes);
    bytes = tensor_place(&t->sums, memory, bytes);
    for (int i = 0; i < 2; i++) {
        bytes = tensor_place(&t->params[i], memory, bytes);
        bytes = tensor_place(&t->d_params[i], memory, bytes);
    }
    return bytes;
}

static enum status trial_memory(struct trial *t, size_t workspace)
{
    size_t bytes = trial_place(t, NULL);
    if (cudaMalloc(&t->memory, bytes + workspace + 256) != cudaSuccess) {
        cudaGetLastError();
        t->memory = NULL;
        return OK;
    }
    trial_place(t, t->memory);
    t->call.workspace = t->memory + bytes;
    TRY(fill(&t->call, &t->x));
    TRY(fill(&t->call, &t->y));
    for (int i = 0; i < 2; i++) TRY(fill(&t->call, &t->params[i]));
    return OK;
}

/* Without memory for it trial->memory stays NULL. */
static enum status trial_open(struct trial *t, const struct conv_problem *p, struct device *device,
                              const struct conv_tools *tools, size_t workspace)
{
    struct shape weight = {.rank = 4, .dim = {p->k, p->c / p->groups, p->kernel[0], p->kernel[1]}};
    struct shape shapes[2] = {weight, shape_vector(p->k)};
    *t = (struct trial){.x = {.dtype = p->dtype, .shape = shape_nhwc(p->n, p->in[0], p->in[1], p->c)},
                        .y = {.dtype = p->dtype, .shape = shape_nhwc(p->n, p->out[0], p->out[1], p->k)},
                        .sums = {.dtype = F32, .shape = {.rank = 2, .dim = {2, p->k, 1, 1}}}};
    for (int i = 0; i < 2; i++) {
        t->params[i] = (struct tensor){.dtype = p->dtype, .shape = shapes[i]};
        t->d_params[i] = (struct tensor){.dtype = F32, .shape = shapes[i]};
    }
    t->tools = tools;
    t->call.phase = p->phase;
    t->call.device = device;
    t->call.lane = device->backend->stream(device, 0);
    TRY(cuda_cudnn_status(device, cudnnSetStream(tools->cudnn, stream_of(&t->call)),
                          "giving cuDNN its stream"));
    TRY(cuda_status(device, cudaEventCreate(&t->begin), "creating an event"));
    TRY(cuda_status(device, cudaEventCreate(&t->end), "creating an event"));
    TRY(trial_memory(t, workspace));
    t->call.x_count = 1;
    t->call.param_count = p->bias ? 2 : 1;
    t->call.x = t->call.d_x = &t->x;
    t->call.y = t->call.d_y = t->y;
    t->call.sums = t->sums;
    t->call.params = t->params;
    t->call.d_params = t->d_params;
    return OK;
}

static void trial_close(struct trial *t)
{
    cudaFree(t->memory);
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
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

static float trial_once(const struct trial *t, const struct conv_way *way)
{
    cudaStream_t stream = stream_of(&t->call);
    cudaEventRecord(t->begin, stream);
    if (way_run(way, &t->call, t->tools) != OK) return -1;
    cudaEventRecord(t->end, stream);
    return trial_elapsed(t);
}

/* Several runs recorded as one graph, as steps are; NULL if the way cannot be recorded. */
static cudaGraphExec_t trial_record(const struct trial *t, const struct conv_way *way, int runs)
{
    cudaStream_t stream = stream_of(&t->call);
    cudaGraph_t graph = NULL;
    cudaGraphExec_t executable = NULL;
    bool good = true;
    if (cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal) != cudaSuccess) return NULL;
    for (int i = 0; good && i < runs; i++) good = way_run(way, &t->call, t->tools) == OK;
    if (cudaStreamEndCapture(stream, &graph) != cudaSuccess || !graph) return NULL;
    if (good && cudaGraphInstantiate(&executable, graph, 0) != cudaSuccess) executable = NULL;
    cudaGraphDestroy(graph);
    return executable;
}

#define TRIAL_ROUNDS 3
#define TRIAL_ENOUGH 0.3f                /* milliseconds that one round should take */
#define TRIAL_RUNS 8
#define TRIAL_LONG 1                     /* ms for which a launch, or a graph, makes no difference */
#define TRIAL_LOADING 20                 /* milliseconds that a first run may take longer */

/* Milliseconds of one run, the best of a few rounds; negative if the way does not work, and less exact if it
 * is far from `best`. */
static float trial_time(const struct trial *t, const struct conv_way *way, float best)
{
    cudaStream_t stream = stream_of(&t->call);
    float least = trial_once(t, way);    /* the library loads its code meanwhile */
    if (least < 0 || least > 3 * best + TRIAL_LOADING) return least;
    least = trial_once(t, way);
    if (least < 0 || least > 1.3f * best + 0.05f) return least;
    if (least > TRIAL_LONG) return least;
    int runs = (int)(TRIAL_ENOUGH / (least + 0.001f)) + 1;
    if (runs > TRIAL_RUNS) runs = TRIAL_RUNS;
    cudaGraphExec_t graph = trial_record(t, way, runs);
    if (!graph) return -1;
    for (int i = 0; i < TRIAL_ROUNDS && least >= 0; i++) {
        cudaEventRecord(t->begin, stream);
        cudaGraphLaunch(graph, stream);
        cudaEventRecord(t->end, stream);
        float round = trial_elapsed(t) / (float)runs;
        if (round < 0 || round < least || i == 0) least = round;
    }
    cudaGraphExecDestroy(graph);
    return least;
}

/* The ways that were made for one problem. */
struct ways {
    int count;
    struct conv_way way[OFFERS];
    float time[OFFERS];                  /* milliseconds; negative: none */
};

static void ways_make(struct ways *ways, const struct conv_problem *p, const struct conv_tools *tools)
{
    char(*choices)[CONV_CHOICE] = (char(*)[CONV_CHOICE])memory_new(OFFERS, CONV_CHOICE);
    int offered = 0;
    for (int i = 0; i < KINDS; i++)
        offered += kinds[i]->offer(p, tools, OFFERS - offered, choices + offered);
    for (int i = 0; i < offered; i++)
        if (way_make(&ways->way[ways->count], p, choices[i], tools)) ways->time[ways->count++] = -1;
    if (ways->count == 0 && way_make(&ways->way[0], p, conv_by_direct.name, tools))
        ways->time[ways->count++] = -1;
    free(choices);
}

static size_t operands_bytes(const struct conv_problem *p)
{
    return ((size_t)p->n * p->in[0] * p->in[1] * p->c + (size_t)p->n * p->out[0] * p->out[1] * p->k) *
           dtype_bytes(p->dtype);
}

/* Scratch memory that a problem's ways may ask for. In fp32 a second layout of the operands is worth its
 * memory. If none is as modest, the most modest is the measure. */
static size_t workspace_limit(const struct ways *ways, const struct conv_problem *p)
{
    size_t limit = WORKSPACE_FREELY + (p->dtype == F32 ? operands_bytes(p) : 0), least = SIZE_MAX;
    for (int i = 0; i < ways->count; i++)
        if (ways->way[i].workspace < least) least = ways->way[i].workspace;
    return least > limit ? least : limit;
}

static size_t workspace_largest(const struct ways *ways, size_t limit)
{
    size_t largest = 0;
    for (int i = 0; i < ways->count; i++)
        if (ways->way[i].workspace <= limit && ways->way[i].workspace > largest)
            largest = ways->way[i].workspace;
    return largest;
}

/* The best's time that is far from it, beside what loading takes, and that is near it. */
#define FAR_TIMES 8
#define NEAR_TIMES 3
#define FAMILY_WORDS 3                   /* of a choice: "cudnn plain 37" */

/* What the way's family is known by; the caller frees it. */
static char *family_new(const struct conv_way *way)
{
    const struct conv_problem *p = &way->problem;
    int length = 0;
    for (int words = 0; way->choice[length]; length++)
        if (way->choice[length] == ' ' && ++words == FAMILY_WORDS) break;
    return text_format("%d %s %.*s", p->phase, dtype_table[p->dtype].name, length, way->choice);
}

static bool is_hopeless(const struct families *families, const struct conv_way *way)
{
    char *family = family_new(way);
    bool hopeless = families_hopeless(families, family);
    free(family);
    return hopeless;
}

static void learn(struct families *families, const struct ways *ways, float best)
{
    for (int i = 0; i < ways->count; i++) {
        if (ways->time[i] < 0) continue;
        bool near = ways->time[i] < NEAR_TIMES * best;
        bool far = ways->time[i] > FAR_TIMES * best + 2 * TRIAL_LOADING;
        char *family = family_new(&ways->way[i]);
        families_learn(families, family, near ? FAMILY_NEAR : far ? FAMILY_FAR : FAMILY_BETWEEN);
        free(family);
    }
}

static enum status ways_time(struct ways *ways, const struct conv_problem *p, struct device *device,
                             const struct conv_tools *tools, struct families *families)
{
    size_t limit = workspace_limit(ways, p);
    struct trial trial;
    enum status status = trial_open(&trial, p, device, tools, workspace_largest(ways, limit));
    float best = 1e9;
    for (int i = 0; status == OK && trial.memory && i < ways->count; i++) {
        if (ways->way[i].workspace > limit) continue;
        if (best < 1e9 && is_hopeless(families, &ways->way[i])) continue;
        ways->time[i] = trial_time(&trial, &ways->way[i], best);
        if (ways->time[i] >= 0 && ways->time[i] < best) best = ways->time[i];
        if (ways->time[i] < 0)           /* clears what a refused launch left behind; worse errors stay */
            status = cuda_status(device, (cudaGetLastError(), cudaGetLastError()), "timing a convolution");
    }
    trial_close(&trial);
    learn(families, ways, best);
    return status;
}

/* The fastest; among those as fast, the one that needs the least memory. -1: none was timed. */
static int ways_best(const struct ways *ways)
{
    int best = -1;
    for (int i = 0; i < ways->count; i++)
        if (ways->time[i] >= 0 && (best < 0 || ways->time[i] < ways->time[best])) best = i;
    int chosen = best;
    for (int i = 0; i < ways->count; i++)
        if (ways->time[i] >= 0 && ways->time[i] < 1.02f * ways->time[best] &&
            ways->way[i].workspace < ways->way[chosen].workspace)
            chosen = i;
    return chosen;
}

/* Takes the best way over; *time is negative when there was no memory to time any. */
static enum status search(const struct conv_problem *p, struct device *device, const struct conv_tools *tools,
                          struct conv_way *chosen, float *time)
{
    struct ways *ways = (struct ways *)memory_new(1, sizeof *ways);
    ways_make(ways, p, tools);
    enum status status = ways_time(ways, p, device, tools, cuda_timing_begin(device));
    cuda_timing_end(device);
    int best = ways_best(ways);
    if (best < 0) best = 0;
    for (int i = 0; i < ways->count; i++)
        if (status != OK || i != best) ways->way[i].kind->release(&ways->way[i]);
    if (status == OK) {
        *chosen = ways->way[best];
        *time = ways->time[best];
    }
    free(ways);
    return status;
}

/* Of the GPU, the libraries and the problem; the caller frees it. */
static char *key_new(const struct conv_problem *p, const struct device *device)
{
    char text[PROBLEM_TEXT];
    problem_print(p, text);
    return text_format("%s, cuDNN %zu, cuBLAS %zu, %s", cuda_facts(device)->name, cudnnGetVersion(),
                       cublasLtGetVersion(), text);
}

/* A remembered choice says how long it took and what it needs: "131.2 us 1048576 bytes cudnn plain 37 2=5".
 */
static bool recall(const char *text, const struct conv_problem *p, const struct conv_tools *tools,
                   struct conv_way *chosen)
{
    float time;
    size_t bytes;
    int used = 0;
    if (!text || sscanf(text, "%f us %zu bytes %n", &time, &bytes, &used) < 2 || used == 0) return false;
    if (strlen(text + used) >= CONV_CHOICE) return false;
    return way_make(chosen, p, text + used, tools);
}

/* By timing, which the file remembers for the next start, and the device for as long as the run goes on. */
static enum status choose_anew(const struct conv_problem *p, struct device *device,
                               const struct conv_tools *tools, const char *key, struct conv_way *chosen)
{
    struct tuning *tuning = tuning_open();
    enum status status = OK;
    const char *remembered = tuning_find(tuning, key);
    if (recall(remembered, p, tools, chosen)) {
        cuda_choose(device, key, remembered);
    } else {
        float time = -1;
        status = search(p, device, tools, chosen, &time);
        char *choice = status != OK ? NULL
                                    : text_format("%.1f us %zu bytes %s", 1000 * time, chosen->workspace,
                                                  chosen->choice);
        if (choice && time >= 0) tuning_set(tuning, key, choice);
        if (choice) cuda_choose(device, key, choice);
        if (choice) log_detail("%s: %s", key, choice);
        free(choice);
    }
    tuning_close(tuning);
    return status;
}

static enum status choose_with(const struct conv_problem *p, struct device *device,
                               const struct conv_tools *tools, struct conv_way *chosen)
{
    char *key = key_new(p, device), *known = cuda_choice(device, key);
    enum status status = OK;
    if (!recall(known, p, tools, chosen)) status = choose_anew(p, device, tools, key, chosen);
    free(known);
    free(key);
    chosen->trusted = true;
    return status;
}

static enum status choose(const struct conv_problem *p, struct device *device, struct conv_way *chosen)
{
    struct conv_tools tools = {.device = device};
    TRY(cuda_cudnn_borrow(device, &tools.cudnn));
    enum status status = cuda_cublaslt(device, &tools.cublaslt);
    if (status == OK) status = choose_with(p, device, &tools, chosen);
    cuda_cudnn_return(device, tools.cudnn);
    return status;
}

/* Without a device: what a second layout of both images would take, within what is granted. */
static size_t workspace_bound(const struct conv_problem *p)
{
    size_t bytes = operands_bytes(p) / 2;
    return p->dtype == F32 ? 2 * bytes : bytes < WORKSPACE_FREELY / 8 ? bytes : WORKSPACE_FREELY / 8;
}

static enum status part_choose(struct part *part, const struct call *call, enum phase phase)
{
    struct conv_problem p = problem_of(call, phase);
    if (call->device) TRY(choose(&p, call->device, &part->way));
    part->workspace = call->device ? part->way.workspace : workspace_bound(&p);
    part->chosen = true;
    return OK;
}

static void release(void *made)
{
    struct conv_engine *engine = (struct conv_engine *)made;
    if (!engine) return;
    for (int i = 0; i < PHASE_COUNT; i++) {
        struct conv_way *way = &engine->parts[i].way;
        if (way->kind) way->kind->release(way);
    }
    free(engine);
}

static enum status prepare(const struct call *call, void **made)
{
    struct conv_engine *engine = (struct conv_engine *)memory_new(1, sizeof *engine);
    bool data = call->d_x[0].shape.rank > 0, params = call->d_params[0].shape.rank > 0;
    enum status status = part_choose(&engine->parts[PHASE_FORWARD], call, PHASE_FORWARD);
    if (status == OK && data)
        status = part_choose(&engine->parts[PHASE_BACKWARD_DATA], call, PHASE_BACKWARD_DATA);
    if (status == OK && params)
        status = part_choose(&engine->parts[PHASE_BACKWARD_PARAMS], call, PHASE_BACKWARD_PARAMS);
    if (status == OK) *made = engine;
    else release(engine);
    return status;
}

/* Phases that prepare was not told of are chosen when they are first asked for. */
static enum status part_of(const struct call *call, struct part **part)
{
    *part = &((struct conv_engine *)call->engine)->parts[call->phase];
    return (*part)->chosen ? OK : part_choose(*part, call, call->phase);
}

static size_t workspace(const struct call *call)
{
    struct part *part;
    return part_of(call, &part) == OK ? part->workspace : 0;
}

static enum status run(const struct call *call)
{
    struct part *part;
    struct conv_tools tools = {.device = call->device};
    TRY(part_of(call, &part));
    TRY(cuda_cudnn(call->device, call->lane, &tools.cudnn));
    TRY(cuda_cublaslt(call->device, &tools.cublaslt));
    return way_run(&part->way, call, &tools);
}

static enum status backward_data(const struct call *call)
{
    return call->d_x[0].data ? run(call) : OK;
}

const struct op_code conv_cuda = {
    .channels_last = true,
    .prepare_together = true,
    .gives_sums = true,
    .prepare = prepare,
    .release = release,
    .workspace = workspace,
    .forward = run,
    .backward_data = backward_data,
    .backward_params = run,
};
