/* cuda.c: the CUDA back end: streams, events, captured graphs, device and pinned memory. */
#include "device/cuda.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/log.h"
#include "base/memory.h"
#include "device/built_for.h"
#include "device/cuda_graph.h"
#include "device/cuda_memory.h"
#include "device/cuda_timeline.h"
#include "device/cuda_tuning.h"
#include "device/nvml.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif
#ifdef HAVE_NVJPEG
#include "device/cuda_parts.h"
#endif

/* Streams that compute; what a step moves to the host, and back; sends, receives, exchanges among ranks;
 * batches. */
#define HOST_ALIGNMENT 4096            /* bytes, of pinned memory */
#define COPY_STREAM (CUDA_COMPUTING_STREAMS + 5)
#define CUDA_STREAMS (COPY_STREAM + 1)
#define CUDA_OLDEST_MAJOR 7
#define CUDA_OLDEST_MINOR 5

struct cuda_device {
    struct device device;
    struct cuda_facts facts;
    cudaStream_t streams[CUDA_STREAMS];
    cudaEvent_t *events;
    int event_count;
    cudnnHandle_t cudnn[CUDA_STREAMS];   /* made when first asked for */
    struct cuda_memory *memory;          /* likewise */
    struct nvml *nvml;                   /* likewise */
    cublasLtHandle_t cublaslt;
    pthread_mutex_t lending;             /* over cublaslt and the three below */
    struct tuning *choices;
    cudnnHandle_t *spare;                /* handles that nobody has borrowed */
    int spare_count;
    pthread_mutex_t timing;              /* over what it has taught */
    struct families *families;
    cudaError_t said;                    /* what work on the device failed with: it goes on failing so */
};

struct captured {
    cudaGraphExec_t graph;
};

static struct cuda_device *cuda_of(struct device *device)
{
    return (struct cuda_device *)device;
}

const struct cuda_facts *cuda_facts(const struct device *device)
{
    return &((const struct cuda_device *)device)->facts;
}

static enum status cuda_fail(const struct device *device, const char *trying, const char *what,
                             const char *name)
{
    const char *gpu = cuda_facts(device)->name;
    return fail(NO_DEVICE, "cuda:%d%s%s%s: %s failed: %s%s%s%s", device->index, *gpu ? " (" : "", gpu,
                *gpu ? ")" : "", trying, what, name ? " (" : "", name ? name : "", name ? ")" : "");
}

enum status cuda_status(const struct device *device, cudaError_t error, const char *trying)
{
    if (error == cudaSuccess) return OK;
    return cuda_fail(device, trying, cudaGetErrorString(error), cudaGetErrorName(error));
}

enum status cuda_cudnn_status(const struct device *device, cudnnStatus_t error, const char *trying)
{
    if (error == CUDNN_STATUS_SUCCESS) return OK;
    char words[256] = "";
    cudnn()->cudnnGetLastErrorString(words, sizeof words);
    return cuda_fail(device, trying, cudnn()->cudnnGetErrorString(error), words[0] ? words : NULL);
}

static int stream_index(const struct cuda_device *cuda, void *stream)
{
    for (int i = 0; i < CUDA_STREAMS; i++)
        if (cuda->streams[i] == (cudaStream_t)stream) return i;
    return 0;
}

enum status cuda_cudnn(struct device *device, void *stream, cudnnHandle_t *handle)
{
    struct cuda_device *cuda = cuda_of(device);
    int index = stream_index(cuda, stream);
    if (!cuda->cudnn[index]) {
        cudnnHandle_t made;
        TRY(cuda_cudnn_status(device, cudnn()->cudnnCreate(&made), "opening cuDNN"));
        cuda->cudnn[index] = made;
        TRY(cuda_cudnn_status(device, cudnn()->cudnnSetStream(made, cuda->streams[index]),
                              "giving cuDNN its stream"));
    }
    *handle = cuda->cudnn[index];
    return OK;
}

enum status cuda_cudnn_borrow(struct device *device, cudnnHandle_t *handle)
{
    struct cuda_device *cuda = cuda_of(device);
    TRY(cuda_status(device, cudaSetDevice(device->index), "selecting the device"));
    pthread_mutex_lock(&cuda->lending);
    bool found = cuda->spare_count > 0;
    if (found) *handle = cuda->spare[--cuda->spare_count];
    pthread_mutex_unlock(&cuda->lending);
    return found ? OK : cuda_cudnn_status(device, cudnn()->cudnnCreate(handle), "opening cuDNN");
}

