/* cpu.c: the CPU as a device: memory from mmap, synchronous copies, one stream, OpenMP threads. */
#include "device.h"

#include <dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "base/host.h"
#include "base/memory.h"
#include "device/rapl.h"

extern const struct device_backend cpu_backend;

struct cpu_device {
    struct device device;
    struct rapl *rapl;                   /* made when first asked for */
};

#define HUGE_PAGE ((size_t)2 << 20)

static int cpu_count(struct reason *reason)
{
    return 1;
}

#ifdef _OPENMP
/* OMP_NUM_THREADS where the user has set it, else the processors that the process may use. */
static int threads_wanted(void)
{
    return getenv("OMP_NUM_THREADS") ? omp_get_max_threads() : host_processors();
}
#endif

/* `wanted`, or a suitable number if that is 0; never more than OMP_THREAD_LIMIT, since oneDNN would wait
 * forever for the missing threads. */
static int threads_usable(int wanted)
{
#ifdef _OPENMP
    int limit = omp_get_thread_limit(), threads = wanted > 0 ? wanted : threads_wanted();
    return threads < limit ? threads : limit;
#else
    return 1;
#endif
}

/* The number of the open device's threads, or before that OpenMP's default. */
static int threads_now(void)
{
#ifdef _OPENMP
    return threads_usable(omp_get_max_threads());
#else
    return 1;
#endif
}

/* The value of the first line of /proc/cpuinfo that begins with `key`, into `out`. */
static bool cpuinfo(const char *key, char *out, size_t size)
{
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return false;
    char line[8192];
    bool found = false;
    while (!found && fgets(line, sizeof line, file)) {
        char *colon = strchr(line, ':');
        if (!colon || strncmp(line, key, strlen(key)) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(out, size, "%s", colon[1] == ' ' ? colon + 2 : colon + 1);
        found = true;
    }
    fclose(file);
    return found;
}

/* Instruction sets that decide how fast each precision is. */
static void describe_features(struct text *out)
{
    static const char *const names[] = {"avx2", "avx512f", "avx512_bf16", "avx512_fp16", "amx_bf16",
                                        "amx_fp16"};
    char flags[8192];
    if (!cpuinfo("flags", flags, sizeof flags)) return;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (char *at = flags; (at = strstr(at, names[i])); at++) {
            char next = at[strlen(names[i])];
            if ((next == ' ' || next == '\0') && (at == flags || at[-1] == ' ')) {
                text_add(out, ", %s", names[i]);
                break;
            }
        }
}

static void cpu_memory_info(struct device *device, size_t *free_bytes, size_t *total_bytes)
{
    host_memory(free_bytes, total_bytes);
}

static void cpu_describe(int index, struct text *out)
{
    char model[256];
    if (!cpuinfo("model name", model, sizeof model)) snprintf(model, sizeof model, "CPU");
    size_t free_bytes, total_bytes;
    cpu_memory_info(NULL, &free_bytes, &total_bytes);
    char bytes[TEXT_BYTES];
    int threads = threads_now();
    text_add(out, "%s, %d thread%s, %s", model, threads, threads == 1 ? "" : "s",
             text_bytes(total_bytes, bytes));
    describe_features(out);
}

static void cpu_libraries(struct text *out)
{
    const dnnl_version_t *version = dnnl_version();
    text_add(out, "oneDNN %d.%d.%d", version->major, version->minor, version->patch);
#ifdef _OPENMP
    text_add(out, ", OpenMP %d", _OPENMP);
#endif
}

static enum status cpu_open(int index, int threads, struct device **device)
{
    struct cpu_device *cpu = memory_new(1, sizeof *cpu);
    threads = threads_usable(threads);
    cpu->device = (struct device){.backend = &cpu_backend, .index = index, .threads = threads, .streams = 1};
#ifdef _OPENMP
    omp_set_dynamic(0);
    omp_set_num_threads(threads);
#endif
    *device = &cpu->device;
    return OK;
}

static void cpu_close(struct device *device)
{
    rapl_close(((struct cpu_device *)device)->rapl);
    free(device);
}

static double cpu_joules(struct device *device)
{
    struct cpu_device *cpu = (struct cpu_device *)device;
    if (!cpu->rapl) cpu->rapl = rapl_open("");
    return rapl_joules(cpu->rapl);
}

/* The kernel overcommits memory and kills the process that uses it. Smaller sizes need no check. */
#define ASKED_MIN ((size_t)1 << 30)

static bool memory_is_available(size_t bytes)
{
    size_t available, total;
    if (bytes < ASKED_MIN) return true;
    host_memory(&available, &total);
    return available == 0 || bytes <= available;
}

/* Fresh pages, zeroed by the system when first touched; large ranges ask for huge pages, which
 * spares most of the page faults and TLB misses of a first step. */
static void *cpu_allocate(struct device *device, size_t bytes)
{
    if (!memory_is_available(bytes)) return NULL;
    void *memory = mmap(NULL, bytes ? bytes : 1, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    if (bytes >= HUGE_PAGE) madvise(memory, bytes, MADV_HUGEPAGE);
    return memory;
}

static void cpu_free(struct device *device, void *memory, size_t bytes)
{
    if (memory) munmap(memory, bytes ? bytes : 1);
}

static enum status cpu_copy(struct device *device, int stream, void *to, const void *from, size_t bytes)
{
    if (bytes > 0) memcpy(to, from, bytes);
    return OK;
}

static enum status cpu_fill_zero(struct device *device, int stream, void *memory, size_t bytes)
{
    if (bytes > 0) memset(memory, 0, bytes);
    return OK;
}

/* All work is synchronous, so every event has occurred. */
static enum status cpu_event(struct device *device, int stream, int event)
{
    return OK;
}

static enum status cpu_event_synchronize(struct device *device, int event)
{
    return OK;
}

static enum status cpu_synchronize(struct device *device)
{
    return OK;
}

static void *cpu_stream(struct device *device, int stream)
{
    return NULL;
}

const struct device_backend cpu_backend = {
    .name = "cpu",
    .kind = DEVICE_CPU,
    .count = cpu_count,
    .describe = cpu_describe,
    .libraries = cpu_libraries,
    .open = cpu_open,
    .close = cpu_close,
    .stream = cpu_stream,
    .synchronize = cpu_synchronize,
    .joules = cpu_joules,
    .memory = {.allocate = cpu_allocate, .free = cpu_free, .host_allocate = cpu_allocate,
               .host_free = cpu_free, .info = cpu_memory_info},
    .transfers = {.upload = cpu_copy, .download = cpu_copy, .fill_zero = cpu_fill_zero},
    .events = {.record = cpu_event, .stream_wait = cpu_event, .synchronize = cpu_event_synchronize},
};
