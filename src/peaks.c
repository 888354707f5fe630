#include "peaks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "base/search_paths.h"
#include "compile/program.h"

#define ROUNDS 7             /* of which the fastest counts */

/* A call of an op on tensors that no program has: x and its weight, if there is one, are random numbers. */
struct peak_call {
    const struct session *session;
    const struct op_code *code;
    struct call call;
    struct tensor x, weight, none;
    void *settings;
};

static enum status allocate(struct device *device, struct tensor *tensor)
{
    if (tensor->shape.rank == 0) return OK;
    size_t bytes = tensor_bytes(tensor);
    tensor->data = device_allocate(device, bytes, "measured peaks");
    return tensor->data ? OK : fail(NO_DEVICE, "profile: not enough device memory to measure its peaks");
}

#define REPEATED ((size_t)4 << 20)   /* bytes that are random, again and again */

/* What the numbers are matters: zeros cost less power, so that the clock is higher. */
static enum status fill(struct device *device, const struct tensor *tensor)
{
    if (!tensor->data) return OK;
    struct random random = random_open(0, PURPOSE_SYNTHETIC, 1, 0);
    size_t bytes = tensor_bytes(tensor), filled = bytes < REPEATED ? bytes : REPEATED;
    char *host = memory_new(1, bytes);
    for (size_t i = 0; i < filled / dtype_bytes(tensor->dtype); i++)
        dtype_set(tensor->dtype, host, (int64_t)i, random_uniform(&random) - 0.5);
    for (size_t i = filled; i < bytes; i += filled)
        memcpy(host + i, host, bytes - i < filled ? bytes - i : filled);
    const struct device_backend *backend = device->backend;
    enum status status = backend->transfers.upload(device, 0, tensor->data, host, bytes);
    if (status == OK) status = backend->synchronize(device);
    free(host);
    return status;
}

static enum status prepare(struct peak_call *peak, size_t *workspace)
{
    struct call *call = &peak->call;
    struct device *device = peak->session->device;
    if (peak->code->prepare) TRY(peak->code->prepare(call, &call->kernel_plan));
    *workspace = peak->code->workspace ? peak->code->workspace(call) : 0;
    TRY(allocate(device, &peak->x));
    TRY(allocate(device, &peak->weight));
    TRY(allocate(device, &call->y));
    TRY(fill(device, &peak->x));
    TRY(fill(device, &peak->weight));
    if (*workspace == 0) return OK;
    call->workspace = device_allocate(device, *workspace, "measured peaks");
    return call->workspace ? OK : fail(NO_DEVICE, "profile: not enough device memory to measure its peaks");
}

static enum status time_call(const struct peak_call *peak, double *seconds)
{
    struct device *device = peak->session->device;
    int calls = device->waits ? 8 : 1;
    *seconds = INFINITY;
    for (int round = 0; round < ROUNDS; round++) {
        double start = clock_seconds();
        for (int i = 0; i < calls; i++) TRY(peak->code->forward(&peak->call));
        TRY(device->backend->synchronize(device));
        *seconds = fmin(*seconds, (clock_seconds() - start) / calls);
    }
    return OK;
}

static void release(struct device *device, struct tensor *tensor)
{
    if (tensor->data) device_release(device, tensor->data, tensor_bytes(tensor));
}

/* Seconds of an op's forward on x, and on a weight unless that has no shape. */
static enum status measure(const struct session *session, const char *name, const char *settings,
                           struct peak_call *peak, double *seconds)
{
    struct reason reason;
    const struct op *op = op_find(name);
    struct device *device = session->device;
    size_t workspace = 0;
    peak->session = session;
    peak->code = kernel_plans_code(device->backend->kind)(op);
    peak->settings = op_settings_new(op, settings, &reason);
    if (!peak->settings) return fail(FAILED, "%s: %s", name, reason.text);
    peak->call = (struct call){
        .settings = peak->settings, .phase = PHASE_FORWARD, .x_count = 1, .x = &peak->x, .d_x = &peak->none,
        .param_count = peak->weight.shape.rank > 0, .params = &peak->weight, .d_params = &peak->none,
        .y = {.dtype = peak->x.dtype},
        .tf32 = session->hyper.precision->tf32, .device = device,
        .stream = device->backend->stream(device, 0),
    };
    op->shape(peak->settings, 1, &peak->x.shape, &peak->call.y.shape, &reason);
    enum status status = prepare(peak, &workspace);
    if (status == OK) status = time_call(peak, seconds);
    if (peak->call.workspace) device_release(device, peak->call.workspace, workspace);
    release(device, &peak->call.y);
    release(device, &peak->weight);
    release(device, &peak->x);
    if (peak->code->release && peak->call.kernel_plan) peak->code->release(peak->call.kernel_plan);
    op_settings_free(op, peak->settings);
    return status;
}

static enum status measure_both(const struct session *session, struct peaks *peaks)
{
    bool gpu = session->device->backend->kind == DEVICE_CUDA;
    enum dtype dtype = session->hyper.precision->storage;
    int64_t side = gpu ? 8192 : 1024, elements = (gpu ? 1 << 30 : 1 << 27) / (int64_t)dtype_bytes(dtype);
    char settings[64];
    double seconds;
    struct peak_call product = {.x = {.dtype = dtype, .shape = shape_nhwc(side, 1, 1, side)},
                                .weight = {.dtype = dtype, .shape = {.rank = 2, .dim = {side, side, 1, 1}}}};
    snprintf(settings, sizeof settings, "units=%lld bias=no", (long long)side);
    TRY(measure(session, "linear", settings, &product, &seconds));
    peaks->tflops = 2e-12 * pow((double)side, 3) / seconds;
    struct peak_call pass = {.x = {.dtype = dtype, .shape = shape_nhwc(64, 32, 32, elements >> 16)}};
    TRY(measure(session, "relu", "", &pass, &seconds));
    peaks->gbps = 2e-9 * (double)tensor_bytes(&pass.x) / seconds;
    return OK;
}

static char *key_of(const struct session *session)
{
    struct text device = {0};
    session->device->backend->describe(session->device->index, &device);
    char *key = text_format("%s, %s, %d threads = ", device.data, session->hyper.precision->name,
                            session->device->threads);
    text_free(&device);
    return key;
}

static bool recall(const char *path, const char *key, struct peaks *peaks)
{
    struct reason reason;
    char line[1024];
    bool found = false;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), "%lf %lf", &peaks->tflops, &peaks->gbps) == 2 &&
                peaks->tflops > 0 && peaks->gbps > 0;
    if (file) fclose(file);
    return found;
}

/* If it cannot be written, they are measured again next time. */
static void note(const char *folder, const char *path, const char *key, const struct peaks *peaks)
{
    struct reason reason;
    if (!directory_make(folder, 0777, &reason)) return;
    FILE *file = directory_stream(&directory_working, path, "a", &reason);
    if (!file) return;
    fprintf(file, "%s%.9g %.9g\n", key, peaks->tflops, peaks->gbps);
    fclose(file);
}

enum status peaks_find(const struct session *session, struct peaks *peaks)
{
    char *folder = search_paths_cache(), *key = key_of(session);
    char *path = folder ? text_format("%s/peaks", folder) : NULL;
    enum status status = OK;
    if (!path || !recall(path, key, peaks)) {
        status = measure_both(session, peaks);
        if (status == OK && path) note(folder, path, key, peaks);
    }
    free(path);
    free(key);
    free(folder);
    return status;
}