void cuda_cudnn_return(struct device *device, cudnnHandle_t handle)
{
    struct cuda_device *cuda = cuda_of(device);
    pthread_mutex_lock(&cuda->lending);
    *array_push(cuda->spare, cuda->spare_count) = handle;
    pthread_mutex_unlock(&cuda->lending);
}

enum status cuda_cublaslt(struct device *device, cublasLtHandle_t *handle)
{
    struct cuda_device *cuda = cuda_of(device);
    TRY(cuda_status(device, cudaSetDevice(device->index), "selecting the device"));
    pthread_mutex_lock(&cuda->lending);
    if (!cuda->cublaslt && cublaslt()->cublasLtCreate(&cuda->cublaslt) != CUBLAS_STATUS_SUCCESS)
        cuda->cublaslt = NULL;
    *handle = cuda->cublaslt;
    pthread_mutex_unlock(&cuda->lending);
    return *handle ? OK : cuda_fail(device, "opening cuBLASLt", "it gave no handle", NULL);
}

char *cuda_choice(struct device *device, const char *key)
{
    struct cuda_device *cuda = cuda_of(device);
    pthread_mutex_lock(&cuda->lending);
    const char *found = tuning_find(cuda->choices, key);
    char *choice = found ? text_copy(found) : NULL;
    pthread_mutex_unlock(&cuda->lending);
    return choice;
}

void cuda_choose(struct device *device, const char *key, const char *choice)
{
    struct cuda_device *cuda = cuda_of(device);
    pthread_mutex_lock(&cuda->lending);
    tuning_set(cuda->choices, key, choice);
    pthread_mutex_unlock(&cuda->lending);
}

struct families *cuda_timing_begin(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    pthread_mutex_lock(&cuda->timing);
    return cuda->families;
}

void cuda_timing_end(struct device *device)
{
    pthread_mutex_unlock(&cuda_of(device)->timing);
}

static void cuda_autotuner_save(struct device *device, struct text *out)
{
    tuning_print(cuda_of(device)->choices, out);
}

static void cuda_autotuner_load(struct device *device, const char *lines)
{
    tuning_add(cuda_of(device)->choices, lines);
}

/* The file's, where neither this run nor the one that it resumes has one. */
static char *cuda_autotuner_find(struct device *device, const char *key)
{
    char *choice = cuda_choice(device, key);
    if (choice) return choice;
    struct tuning *file = tuning_open();
    const char *found = tuning_find(file, key);
    choice = found ? text_copy(found) : NULL;
    tuning_close(file);
    return choice;
}

static void cuda_autotuner_remember(struct device *device, const char *key, const char *choice)
{
    struct tuning *file = tuning_open();
    tuning_set(file, key, choice);
    tuning_close(file);
    cuda_choose(device, key, choice);
}

static void cuda_version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

static bool cuda_libraries_open(struct reason *reason)
{
    struct reason why;
    if (!cudnn_open(&why)) return because(reason, "cuDNN %d is needed: %s", CUDNN_MAJOR, why.text);
    if (!cublaslt_open(&why))
        return because(reason, "cuBLASLt %d is needed: %s", CUBLAS_VER_MAJOR, why.text);
    return true;
}

static int cuda_count(struct reason *reason)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return cuda_libraries_open(reason) ? count : 0;

    int driver = 0, runtime = 0;
    char driver_text[16], runtime_text[16];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cuda_version_text(driver, driver_text);
    cuda_version_text(runtime, runtime_text);
    if (driver == 0)
        because(reason, "no NVIDIA driver is loaded");
    else if (error == cudaErrorInsufficientDriver)
        because(reason, "the NVIDIA driver supports CUDA %s, this build needs %s", driver_text, runtime_text);
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
        because(reason, "the driver reports no NVIDIA GPU (is CUDA_VISIBLE_DEVICES set?)");
    else
        because(reason, "%s (%s)", cudaGetErrorString(error), cudaGetErrorName(error));
    return 0;
}

static void cuda_describe(int index, struct text *out)
{
    struct cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, index) != cudaSuccess) {
        text_add(out, "cannot be read");
        return;
    }
    char memory[TEXT_BYTES];
    text_add(out, "%s, compute capability %d.%d, %d multiprocessors, %s", properties.name, properties.major,
             properties.minor, properties.multiProcessorCount, text_bytes(properties.totalGlobalMem, memory));
}

