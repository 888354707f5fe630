/* device.h: the small table of functions behind which the CPU and CUDA hide. */
#ifndef DEVICE_DEVICE_H
#define DEVICE_DEVICE_H

#include <stdbool.h>
#include <stddef.h>

#include "base/status.h"
#include "base/text.h"

struct device;

enum device_kind { DEVICE_CPU, DEVICE_CUDA };

struct device_backend {
    const char *name;                                   /* "cpu", "cuda" */
    enum device_kind kind;
    const char *cannot_train;                           /* why this build cannot train on it; NULL: it can */
    /* How many devices there are; 0 and why when none can be used. */
    int (*count)(struct reason *reason);
    /* One line about device `index` and the libraries: for `amptrain devices` and --version. */
    void (*describe)(int index, struct text *out);
    void (*libraries)(struct text *out);
    enum status (*open)(int index, int threads, struct device **device);
    void (*close)(struct device *device);

    /* Memory is aligned to 4096 bytes or more. NULL when there is none. */
    void *(*allocate)(struct device *device, size_t bytes);
    void (*release)(struct device *device, void *memory, size_t bytes);
    /* Host memory from which copies are fast (pinned). */
    void *(*host_allocate)(struct device *device, size_t bytes);
    void (*host_release)(struct device *device, void *memory, size_t bytes);

    /* Copies in the order of `lane`. The CPU does them at once. */
    enum status (*upload)(struct device *device, int lane, void *to, const void *from, size_t bytes);
    enum status (*download)(struct device *device, int lane, void *to, const void *from, size_t bytes);
    enum status (*fill_zero)(struct device *device, int lane, void *memory, size_t bytes);
    /* Later work on `waiter` starts after what is queued on `lane` now. */
    enum status (*wait)(struct device *device, int lane, int waiter);
    enum status (*finish)(struct device *device);       /* waits for all lanes; reports what failed */
    void (*memory_info)(struct device *device, size_t *free_bytes, size_t *total_bytes);
};

/* What every device struct begins with. */
struct device {
    const struct device_backend *backend;
    int index;
    int threads;              /* CPU: OpenMP threads */
    int lanes;                /* streams that instructions may run on: CPU 1 */
};

extern const struct device_backend *const device_backends[];   /* of this build, ended by NULL */

/* `which` is "auto", "cpu", "cuda" or "cuda:N". auto: the first CUDA device that works and can
 * train in this build, else the CPU, and a line that says so. threads 0: all cores this process
 * may use. */
enum status device_open(const char *which, int threads, struct device **device);
void device_close(struct device *device);

#endif
