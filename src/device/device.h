/* device.h: the tables of functions that the CPU and CUDA back ends implement. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/physical.h"
#include "base/status.h"
#include "base/text.h"

struct device;
struct jpeg_backend;
struct captured;

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

/* Device memory, and pinned host memory; sizes in bytes. */
struct device_memory {
    /* Aligned to 4096 bytes or more. NULL when there is none. Others call device_allocate. */
    void *(*allocate)(struct device *device, size_t bytes);
    void (*free)(struct device *device, void *memory, size_t bytes);
    /* Pinned host memory at a multiple of 4096. Others call device_host_allocate. */
    void *(*host_allocate)(struct device *device, size_t bytes);
    void (*host_free)(struct device *device, void *memory, size_t bytes);
    void (*info)(struct device *device, size_t *free_bytes, size_t *total_bytes);
    /* Provides the functions for an allocator of this device's memory; valid until the device is closed. NULL
     * if there is only `allocate`. */
    void (*physical)(struct device *device, struct physical *physical);
};

/* Copies in stream order. On the CPU they are synchronous. */
struct device_transfers {
    enum status (*upload)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*download)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*fill_zero)(struct device *device, int stream, void *memory, size_t bytes);
};

/* An event is a point in a stream's queue, named by a small number; recording it again moves it. */
struct device_events {
    enum status (*record)(struct device *device, int stream, int event);
    /* Later work on `stream` starts when the event has occurred. */
    enum status (*stream_wait)(struct device *device, int stream, int event);
    enum status (*synchronize)(struct device *device, int event);   /* the host waits for it */
    bool (*query)(struct device *device, int event);    /* whether it has occurred; NULL: it always has */
    /* Events without a number, as in struct pinning; NULL if all work is synchronous. */
    void *(*create)(struct device *device, int stream);
    bool (*retire)(struct device *device, void *event, bool wait);
};

/* Between begin and end, work queued on stream 0, and on streams that wait for it, is captured and not run;
 * launch queues all of it on stream 0 at once. Stream 0 must wait for the others before the end. NULL if
 * there is no benefit: work is then done at once. */
struct device_capture {
    enum status (*begin)(struct device *device);
    enum status (*end)(struct device *device, struct captured **captured);
    enum status (*launch)(struct device *device, struct captured *captured);
    void (*free)(struct captured *captured);
};

/* Saves the autotuner's choices as text; and loads such text, which then has priority over timing, so that a
 * resumed run keeps its algorithms. NULL without an autotuner. */
struct device_autotuner {
    void (*save)(struct device *device, struct text *out);
    void (*load)(struct device *device, const char *lines);
    /* The choice for `key`, of this run or an earlier one, which the caller frees; NULL: there is
     * none. Keys and choices are one line each, and a key holds no '='. */
    char *(*find)(struct device *device, const char *key);
    void (*remember)(struct device *device, const char *key, const char *choice);
};

/* An activity of a device: a kernel or a copy. */
struct device_activity {
    char *name;                  /* the caller of device_timeline.end frees it */
    int tag;                     /* as device_timeline.tag gave it, of work in a captured step; else -1 */
    bool copy;
    uint32_t run;                /* equal in one launch of a captured step */
    int64_t begin, end, bytes;   /* as clock_nanoseconds; bytes of copies */
};

/* The timeline of a device. NULL if work is synchronous. */
struct device_timeline {
    /* Starts recording activities, with the tags of steps captured from now on; false with a reason. There
     * can only be one in a process. */
    bool (*begin)(struct device *device, struct reason *why);
    /* Waits for the device. The array is the caller's to free. */
    void (*end)(struct device *device, struct device_activity **activities, int *count);
    /* Work that this thread queues from now on belongs to instruction `tag`, called `name`; -1 and NULL: no
     * longer. Also for external profilers. */
    void (*tag)(struct device *device, int tag, const char *name);
};

struct device_backend {
    const char *name;                                   /* "cpu", "cuda" */
    enum device_kind kind;
    /* The number of devices; 0 with a reason if none can be used. */
    int (*count)(struct reason *reason);
    /* One line about device `index` and the libraries: for `amptrain devices` and --version. */
    void (*describe)(int index, struct text *out);
    void (*libraries)(struct text *out);
    enum status (*open)(int index, int threads, struct device **device);
    void (*close)(struct device *device);
    void *(*stream)(struct device *device, int stream); /* the native stream, as ops' calls have it */
    enum status (*synchronize)(struct device *device);  /* waits for all streams; reports failures */
    /* Energy that it has taken since some moment; NAN: unknown. Of the CPU: that of all processors, asked for
     * at least every few minutes. */
    double (*joules)(struct device *device);
    struct device_memory memory;
    struct device_transfers transfers;
    struct device_events events;
    struct device_capture capture;
    struct device_autotuner autotuner;
    const struct device_timeline *timeline;
    const struct jpeg_backend *jpeg;      /* jpeg.h; NULL if the device has no decoder */
};

/* The first member of every device struct. */
struct device {
    const struct device_backend *backend;
    int index;
    const char *model;        /* the GPU's name, "NVIDIA H200"; NULL: a processor */
    int threads;              /* CPU: OpenMP threads */
    int streams;              /* for concurrent computation: CPU 1; there are more for transfers and
                               * exchanges */
    int copy_stream;          /* for copies of batches: a separate stream if there are several */
    size_t memory_limit;      /* upper limit for device_allocate_within in bytes; 0: none */
    bool waits;               /* the host must wait for an event before it reads results (CUDA) */
    struct allocator allocator;   /* used by device_allocate; zeroed: the back end's own */
    struct host_allocator host;   /* used by device_host_allocate; zeroed: the back end's own */
};

#define CUDA_COMPUTING_STREAMS 16     /* `streams` of a GPU */

extern const struct device_backend *const device_backends[];   /* of this build, ended by NULL */

#define DEVICE_NAMES "auto, cpu, cuda or cuda:N"

/* True if it is one of DEVICE_NAMES, in this build or another. */
bool device_name_valid(const char *name);

/* `which` is one of DEVICE_NAMES. auto: the first CUDA device that works, else the CPU, and a line that says
 * so. threads 0: all cores this process may use. */
enum status device_open(const char *which, int threads, struct device **device);
void device_close(struct device *device);

/* Memory of the device, from its allocator. Aligned to 4096 bytes; `owner` names its purpose in tables, and
 * outlives it. NULL, unreported, if there is none: device_memory_in_use then lists the owners of memory, if
 * known. No queued work may use what is released. */
void *device_allocate(struct device *device, size_t bytes, const char *owner);
void device_release(struct device *device, void *memory, size_t bytes);
/* Allocates memory that other processes access. Theirs has the same offset in its allocation. */
void *device_allocate_shared(struct device *device, size_t bytes, const char *owner);
/* For optional memory: NULL also if device->memory_limit would be exceeded. */
void *device_allocate_within(struct device *device, size_t bytes, const char *owner);
void device_memory_in_use(const struct device *device, struct text *out);

/* Host memory for copies from and to the device, aligned to 4096 bytes, not initialised. *pinned tells
 * whether the device can access it directly; otherwise copies are slow, and not captured. With `pinned` NULL
 * it must be pinned. NULL, unreported, if there is none. `owner` as above. */
void *device_host_allocate(struct device *device, size_t bytes, const char *owner, bool *pinned);
void device_host_release(struct device *device, void *memory, size_t bytes);
/* May be called while work queued on `stream` still uses it. */
void device_host_release_after(struct device *device, void *memory, size_t bytes, int stream);