static void cuda_libraries(struct text *out)
{
    int runtime = 0, driver = 0;
    char runtime_text[16], driver_text[16];
    cudaRuntimeGetVersion(&runtime);
    cuda_version_text(runtime, runtime_text);
    text_add(out, "CUDA runtime %s", runtime_text);
    struct reason why;
    size_t version = cudnn_open(&why) ? cudnn()->cudnnGetVersion() : 0;
    if (version > 0)
        text_add(out, ", cuDNN %zu.%zu.%zu", version / 10000, version / 100 % 100, version % 100);
    else
        text_add(out, ", no cuDNN (%s)", why.text);
#ifdef HAVE_NVJPEG
    cuda_jpeg_library(out);
#endif
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
        cuda_version_text(driver, driver_text);
        text_add(out, ", driver for CUDA %s", driver_text);
    }
}

static void cuda_close(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    cuda_memory_close(cuda->memory);
    nvml_close(cuda->nvml);
    if (cuda->cublaslt) cublaslt()->cublasLtDestroy(cuda->cublaslt);
    for (int i = 0; i < cuda->event_count; i++)
        if (cuda->events[i]) cudaEventDestroy(cuda->events[i]);
    for (int i = 0; i < CUDA_STREAMS; i++) {
        if (cuda->cudnn[i]) cudnn()->cudnnDestroy(cuda->cudnn[i]);
        if (cuda->streams[i]) cudaStreamDestroy(cuda->streams[i]);
    }
    for (int i = 0; i < cuda->spare_count; i++) cudnn()->cudnnDestroy(cuda->spare[i]);
    pthread_mutex_destroy(&cuda->lending);
    pthread_mutex_destroy(&cuda->timing);
    families_free(cuda->families);
    tuning_close(cuda->choices);
    free(cuda->spare);
    free(cuda->events);
    free(cuda);
}

static enum status cuda_start(struct cuda_device *cuda)
{
    struct device *device = &cuda->device;
    struct cudaDeviceProp properties;
    TRY(cuda_status(device, cudaSetDevice(device->index), "selecting the device"));
    TRY(cuda_status(device, cudaGetDeviceProperties(&properties, device->index), "reading its properties"));
    struct cuda_facts *facts = &cuda->facts;
    snprintf(facts->name, sizeof facts->name, "%s", properties.name);
    device->model = facts->name;
    facts->capability = properties.major * 10 + properties.minor;
    facts->multiprocessors = properties.multiProcessorCount;
    facts->shared_bytes = properties.sharedMemPerBlockOptin;
    if (facts->capability < CUDA_OLDEST_MAJOR * 10 + CUDA_OLDEST_MINOR)
        return fail(NO_DEVICE, "cuda:%d (%s): compute capability %d.%d is not supported; at least %d.%d is "
                    "needed",
                    device->index, facts->name, properties.major, properties.minor, CUDA_OLDEST_MAJOR,
                    CUDA_OLDEST_MINOR);
    if (!built_for(CUDA_BUILT_FOR, facts->capability))
        return fail(NO_DEVICE, "cuda:%d (%s): this program has no code for compute capability %d.%d, but for "
                    "%s; build it with --with-cuda-arch=%d", device->index, facts->name, properties.major,
                    properties.minor, CUDA_BUILT_FOR, facts->capability);
    for (int i = 0; i < CUDA_STREAMS; i++)
        TRY(cuda_status(device, cudaStreamCreateWithFlags(&cuda->streams[i], cudaStreamNonBlocking),
                        "creating a stream"));
    return OK;
}

extern const struct device_backend cuda_backend;

static enum status cuda_open(int index, int threads, struct device **device)
{
    struct cuda_device *cuda = memory_new(1, sizeof *cuda);
    cuda->device = (struct device){.backend = &cuda_backend, .index = index, .threads = threads,
                                   .streams = CUDA_COMPUTING_STREAMS, .copy_stream = COPY_STREAM,
                                   .waits = true};
    pthread_mutex_init(&cuda->lending, NULL);
    pthread_mutex_init(&cuda->timing, NULL);
    cuda->choices = tuning_new();
    cuda->families = families_new();
    enum status status = cuda_start(cuda);
    if (status != OK) {
        cuda_close(&cuda->device);
        return status;
    }
    *device = &cuda->device;
    return OK;
}

