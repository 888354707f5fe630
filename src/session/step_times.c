#include "session/step_times.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/atomic_file.h"
#include "base/crc32c.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "compile/time/cost.h"
#include "graph/graph_text.h"

#define FILE_NAME "steps"
#define LINES_MAX 500                /* the newest lines, which are kept */
#define LINE_MAX_BYTES 400
#define FILE_MAX_BYTES (1 << 20)

/* A line: "network program seconds modelled device". */
struct entry {
    uint32_t network, program;
    double seconds, modelled;        /* of the step; by cost_program */
    char device[LINE_MAX_BYTES];
};

/* The network, for any image size, in this precision. */
static uint32_t network_hash(const struct session *session)
{
    struct text text = {0};
    graph_text(&session->graphs.training, &text);
    const char *layers = strstr(text.data, "[layers]");
    uint32_t hash = crc32c(0, layers, strlen(layers));
    text_free(&text);
    return crc32c(hash, session->hyper.precision->name, strlen(session->hyper.precision->name));
}

/* Every instruction's op, phase, stream and bytes. */
static uint32_t program_hash(const struct session *session, const struct program *program)
{
    uint32_t hash = network_hash(session);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        const int facts[] = {at->kind, at->phase, at->stream, at->micro_batch};
        double bytes = cost_bytes(program, at);
        hash = crc32c(hash, facts, sizeof facts);
        hash = crc32c(hash, &bytes, sizeof bytes);
        if (at->op) hash = crc32c(hash, at->op->name, strlen(at->op->name));
    }
    return hash;
}

static const char *device_name(const struct session *session)
{
    if (session_device_kind(session) == DEVICE_CPU) return "CPU";
    return session->device && session->device->model ? session->device->model : NULL;
}

static bool entry_read(const char *line, struct entry *entry)
{
    int end = 0;
    struct entry read = {0};
    if (sscanf(line, "%" SCNx32 " %" SCNx32 " %lf %lf %n", &read.network, &read.program, &read.seconds,
               &read.modelled, &end) != 4 || end == 0)
        return false;
    snprintf(read.device, sizeof read.device, "%.*s", (int)strcspn(line + end, "\n"), line + end);
    if (!(read.seconds > 0 && read.seconds < 1e6 && read.modelled > 0 && read.modelled < 1e6)) return false;
    *entry = read;
    return true;
}

/* The valid lines; the caller frees them. */
static struct entry *entries_read(const char *folder, int *count)
{
    struct reason reason;
    struct entry *entries = NULL;
    char line[LINE_MAX_BYTES], *path = text_format("%s/" FILE_NAME, folder);
    FILE *file = directory_stream_within(&directory_working, path, "r", FILE_MAX_BYTES, &reason);
    *count = 0;
    while (file && fgets(line, sizeof line, file)) {
        struct entry entry;
        if (entry_read(line, &entry)) *array_push(entries, *count) = entry;
    }
    if (file) fclose(file);
    free(path);
    return entries;
}

static void entries_write(const char *folder, const struct entry *entries, int count)
{
    struct text text = {0};
    struct directory at;
    for (int i = count > LINES_MAX ? count - LINES_MAX : 0; i < count; i++)
        if (entries[i].seconds > 0)
            text_add(&text, "%08" PRIx32 " %08" PRIx32 " %.9g %.9g %s\n", entries[i].network,
                     entries[i].program, entries[i].seconds, entries[i].modelled, entries[i].device);
    if (text.data && directory_open(folder, &at) == OK) {
        (void)atomic_file_write(&at, FILE_NAME, text.data, text.length);
        directory_close(&at);
    }
    text_free(&text);
}

void step_times_note(const struct session *session, const struct program *program, double seconds)
{
    struct reason reason;
    const char *device = device_name(session);
    char *folder = search_paths_cache();
    if (device && folder && seconds > 0 && !session->comm && directory_make(folder, 0777, &reason)) {
        int count;
        struct entry *entries = entries_read(folder, &count);
        struct entry now = {.network = network_hash(session), .program = program_hash(session, program),
                            .seconds = seconds, .modelled = cost_program(program)};
        snprintf(now.device, sizeof now.device, "%s", device);
        for (int i = 0; i < count; i++)
            if (entries[i].program == now.program && strcmp(entries[i].device, now.device) == 0)
                entries[i].seconds = 0;
        *array_push(entries, count) = now;
        entries_write(folder, entries, count);
        free(entries);
    }
    free(folder);
}

char *step_times_gpu(void)
{
    char *folder = search_paths_cache(), *gpu = NULL;
    int count = 0;
    struct entry *entries = folder ? entries_read(folder, &count) : NULL;
    for (int i = count - 1; i >= 0 && !gpu; i--)
        if (strcmp(entries[i].device, "CPU") != 0) gpu = text_copy(entries[i].device);
    free(entries);
    free(folder);
    return gpu;
}

/* Models the step by the rates of the device on which it was measured. */
static double modelled_there(const struct session *session, const struct program *program,
                             const struct entry *entry)
{
    struct program there = *program;
    if (session_device_kind(session) == DEVICE_CUDA)
        there.machine = machine_gpu(entry->device, session->hyper.precision->tf32);
    return cost_program(&there);
}

enum step_time_origin step_times_recall(const struct session *session, const struct program *program,
                                        double *seconds)
{
    enum step_time_origin origin = STEP_TIME_MODELLED;
    char *folder = search_paths_cache();
    int count = 0;
    struct entry *entries = folder ? entries_read(folder, &count) : NULL;
    uint32_t network = network_hash(session), this = program_hash(session, program);
    bool cpu = session_device_kind(session) == DEVICE_CPU;
    for (int i = count - 1; i >= 0 && origin != STEP_TIME_MEASURED; i--) {
        const struct entry *entry = &entries[i];
        if ((strcmp(entry->device, "CPU") == 0) != cpu || entry->network != network) continue;
        if (entry->program == this) {
            origin = STEP_TIME_MEASURED;
            *seconds = entry->seconds;
        } else if (origin == STEP_TIME_MODELLED) {
            origin = STEP_TIME_SCALED;
            *seconds = modelled_there(session, program, entry) * entry->seconds / entry->modelled;
        }
    }
    free(entries);
    free(folder);
    return origin;
}
