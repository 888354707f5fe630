#include "place.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

static const char *place_name(void)
{
    const char *name = getenv("AMPTRAIN_DEVICE");
    return name && *name ? name : "cpu";
}

bool place_is_cpu(void)
{
    return strcmp(place_name(), "cpu") == 0;
}

static void must(enum status status, const char *what)
{
    if (status == OK) return;
    fprintf(stderr, "test set-up failed: %s\n", what);
    exit(1);
}

struct device *place_open(int threads)
{
    struct device *device;
    must(device_open(place_name(), threads, &device), "the device that AMPTRAIN_DEVICE names");
    return device;
}

void *place_copy(struct device *device, const void *memory, size_t bytes)
{
    void *copy = memory_new(bytes, 1);
    must(device->backend->transfers.download(device, 0, copy, memory, bytes), "download");
    must(device->backend->synchronize(device), "download");
    return copy;
}

void place_poison(struct device *device, void *memory, size_t bytes)
{
    void *poison = memset(memory_new(bytes, 1), 0xff, bytes);
    must(device->backend->transfers.upload(device, 0, memory, poison, bytes), "upload");
    must(device->backend->synchronize(device), "upload");
    free(poison);
}
