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

/* Device memory, and host memory that copies are fast from; sizes in bytes. */
struct device_memory {
    /* Aligned to 4096 bytes or more. NULL when there is none. Others call device_allocate. */
    void *(*allocate)(struct device *device, size_t bytes);
    void (*free)(struct device *device, void *memory, size_t bytes);
    /* Pinned host memory. Others call device_host_allocate. */
    void *(*host_allocate)(struct device *device, size_t bytes);
    void (*host_free)(struct device *device, void *memory, size_t bytes);
    void (*info)(struct device *device, size_t *free_bytes, size_t *total_bytes);
    /* Fills in the functions that an allocator of this device's memory needs; they serve until the device is
     * closed. NULL where `allocate` is all there is. */
    void (*physical)(struct device *device, struct physical *physical);
};

/* Copies in the order of `stream`. The CPU does them at once. */
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
    /* Events without a number, as in struct pinning; NULL where nothing is ever under way. */
    void *(*create)(struct device *device, int stream);
    bool (*retire)(struct device *device, void *event, bool wait);
};

/* Between begin and end, work queued on stream 0, and on streams that wait for it, is captured and not run;
 * launch queues all of it on stream 0 at once. Stream 0 must wait for the others before the end. NULL where
 * there is nothing to gain: work is then done when it is asked for. */
struct device_capture {
    enum status (*begin)(struct device *device);
    enum status (*end)(struct device *device, struct captured **captured);
    enum status (*launch)(struct device *device, struct captured *captured);
    void (*free)(struct captured *captured);
};

/* Saves the autotuner's choices as text; and loads such text, which then wins over timing, so that a resumed
 * run goes on with the algorithms that it began with. NULL where there is no autotuner. */
struct device_autotuner {
    void (*save)(struct device *device, struct text *out);
    void (*load)(struct device *device, const char *lines);
    /* Of such choices, this run's or an earlier one's, that for `key`, which the caller frees; NULL: there is
     * none. Keys and choices are one line each, and a key holds no '='. */
    char *(*find)(struct device *device, const char *key);
    void (*remember)(struct device *device, const char *key, const char *choice);
};

/* Something that a device did: a kernel, a copy. */
struct device_activity {
    char *name;                  /* the caller of device_timeline.end frees it */
    int tag;                     /* as device_timeline.tag gave it, of work in a captured step; else -1 */
    bool copy;
    uint32_t run;                /* equal in one launch of a captured step */
    int64_t begin, end, bytes;   /* as clock_nanoseconds; bytes of copies */
};

/* When a device does what. NULL where work is done when it is asked for. */
struct device_timeline {
    /* Activities are kept from now on, and steps to be captured know their tags; false and why if not. Ends
     * before anything else begins it; there is one in a process. */
    bool (*begin)(struct device *device, struct reason *why);
    /* Waits for the device. The array is the caller's to free. */
    void (*end)(struct device *device, struct device_activity **activities, int *count);
    /* What this thread queues from now on is instruction `tag`, called `name`, of the program; -1 and NULL:
     * no longer. For profilers from elsewhere, too. */
    void (*tag)(struct device *device, int tag, const char *name);
};

struct device_backend {
    const char *name;                                   /* "cpu", "cuda" */
    enum device_kind kind;
    /* How many devices there are; 0 and why when none can be used. */
    int (*count)(struct reason *reason);
    /* One line about device `index` and the libraries: for `amptrain devices` and --version. */
    void (*describe)(int index, struct text *out);
    void (*libraries)(struct text *out);
    enum status (*open)(int index, int threads, struct device **device);
    void (*close)(struct device *device);
    void *(*stream)(struct device *device, int stream); /* the native stream, as ops' calls have it */
    enum status (*synchronize)(struct device *device);  /* waits for all streams; reports what failed */
    struct device_memory memory;
    struct device_transfers transfers;
    struct device_events events;
    struct device_capture capture;
    struct device_autotuner autotuner;
    const struct device_timeline *timeline;
    const struct jpeg_backend *jpeg;      /* jpeg.h; NULL where the device decodes no images */
};

/* The first member of every device struct. */
struct device {
    const struct device_backend *backend;
    int index;
    int threads;              /* CPU: OpenMP threads */
    int streams;              /* that compute at the same time: CPU 1; more serve transfers and exchanges */
    int copy_stream;          /* for batches on their way: a stream of its own where there are several */
    size_t memory_limit;      /* bytes that device_allocate_within stays below; 0: any */
    bool waits;               /* the host must wait for an event before it reads results (CUDA) */
    struct allocator allocator;   /* whose memory device_allocate gives out; zeroed: the back end's own */
    struct host_allocator host;   /* likewise, for device_host_allocate */
};

#define CUDA_COMPUTING_STREAMS 16     /* `streams` of a GPU */

extern const struct device_backend *const device_backends[];   /* of this build, ended by NULL */

/* `which` is "auto", "cpu", "cuda" or "cuda:N". auto: the first CUDA device that works, else the
 * CPU, and a line that says so. threads 0: all cores this process
 * may use. */
enum status device_open(const char *which, int threads, struct device **device);
void device_close(struct device *device);

/* Memory of the device, from its allocator. Aligned to 4096 bytes; `owner` says what it is for in tables, and
 * outlives it. NULL, unreported, when there is none: device_memory_in_use then says in lines who holds the
 * rest, nothing where that is not known. Nothing queued still touches what is released. */
void *device_allocate(struct device *device, size_t bytes, const char *owner);
void device_release(struct device *device, void *memory, size_t bytes);
/* Likewise, for memory that other processes reach, which have theirs at the same place of an allocation. */
void *device_allocate_shared(struct device *device, size_t bytes, const char *owner);
/* For what can do without: NULL also where device->memory_limit leaves less beside what is in use. */
void *device_allocate_within(struct device *device, size_t bytes, const char *owner);
void device_memory_in_use(const struct device *device, struct text *out);

/* Host memory for copies from and to the device, aligned to 4096 bytes, with anything in it. *pinned says
 * whether the device reaches it by itself; where it does not, copies are slow, and not captured. With
 * `pinned` NULL such memory will not do. NULL, unreported, when there is none. `owner` as above. */
void *device_host_allocate(struct device *device, size_t bytes, const char *owner, bool *pinned);
void device_host_release(struct device *device, void *memory, size_t bytes);
/* At once, though what is queued on `stream` may still copy from it or to it. */
void device_host_release_after(struct device *device, void *memory, size_t bytes, int stream);
