#include "slabs.h"

#ifdef HAVE_CONFIG_H
#include "config.h"
#endif

#if !defined HAVE_JEMALLOC || defined WITHOUT_JEMALLOC

struct slabs *slabs_open(void)
{
    return NULL;
}

void slabs_close(struct slabs *slabs, void (*release)(void *context, void *memory, size_t bytes),
                 void *context)
{
}

void slabs_add(struct slabs *slabs, void *memory, size_t bytes)
{
}

void *slabs_allocate(struct slabs *slabs, size_t bytes, size_t *wanted)
{
    *wanted = 0;
    return NULL;
}

void slabs_free(struct slabs *slabs, void *memory)
{
}

#else

#include <jemalloc/jemalloc.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"
#include "base/memory.h"

/* Extents beyond what a block needs: a page that jemalloc adds against cache conflicts, and whole runs of
 * small blocks. */
#define EXTENT_SPARE (2 * SLAB_PAGE)
#define EXTENT_SMALL ((size_t)64 << 10)

/* Pieces of ordinary memory for jemalloc's records, each larger than the one before. */
#define RECORDS_MAX 8

struct slab {
    char *memory;
    size_t bytes, used;
};

struct slabs {
    extent_hooks_t hooks;              /* first: what the hooks are called with */
    unsigned arena;
    struct slab *list;
    int count;
    size_t most;                       /* the largest extent that the block being taken needs */
    size_t wanted;                     /* the smallest that was refused; SIZE_MAX: none was */
    struct {
        void *memory;
        size_t bytes;
    } records[RECORDS_MAX];
    int record_count;
};

/* Hooks: jemalloc(3), arena.<i>.extent_hooks. True is a refusal. */

static size_t slab_left(const struct slab *slab)
{
    return slab->bytes - slab->used;
}

/* Best fit: from the slab with the least space left. */
static void *cut_slab(struct slabs *slabs, size_t bytes)
{
    struct slab *best = NULL;
    for (struct slab *slab = slabs->list; slab < slabs->list + slabs->count; slab++)
        if (slab_left(slab) >= bytes && (!best || slab_left(slab) < slab_left(best))) best = slab;
    if (!best) return NULL;
    void *memory = best->memory + best->used;
    best->used += bytes;
    return memory;
}

/* Fresh pages, which are zero; some lie unused around what is aligned. */
static void *make_records(struct slabs *slabs, size_t bytes, size_t alignment)
{
    if (slabs->record_count == RECORDS_MAX) return NULL;
    void *memory = mmap(NULL, bytes + alignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return NULL;
    slabs->records[slabs->record_count].memory = memory;
    slabs->records[slabs->record_count++].bytes = bytes + alignment;
    return (void *)align_up((uintptr_t)memory, alignment);
}

/* Records are what is asked for at a multiple of more than a page; blocks never are. jemalloc would rather
 * have far more than a block needs at a time: when it is refused, it asks for just that. */
static void *hook_alloc(extent_hooks_t *hooks, void *at, size_t size, size_t alignment, bool *zero,
                        bool *commit, unsigned arena)
{
    struct slabs *slabs = (struct slabs *)hooks;
    if (at) return NULL;
    *commit = true;
    if (alignment > SLAB_PAGE) return make_records(slabs, size, alignment);
    void *memory = size <= slabs->most ? cut_slab(slabs, size) : NULL;
    if (!memory && size < slabs->wanted) slabs->wanted = size;
    if (memory && *zero) memset(memory, 0, size);
    return memory;
}

static bool hook_dalloc(extent_hooks_t *hooks, void *at, size_t size, bool committed, unsigned arena)
{
    return true;
}

static bool hook_split(extent_hooks_t *hooks, void *at, size_t size, size_t low, size_t high, bool committed,
                       unsigned arena)
{
    return false;
}

static bool slab_holds(const struct slab *slab, const void *at)
{
    uintptr_t memory = (uintptr_t)slab->memory;
    return (uintptr_t)at >= memory && (uintptr_t)at < memory + slab->bytes;
}

/* Adjacent slabs are not merged, because they are released one by one. */
static bool hook_merge(extent_hooks_t *hooks, void *low, size_t low_size, void *high, size_t high_size,
                       bool committed, unsigned arena)
{
    const struct slabs *slabs = (const struct slabs *)hooks;
    for (const struct slab *slab = slabs->list; slab < slabs->list + slabs->count; slab++)
        if (slab_holds(slab, low)) return !slab_holds(slab, high);
    return true;
}

/* The arena. */

static bool arena_set(const struct slabs *slabs, const char *what, ssize_t value)
{
    char name[64];
    snprintf(name, sizeof name, "arena.%u.%s", slabs->arena, what);
    return mallctl(name, NULL, NULL, &value, sizeof value) == 0;
}

static void slabs_end(struct slabs *slabs)
{
    for (int i = 0; i < slabs->record_count; i++) munmap(slabs->records[i].memory, slabs->records[i].bytes);
    free(slabs->list);
    free(slabs);
}

struct slabs *slabs_open(void)
{
    struct slabs *slabs = memory_new(1, sizeof *slabs);
    slabs->hooks = (extent_hooks_t){
        .alloc = hook_alloc, .dalloc = hook_dalloc, .split = hook_split, .merge = hook_merge,
    };
    extent_hooks_t *hooks = &slabs->hooks;
    size_t size = sizeof slabs->arena;
    if (mallctl("arenas.create", &slabs->arena, &size, &hooks, sizeof hooks) == 0) {
        if (arena_set(slabs, "dirty_decay_ms", -1) && arena_set(slabs, "muzzy_decay_ms", -1)) return slabs;
        slabs_close(slabs, NULL, NULL);
        return NULL;
    }
    slabs_end(slabs);
    return NULL;
}

void slabs_close(struct slabs *slabs, void (*release)(void *context, void *memory, size_t bytes),
                 void *context)
{
    if (!slabs) return;
    char name[64];
    snprintf(name, sizeof name, "arena.%u.destroy", slabs->arena);
    bool ended = mallctl(name, NULL, NULL, NULL, 0) == 0;
    for (int i = 0; i < slabs->count; i++) release(context, slabs->list[i].memory, slabs->list[i].bytes);
    /* An arena that cannot be destroyed keeps its hooks and metadata. */
    if (ended) slabs_end(slabs);
}

void slabs_add(struct slabs *slabs, void *memory, size_t bytes)
{
    *array_push(slabs->list, slabs->count) = (struct slab){.memory = memory, .bytes = bytes};
}

/* Bypasses thread caches, in which blocks of several arenas mix. */
static int flags_of(const struct slabs *slabs)
{
    return MALLOCX_ARENA(slabs->arena) | MALLOCX_TCACHE_NONE | MALLOCX_ALIGN(SLAB_PAGE);
}

void *slabs_allocate(struct slabs *slabs, size_t bytes, size_t *wanted)
{
    size_t extent = nallocx(bytes, flags_of(slabs)) + EXTENT_SPARE;
    slabs->most = extent > EXTENT_SMALL ? extent : EXTENT_SMALL;
    slabs->wanted = SIZE_MAX;
    void *memory = mallocx(bytes, flags_of(slabs));
    *wanted = memory || slabs->wanted == SIZE_MAX ? 0 : slabs->wanted;
    return memory;
}

void slabs_free(struct slabs *slabs, void *memory)
{
    dallocx(memory, flags_of(slabs));
}

#endif
