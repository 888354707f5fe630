/* device.h: the small table of functions behind which the CPU and CUDA hide. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/physical.h"
#include "base/status.h"
#include "base/text.h"

struct device;
struct jpeg_backend;
struct captured;

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

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

    /* Memory is aligned to 4096 bytes or more. NULL when there is none. Others call device_allocate. */
    void *(*allocate)(struct device *device, size_t bytes);
    void (*release)(struct device *device, void *memory, size_t bytes);
    /* Host memory from which copies are fast (pinned). Others call device_host_allocate. */
    void *(*host_allocate)(struct device *device, size_t bytes);
    void (*host_release)(struct device *device, void *memory, size_t bytes);
    /* As in struct pinning; NULL where nothing is ever under way. */
    void *(*event_create)(struct device *device, int stream);
    bool (*event_retire)(struct device *device, void *event, bool wait);

    /* Copies in the order of `stream`. The CPU does them at once. */
    enum status (*upload)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*download)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*fill_zero)(struct device *device, int stream, void *memory, size_t bytes);
    /* An event is a point in a stream's queue, named by a small number; recording it again moves it. After
     * stream_wait_event, later work on `stream` starts when the event has occurred; event_synchronize makes
     * the host wait for it; event_query says whether it has occurred (NULL: it always has). */
    enum status (*event_record)(struct device *device, int stream, int event);
    enum status (*stream_wait_event)(struct device *device, int stream, int event);
    enum status (*event_synchronize)(struct device *device, int event);
    bool (*event_query)(struct device *device, int event);
    enum status (*finish)(struct device *device);       /* waits for all streams; reports what failed */

    /* Between capture_begin and capture_end, work queued on stream 0, and on streams that wait for it, is
     * captured and not run; captured_launch queues all of it on stream 0 at once. Stream 0 must wait for the
     * others before the end. NULL where there is nothing to gain: work is then done when it is asked for. */
    enum status (*capture_begin)(struct device *device);
    enum status (*capture_end)(struct device *device, struct captured **captured);
    enum status (*captured_launch)(struct device *device, struct captured *captured);
    void (*captured_free)(struct captured *captured);

    /* Saves the autotuner's choices as text; and takes such text, which then wins over timing, so that a
     * resumed run goes on with the algorithms that it began with. NULL where there is no autotuner. */
    void (*autotuner_save)(struct device *device, struct text *out);
    void (*autotuner_load)(struct device *device, const char *lines);

    void *(*stream)(struct device *device, int stream); /* the native stream, as ops' calls have it */
    void (*memory_info)(struct device *device, size_t *free_bytes, size_t *total_bytes);
    /* Fills in what an allocator of this device's memory needs; it serves until the device is closed. NULL
     * where allocate is all there is to have. */
    void (*physical)(struct device *device, struct physical *physical);
    const struct jpeg_backend *jpeg;      /* jpeg.h; NULL where the device decodes no images */
};

/* What every device struct begins with. */
struct device {
    const struct device_backend *backend;
    int index;
    int threads;              /* CPU: OpenMP threads */
    int streams;              /* streams that instructions may run on: CPU 1 */
    int copy_stream;          /* for batches on their way: a stream of its own where there are several */
    size_t memory_limit;      /* bytes that device_allocate_within stays below; 0: any */
    bool waits;               /* the host must wait for an event before it reads results (CUDA) */
    struct allocator allocator;   /* whose memory device_allocate gives out; zeroed: the back end's own */
    struct host_allocator host;   /* likewise, for device_host_allocate */
};

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

#endif
