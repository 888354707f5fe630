/* The CUDA back end: streams as lanes, events between them, device and pinned memory. */
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "device/device.h"

#define CUDA_LANES 3                     /* compute, side work, copies */
#define CUDA_OLDEST_MAJOR 7
#define CUDA_OLDEST_MINOR 5

struct cuda_device {
    struct device device;
    char name[sizeof ((struct cudaDeviceProp *)0)->name];
    cudaStream_t streams[CUDA_LANES];
    cudaEvent_t events[CUDA_LANES];      /* the last point that another lane was told to wait for */
};

static struct cuda_device *cuda_of(struct device *device)
{
    return (struct cuda_device *)device;
}

/* Reports a failed call, naming what was tried and on which GPU. */
static enum status cuda_status(const struct device *device, cudaError_t error, const char *trying)
{
    if (error == cudaSuccess) return OK;
    const char *name = device ? ((const struct cuda_device *)device)->name : "";
    return fail(NO_DEVICE, "cuda:%d%s%s%s: %s failed: %s (%s)", device ? device->index : 0, *name ? " (" : "",
                name, *name ? ")" : "", trying, cudaGetErrorString(error), cudaGetErrorName(error));
}

static void cuda_version_text(int version, char text[16])
{
    snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
}

static int cuda_count(struct reason *reason)
{
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count > 0) return count;

    int driver = 0, runtime = 0;
    char driver_text[16], runtime_text[16];
    cudaDriverGetVersion(&driver);
    cudaRuntimeGetVersion(&runtime);
    cuda_version_text(driver, driver_text);
    cuda_version_text(runtime, runtime_text);
    if (driver == 0)
        because(reason, "no NVIDIA driver is loaded");
    else if (error == cudaErrorInsufficientDriver)
        because(reason, "the NVIDIA driver serves CUDA %s, this build needs %s", driver_text, runtime_text);
    else if (error == cudaErrorNoDevice || error == cudaSuccess)
        because(reason, "the driver shows no NVIDIA GPU (is CUDA_VISIBLE_DEVICES set?)");
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
    size_t cudnn = cudnnGetVersion();
    text_add(out, "CUDA runtime %s, cuDNN %zu.%zu.%zu", runtime_text, cudnn / 10000, cudnn / 100 % 100, cudnn % 100);
    if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
        cuda_version_text(driver, driver_text);
        text_add(out, ", driver for CUDA %s", driver_text);
    }
}

static void cuda_close(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    for (int lane = 0; lane < CUDA_LANES; lane++) {
        if (cuda->events[lane]) cudaEventDestroy(cuda->events[lane]);
        if (cuda->streams[lane]) cudaStreamDestroy(cuda->streams[lane]);
    }
    free(cuda);
}

static enum status cuda_start(struct cuda_device *cuda)
{
    struct device *device = &cuda->device;
    struct cudaDeviceProp properties;
    TRY(cuda_status(device, cudaSetDevice(device->index), "selecting the device"));
    TRY(cuda_status(device, cudaGetDeviceProperties(&properties, device->index), "reading its properties"));
    memcpy(cuda->name, properties.name, sizeof cuda->name);
    int capability = properties.major * 10 + properties.minor;
    if (capability < CUDA_OLDEST_MAJOR * 10 + CUDA_OLDEST_MINOR)
        return fail(NO_DEVICE, "cuda:%d (%s): compute capability %d.%d is too old, %d.%d is the least",
                    device->index, cuda->name, properties.major, properties.minor, CUDA_OLDEST_MAJOR,
                    CUDA_OLDEST_MINOR);
    for (int lane = 0; lane < CUDA_LANES; lane++) {
        TRY(cuda_status(device, cudaStreamCreateWithFlags(&cuda->streams[lane], cudaStreamNonBlocking),
                        "creating a stream"));
        TRY(cuda_status(device, cudaEventCreateWithFlags(&cuda->events[lane], cudaEventDisableTiming),
                        "creating an event"));
    }
    return OK;
}

extern const struct device_backend cuda_backend;

static enum status cuda_open(int index, int threads, struct device **device)
{
    struct cuda_device *cuda = memory_new(1, sizeof *cuda);
    cuda->device = (struct device){.backend = &cuda_backend, .index = index, .threads = threads,
                                   .lanes = CUDA_LANES};
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
    (void)device;
    void *memory = NULL;
    if (cudaMalloc(&memory, bytes ? bytes : 1) == cudaSuccess) return memory;
    cudaGetLastError();                  /* clears it: the caller decides what a full device means */
    return NULL;
}

static void cuda_release(struct device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    cudaFree(memory);
}

static void *cuda_host_allocate(struct device *device, size_t bytes)
{
    (void)device;
    void *memory = NULL;
    if (cudaHostAlloc(&memory, bytes ? bytes : 1, cudaHostAllocPortable) == cudaSuccess) return memory;
    cudaGetLastError();
    return NULL;
}

static void cuda_host_release(struct device *device, void *memory, size_t bytes)
{
    (void)device;
    (void)bytes;
    cudaFreeHost(memory);
}

static enum status cuda_upload(struct device *device, int lane, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = cuda_of(device)->streams[lane];
    return cuda_status(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, stream),
                       "a copy to the device");
}

static enum status cuda_download(struct device *device, int lane, void *to, const void *from, size_t bytes)
{
    cudaStream_t stream = cuda_of(device)->streams[lane];
    return cuda_status(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, stream),
                       "a copy from the device");
}

static enum status cuda_fill_zero(struct device *device, int lane, void *memory, size_t bytes)
{
    return cuda_status(device, cudaMemsetAsync(memory, 0, bytes, cuda_of(device)->streams[lane]), "clearing memory");
}

static enum status cuda_wait(struct device *device, int lane, int waiter)
{
    struct cuda_device *cuda = cuda_of(device);
    TRY(cuda_status(device, cudaEventRecord(cuda->events[lane], cuda->streams[lane]), "recording an event"));
    return cuda_status(device, cudaStreamWaitEvent(cuda->streams[waiter], cuda->events[lane], 0),
                       "waiting for an event");
}

static enum status cuda_finish(struct device *device)
{
    struct cuda_device *cuda = cuda_of(device);
    for (int lane = 0; lane < CUDA_LANES; lane++)
        TRY(cuda_status(device, cudaStreamSynchronize(cuda->streams[lane]), "work on the device"));
    return OK;
}

static void cuda_memory_info(struct device *device, size_t *free_bytes, size_t *total_bytes)
{
    (void)device;
    if (cudaMemGetInfo(free_bytes, total_bytes) != cudaSuccess) *free_bytes = *total_bytes = 0;
}

const struct device_backend cuda_backend = {
    .name = "cuda",
    .kind = DEVICE_CUDA,
    .cannot_train = "training on NVIDIA GPUs is not in this version yet",
    .count = cuda_count,
    .describe = cuda_describe,
    .libraries = cuda_libraries,
    .open = cuda_open,
    .close = cuda_close,
    .allocate = cuda_allocate,
    .release = cuda_release,
    .host_allocate = cuda_host_allocate,
    .host_release = cuda_host_release,
    .upload = cuda_upload,
    .download = cuda_download,
    .fill_zero = cuda_fill_zero,
    .wait = cuda_wait,
    .finish = cuda_finish,
    .memory_info = cuda_memory_info,
};
