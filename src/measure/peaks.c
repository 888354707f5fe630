#include "measure/peaks.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/search_paths.h"
#include "measure/op_time.h"

static enum status peak_measure(const struct session *session, const char *name, const char *settings,
                                struct shape x, double *seconds)
{
    struct reason reason;
    struct op_problem problem = {.session = session, .op = op_find(name), .x = x};
    struct op_time times[PHASE_COUNT];
    bool fits;
    void *made = op_settings_new(problem.op, settings, &reason);
    if (!made) return fail(FAILED, "%s: %s", name, reason.text);
    problem.settings = made;
    enum status status = op_time_measure(&problem, 1u << PHASE_FORWARD, times, &fits);
    op_settings_free(problem.op, made);
    if (status == OK && !fits)
        status = fail(NO_DEVICE, "profile: not enough device memory to measure its peaks");
    *seconds = times[PHASE_FORWARD].seconds;
    return status;
}

static enum status measure_both(const struct session *session, struct peaks *peaks)
{
    bool gpu = session->device->backend->kind == DEVICE_CUDA;
    enum dtype dtype = session->hyper.precision->storage;
    int64_t side = gpu ? 8192 : 1024, elements = (gpu ? 1 << 30 : 1 << 27) / (int64_t)dtype_bytes(dtype);
    char settings[64];
    double seconds;
    struct shape matrix = shape_nhwc(side, 1, 1, side), large = shape_nhwc(64, 32, 32, elements >> 16);
    snprintf(settings, sizeof settings, "units=%lld bias=no", (long long)side);
    TRY(peak_measure(session, "linear", settings, matrix, &seconds));
    peaks->tflops = 2e-12 * pow((double)side, 3) / seconds;
    TRY(peak_measure(session, "relu", "", large, &seconds));
    peaks->gbps = 2e-9 * (double)shape_count(large) * (double)dtype_bytes(dtype) / seconds;
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

/* A larger file has other things in it, and is begun anew. */
#define FILE_MAX_BYTES (1 << 20)

static bool recall(const char *path, const char *key, struct peaks *peaks)
{
    struct reason reason;
    char line[1024];
    bool found = false;
    FILE *file = directory_stream_within(&directory_working, path, "r", FILE_MAX_BYTES, &reason);
    while (file && !found && fgets(line, sizeof line, file))
        found = strncmp(line, key, strlen(key)) == 0 &&
                sscanf(line + strlen(key), "%lf %lf", &peaks->tflops, &peaks->gbps) == 2 &&
                peaks->tflops > 0 && peaks->gbps > 0 && isfinite(peaks->tflops) && isfinite(peaks->gbps);
    if (file) fclose(file);
    return found;
}

/* If the file cannot be written, they are measured again next time. */
static void note(const char *folder, const char *path, const char *key, const struct peaks *peaks)
{
    struct reason reason;
    if (!directory_make(folder, 0777, &reason)) return;
    FILE *file = directory_stream_within(&directory_working, path, "a", FILE_MAX_BYTES, &reason);
    if (!file && !(file = directory_stream(&directory_working, path, "w", &reason))) return;
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
