/* physical.h: the interface between a device and the allocators of device memory and pinned host memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct text;

/* Functions that a device gives to an allocator (alloc/cache.h): ranges of addresses, and memory mapped into
 * them. All sizes are bytes. */
struct physical {
    void *context;             /* what every function gets first */
    size_t granularity;        /* a power of two: every size below, and every address, is a multiple */
    /* Addresses with no memory behind them; NULL when there are none. The function itself is NULL on
     * devices that cannot: there, map takes memory wherever it is. */
    void *(*reserve)(void *context, size_t bytes);
    void (*unreserve)(void *context, void *range, size_t bytes);
    /* Memory of its own at `at`, a part of a reserved range that has none; returns `at`. NULL when the device
     * has none left, which is no error and is not reported. */
    void *(*map)(void *context, void *at, size_t bytes);
    /* Gives back what one call of map took. Nothing queued touches it. */
    void (*unmap)(void *context, void *at, size_t bytes);
    size_t (*free_bytes)(void *context);     /* what could still be mapped, by all processes together */
    /* Waits for all that is queued. False, reported, when the device has failed. */
    bool (*synchronize)(void *context);
};

/* Functions that a device gives to an allocator of host memory for copies (alloc/pinned.h). */
struct pinning {
    void *context;             /* what every function gets first */
    /* Host memory that stays where it is in the machine's, at a multiple of 4096: the device reaches it by
     * itself. It is not malloc's. NULL when there is none, which is no error and is not reported. */
    void *(*pin)(void *context, size_t bytes);
    void (*unpin)(void *context, void *memory, size_t bytes);
    /* An event behind all that a stream has queued by now; NULL: that is done already. event_retire says
     * whether it has occurred, or waits until it has, and frees it then. Where both are NULL all is done. */
    void *(*event_create)(void *context, int stream);
    bool (*event_retire)(void *context, void *event, bool wait);
};

/* Functions that an allocator gives to a device. */
struct allocator {
    void *context;
    void *(*allocate)(void *context, size_t bytes, const char *owner); /* NULL: no memory is left */
    void *(*allocate_piece)(void *context, size_t bytes, const char *owner);   /* for device_allocate_shared */
    void (*free)(void *context, void *memory);
    void (*table)(void *context, struct text *out);                  /* who holds what, in lines */
    size_t (*in_use)(void *context);                                 /* bytes that are taken now */
};

/* Likewise, of host memory. */
struct host_allocator {
    void *context;
    void *(*allocate)(void *context, size_t bytes, const char *owner, bool *pinned);
    void (*free)(void *context, void *memory);
    void (*free_after)(void *context, void *memory, int stream);
};