static void *cuda_allocate(struct device *device, size_t bytes)
{
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) == cudaSuccess) return memory;
    cudaGetLastError();                  /* clears it: the caller decides what a full device means */
    return NULL;
}

static void cuda_free(struct device *device, void *memory, size_t bytes)
{
    cudaFree(memory);
}

static void cuda_physical(struct device *device, struct physical *physical)
{
    struct cuda_device *cuda = cuda_of(device);
    if (!cuda->memory) cuda->memory = cuda_memory_open(device);
    *physical = cuda_memory_physical(cuda->memory);
}

/* The driver cuts small blocks from larger ones at multiples of 512 bytes: what it gave is noted in front of
 * the page that is passed on. */
static void *cuda_host_allocate(struct device *device, size_t bytes)
{
    char *given;
    size_t spare = HOST_ALIGNMENT + sizeof given;
    if (cudaHostAlloc((void **)&given, bytes + spare, cudaHostAllocPortable) != cudaSuccess) {
        cudaGetLastError();
        return NULL;
    }
    char *memory = (char *)align_up((uintptr_t)given + sizeof given, HOST_ALIGNMENT);
    memcpy(memory - sizeof given, &given, sizeof given);
    return memory;
}

static void cuda_host_free(struct device *device, void *memory, size_t bytes)
{
    char *given;
    memcpy(&given, (char *)memory - sizeof given, sizeof given);
    cudaFreeHost(given);
}

static enum status cuda_upload(struct device *device, int stream, void *to, const void *from, size_t bytes)
{
    cudaStream_t queue = cuda_of(device)->streams[stream];
    return cuda_status(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, queue),
                       "a copy to the device");
}

static enum status cuda_download(struct device *device, int stream, void *to, const void *from, size_t bytes)
{
    cudaStream_t queue = cuda_of(device)->streams[stream];
    return cuda_status(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, queue),
                       "a copy from the device");
}

static enum status cuda_fill_zero(struct device *device, int stream, void *memory, size_t bytes)
{
    return cuda_status(device, cudaMemsetAsync(memory, 0, bytes, cuda_of(device)->streams[stream]),
                       "clearing memory");
}

/* Without an event it is waited for: then nothing is under way either. */
static void *cuda_event_create(struct device *device, int stream)
{
    cudaStream_t queue = cuda_of(device)->streams[stream];
    cudaEvent_t event;
    if (cudaEventCreateWithFlags(&event, cudaEventDisableTiming) == cudaSuccess) {
        if (cudaEventRecord(event, queue) == cudaSuccess) return event;
        cudaEventDestroy(event);
    }
    cudaStreamSynchronize(queue);
    cudaGetLastError();
    return NULL;
}

/* On a device that has failed nothing is under way any more: whoever waits for its work says so. */
static bool cuda_event_retire(struct device *device, void *event, bool wait)
{
    cudaEvent_t made = (cudaEvent_t)event;
    cudaError_t error = wait ? cudaEventSynchronize(made) : cudaEventQuery(made);
    if (error != cudaSuccess) cudaGetLastError();
    if (error == cudaErrorNotReady) return false;
    cudaEventDestroy(made);
    return true;
}

/* The device's own work: its failure is reported once, however many wait for it. */
static enum status cuda_waited(struct cuda_device *cuda, cudaError_t error)
{
    if (error != cudaSuccess && error == cuda->said) return NO_DEVICE;
    cuda->said = error;
    return cuda_status(&cuda->device, error, "work on the device");
}

/* Events are created when they are first used. */
static enum status event_at(struct cuda_device *cuda, int event, cudaEvent_t *found)
{
    if (event >= cuda->event_count) {
        int count = event < 64 ? 64 : 2 * event;
        cuda->events = memory_resize(cuda->events, (size_t)count, sizeof *cuda->events);
        for (int i = cuda->event_count; i < count; i++) cuda->events[i] = NULL;
        cuda->event_count = count;
    }
    if (!cuda->events[event])
        TRY(cuda_status(&cuda->device, cudaEventCreateWithFlags(&cuda->events[event], cudaEventDisableTiming),
                        "creating an event"));
    *found = cuda->events[event];
    return OK;
}

static enum status cuda_event_record(struct device *device, int stream, int event)
{
    cudaEvent_t found;
    TRY(event_at(cuda_of(device), event, &found));
    return cuda_status(device, cudaEventRecord(found, cuda_of(device)->streams[stream]),
                       "recording an event");
}

