/* device.c: the back ends of this build, and their selection by name. */
#include "device.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

extern const struct device_backend cpu_backend;
#ifdef HAVE_CUDA
extern const struct device_backend cuda_backend;
#endif

/* In the order in which `auto` tries them; the CPU, which always works, is last. */
const struct device_backend *const device_backends[] = {
#ifdef HAVE_CUDA
    &cuda_backend,
#endif
    &cpu_backend,
    NULL,
};

static const struct device_backend *backend_find(const char *name, size_t length)
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if (strlen((*backend)->name) == length && memcmp((*backend)->name, name, length) == 0)
            return *backend;
    return NULL;
}

static enum status device_open_auto(int threads, struct device **device)
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        struct reason reason = {0};
        int count = (*backend)->count(&reason);
        if (count > 0 && (*backend)->open(0, threads, device) == OK) return OK;
        log_info("device=auto: not %s (%s)", (*backend)->name,
                 reason.text[0] ? reason.text : "it cannot be opened");
    }
    return fail(NO_DEVICE, "no usable device");
}

static bool device_index_parse(const char *text, int *index)
{
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (end == text || *end || errno || value < 0 || value > 4095) return false;
    *index = (int)value;
    return true;
}

bool device_name_valid(const char *name)
{
    size_t length = strcspn(name, ":");
    int index;
    bool known = (length == 3 && memcmp(name, "cpu", 3) == 0) ||
                 (length == 4 && memcmp(name, "cuda", 4) == 0);
    if (!known) return strcmp(name, "auto") == 0;
    return name[length] == '\0' || device_index_parse(name + length + 1, &index);
}

enum status device_open(const char *which, int threads, struct device **device)
{
    if (!device_name_valid(which)) return fail(USAGE, "device '%s': must be " DEVICE_NAMES, which);
    if (strcmp(which, "auto") == 0) return device_open_auto(threads, device);
    size_t length = strcspn(which, ":");
    const struct device_backend *backend = backend_find(which, length);
    if (!backend) return fail(NO_DEVICE, "device '%s': this build has no CUDA", which);
    int index = 0;
    if (which[length]) device_index_parse(which + length + 1, &index);
    struct reason reason = {0};
    int count = backend->count(&reason);
    if (count == 0) return fail(NO_DEVICE, "device '%s': %s", which, reason.text);
    if (index >= count)
        return fail(NO_DEVICE, "device '%s': there are only %d (numbered from 0)", which, count);
    return backend->open(index, threads, device);
}

void device_close(struct device *device)
{
    if (device) device->backend->close(device);
}

void *device_allocate(struct device *device, size_t bytes, const char *owner)
{
    const struct allocator *allocator = &device->allocator;
    if (allocator->allocate) return allocator->allocate(allocator->context, bytes, owner);
    return device->backend->memory.allocate(device, bytes);
}

void *device_allocate_shared(struct device *device, size_t bytes, const char *owner)
{
    const struct allocator *allocator = &device->allocator;
    if (allocator->allocate_piece) return allocator->allocate_piece(allocator->context, bytes, owner);
    return device->backend->memory.allocate(device, bytes);
}

void *device_allocate_within(struct device *device, size_t bytes, const char *owner)
{
    const struct allocator *allocator = &device->allocator;
    size_t in_use = allocator->in_use ? allocator->in_use(allocator->context) : 0;
    size_t limit = device->memory_limit;
    if (limit > 0 && (in_use > limit || bytes > limit - in_use)) return NULL;
    return device_allocate(device, bytes, owner);
}

void device_release(struct device *device, void *memory, size_t bytes)
{
    const struct allocator *allocator = &device->allocator;
    if (allocator->free) allocator->free(allocator->context, memory);
    else device->backend->memory.free(device, memory, bytes);
}

void *device_host_allocate(struct device *device, size_t bytes, const char *owner, bool *pinned)
{
    const struct host_allocator *host = &device->host;
    if (host->allocate) return host->allocate(host->context, bytes, owner, pinned);
    if (pinned) *pinned = true;
    return device->backend->memory.host_allocate(device, bytes);
}

void device_host_release(struct device *device, void *memory, size_t bytes)
{
    const struct host_allocator *host = &device->host;
    if (host->free) host->free(host->context, memory);
    else device->backend->memory.host_free(device, memory, bytes);
}

void device_host_release_after(struct device *device, void *memory, size_t bytes, int stream)
{
    const struct host_allocator *host = &device->host;
    if (host->free_after) {
        host->free_after(host->context, memory, stream);
        return;
    }
    device->backend->synchronize(device);
    device->backend->memory.host_free(device, memory, bytes);
}

void device_memory_in_use(const struct device *device, struct text *out)
{
    const struct allocator *allocator = &device->allocator;
    if (allocator->table) allocator->table(allocator->context, out);
}
