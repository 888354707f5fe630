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
struct recording;

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
    void *(*moment)(struct device *device, int stream);
    bool (*over)(struct device *device, void *moment, bool wait);

    /* Copies in the order of `stream`. The CPU does them at once. */
    enum status (*upload)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*download)(struct device *device, int stream, void *to, const void *from, size_t bytes);
    enum status (*fill_zero)(struct device *device, int stream, void *memory, size_t bytes);
    /* A mark is a point in a stream's queue, named by a small number; making it again moves it. Later work on
     * `stream` starts when the mark is passed; reach makes the host wait for it; passed says whether it would
     * not wait (NULL: it never does). */
    enum status (*mark)(struct device *device, int stream, int mark);
    enum status (*await)(struct device *device, int mark, int stream);
    enum status (*reach)(struct device *device, int mark);
    bool (*passed)(struct device *device, int mark);
    enum status (*finish)(struct device *device);       /* waits for all streams; reports what failed */

    /* Between record and recorded, work queued on stream 0, and on streams that wait for it, is kept and
     * not run; replay queues all of it on stream 0 at once. Other streams must be waited for by stream 0
     * before the end. NULL where there is nothing to gain: work is then done when it is asked for. */
    enum status (*record)(struct device *device);
    enum status (*recorded)(struct device *device, struct recording **recording);
    enum status (*replay)(struct device *device, struct recording *recording);
    void (*forget)(struct recording *recording);

    /* What timing has chosen on this device so far, as lines; and such lines, which then win over timing: so
     * that a run goes on with the code that it began with. NULL where nothing is chosen so. */
    void (*choices)(struct device *device, struct text *out);
    void (*choose)(struct device *device, const char *lines);

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
    bool waits;               /* the host must reach a mark before it reads results (CUDA) */
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
 * outlives it. NULL, unreported, when there is none: device_holdings then says in lines who holds the rest,
 * nothing where that is not known. Nothing queued still touches what is released. */
void *device_allocate(struct device *device, size_t bytes, const char *owner);
void device_release(struct device *device, void *memory, size_t bytes);
/* For what can do without: NULL also where device->memory_limit leaves less beside what is in use. */
void *device_allocate_within(struct device *device, size_t bytes, const char *owner);
void device_holdings(const struct device *device, struct text *out);

/* Host memory for copies from and to the device, aligned to 4096 bytes, with anything in it. *pinned says
 * whether the device reaches it by itself; where it does not, copies are slow, and not recorded. With
 * `pinned` NULL such memory will not do. NULL, unreported, when there is none. `owner` as above. */
void *device_host_allocate(struct device *device, size_t bytes, const char *owner, bool *pinned);
void device_host_release(struct device *device, void *memory, size_t bytes);
/* At once, though what is queued on `stream` may still copy from it or to it. */
void device_host_release_after(struct device *device, void *memory, size_t bytes, int stream);

#endif