static enum status cuda_stream_wait_event(struct device *device, int stream, int event)
{
    cudaEvent_t found;
    TRY(event_at(cuda_of(device), event, &found));
    return cuda_status(device, cudaStreamWaitEvent(cuda_of(device)->streams[stream], found, 0),
                       "waiting for an event");
}

static enum status cuda_event_synchronize(struct device *device, int event)
{
    cudaEvent_t found;
    TRY(event_at(cuda_of(device), event, &found));
    return cuda_waited(cuda_of(device), cudaEventSynchronize(found));
}

/* A failure is reported by whoever waits. */
static bool cuda_event_query(struct device *device, int event)
{
    cudaEvent_t found;
    return event_at(cuda_of(device), event, &found) != OK || cudaEventQuery(found) != cudaErrorNotReady;
}

static enum status cuda_capture_begin(struct device *device)
{
    cudaStream_t stream = cuda_of(device)->streams[0];
    return cuda_status(device, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                       "capturing a step");
}

static enum status cuda_capture_end(struct device *device, struct captured **captured)
{
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    TRY(cuda_status(device, cudaStreamEndCapture(cuda_of(device)->streams[0], &graph), "capturing a step"));
    int filled = 0;
    cudaError_t error = cuda_timeline_on() ? cudaSuccess : cuda_graph_fill(graph, &filled);
    if (error == cudaSuccess) error = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    TRY(cuda_status(device, error, "making a graph of a step"));
    log_detail("cuda:%d: %d memsets and copies of a step's graph became kernels", device->index, filled);
    struct captured *made = memory_new(1, sizeof *made);
    made->graph = executable;
    *captured = made;
    return OK;
}

static enum status cuda_captured_launch(struct device *device, struct captured *captured)
{
    return cuda_status(device, cudaGraphLaunch(captured->graph, cuda_of(device)->streams[0]), "a step");
}

static void cuda_captured_free(struct captured *captured)
{
    if (!captured) return;
    cudaGraphExecDestroy(captured->graph);
    free(captured);
}

static void *cuda_stream(struct device *device, int stream)
{
    return cuda_of(device)->streams[stream];
}

static enum status cuda_synchronize(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    for (int i = 0; i < CUDA_STREAMS; i++)
        TRY(cuda_waited(cuda, cudaStreamSynchronize(cuda->streams[i])));
    return OK;
}

static double cuda_joules(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    char bus[32] = "";
    if (!cuda->nvml) {
        cudaDeviceGetPCIBusId(bus, sizeof bus, device->index);
        cuda->nvml = nvml_open(bus);
    }
    return nvml_joules(cuda->nvml);
}

static void cuda_memory_info(struct device *device, size_t *free_bytes, size_t *total_bytes)
{
    if (cudaMemGetInfo(free_bytes, total_bytes) != cudaSuccess) *free_bytes = *total_bytes = 0;
}

const struct device_backend cuda_backend = {
    .name = "cuda",
    .kind = DEVICE_CUDA,
    .count = cuda_count,
    .describe = cuda_describe,
    .libraries = cuda_libraries,
    .open = cuda_open,
    .close = cuda_close,
    .stream = cuda_stream,
    .synchronize = cuda_synchronize,
    .joules = cuda_joules,
    .memory = {.allocate = cuda_allocate, .free = cuda_free, .host_allocate = cuda_host_allocate,
               .host_free = cuda_host_free, .info = cuda_memory_info, .physical = cuda_physical},
    .transfers = {.upload = cuda_upload, .download = cuda_download, .fill_zero = cuda_fill_zero},
    .events = {.record = cuda_event_record, .stream_wait = cuda_stream_wait_event,
               .synchronize = cuda_event_synchronize, .query = cuda_event_query,
               .create = cuda_event_create, .retire = cuda_event_retire},
    .capture = {.begin = cuda_capture_begin, .end = cuda_capture_end, .launch = cuda_captured_launch,
                .free = cuda_captured_free},
    .autotuner = {.save = cuda_autotuner_save, .load = cuda_autotuner_load, .find = cuda_autotuner_find,
                  .remember = cuda_autotuner_remember},
    .timeline = &cuda_timeline,
#ifdef HAVE_NVJPEG
    .jpeg = &cuda_jpeg,
#endif
};
