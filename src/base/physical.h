/* physical.h: the interface between a device and the allocators of device memory and pinned host memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text;

/* Functions that a device provides to an allocator (alloc/cache.h): address ranges, and memory mapped into
 * them. All sizes are bytes. */
struct physical {
    void *context;             /* what every function gets first */
    size_t granularity;        /* a power of two: every size below, and every address, is a multiple */
    /* Reserves addresses without memory; NULL if there are none. The function itself is NULL on devices
     * without this: there, map allocates memory at any address. */
    void *(*reserve)(void *context, size_t bytes);
    void (*unreserve)(void *context, void *range, size_t bytes);
    /* Maps new memory at `at`, an unmapped part of a reserved range; returns `at`. NULL, unreported, if the
     * device has none left. */
    void *(*map)(void *context, void *at, size_t bytes);
    /* Frees what one call of map returned. No queued work may use it. */
    void (*unmap)(void *context, void *at, size_t bytes);
    size_t (*free_bytes)(void *context);     /* memory that can still be mapped, by all processes together */
    /* Waits for all queued work. False, reported, if the device has failed. */
    bool (*synchronize)(void *context);
};

/* Functions that a device provides to the allocator of pinned host memory (alloc/pinned.h). */
struct pinning {
    void *context;             /* what every function gets first */
    /* Page-locked host memory at a multiple of 4096, which the device can access directly; not from malloc.
     * NULL, unreported, if there is none. */
    void *(*pin)(void *context, size_t bytes);
    void (*unpin)(void *context, void *memory, size_t bytes);
    /* Records an event after all work queued on a stream; NULL: it is done already. event_retire tells
     * whether it has occurred, or waits for it, and then frees it. If both are NULL, work is always done. */
    void *(*event_create)(void *context, int stream);
    bool (*event_retire)(void *context, void *event, bool wait);
};

/* Functions that an allocator provides to a device. */
struct allocator {
    void *context;
    void *(*allocate)(void *context, size_t bytes, const char *owner); /* NULL: no memory is left */
    /* For device_allocate_shared. */
    void *(*allocate_piece)(void *context, size_t bytes, const char *owner);
    void (*free)(void *context, void *memory);
    void (*table)(void *context, struct text *out);                  /* the owners of memory, as lines */
    size_t (*in_use)(void *context);                                 /* bytes allocated now */
};

/* Allocation of host memory. */
struct host_allocator {
    void *context;
    void *(*allocate)(void *context, size_t bytes, const char *owner, bool *pinned);
    void (*free)(void *context, void *memory);
    void (*free_after)(void *context, void *memory, int stream);
};
