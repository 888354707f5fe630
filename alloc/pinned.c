#include "pinned.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "slabs.h"

/* Larger blocks are pinned separately: jemalloc rounds sizes up by as much as a quarter. */
#define SHARED_MAX ((size_t)32 << 20)

/* A slab has room for several blocks of the requested size, but is limited to a share of all slabs, to
 * balance the number of calls against waste. */
#define SLAB_BLOCKS 8
#define SLAB_SHARE 4
#define SLAB_MIN ((size_t)256 << 10)

enum origin { FROM_SLABS, PINNED_ALONE, ORDINARY };

struct pinned_block {
    char *memory;
    size_t bytes;
    enum origin origin;
    bool waits;                /* released; unused after `event` */
    void *event;
};

struct pinned {
    struct pinning pinning;
    size_t cap;
    pthread_mutex_t lock;      /* over all that follows */
    struct slabs *slabs;       /* NULL: none; every block is pinned separately */
    struct pinned_block *blocks;      /* by address */
    int count, room;
    int waiting;
    size_t shared;             /* bytes of all slabs */
    bool warned;
    struct pinned_statistics statistics;
};

/* Pinned memory. */

static void *memory_pin(struct pinned *pool, size_t bytes, bool must)
{
    struct pinned_statistics *statistics = &pool->statistics;
    bool fits = must || pool->cap == 0 ||
                (statistics->held <= pool->cap && bytes <= pool->cap - statistics->held);
    void *memory = fits ? pool->pinning.pin(pool->pinning.context, bytes) : NULL;
    if (!memory) {
        statistics->refusals++;
        return NULL;
    }
    assert((uintptr_t)memory % SLAB_PAGE == 0);
    statistics->pins++;
    statistics->held += bytes;
    if (statistics->held > statistics->held_peak) statistics->held_peak = statistics->held;
    return memory;
}

static void memory_unpin(void *context, void *memory, size_t bytes)
{
    struct pinned *pool = context;
    pool->pinning.unpin(pool->pinning.context, memory, bytes);
    pool->statistics.unpins++;
    pool->statistics.held -= bytes;
}

/* At least that large; the cap may not allow more. */
static bool add_slab(struct pinned *pool, size_t least, bool must)
{
    size_t bytes = align_up(pool->shared / SLAB_SHARE, SLAB_PAGE);
    if (bytes > SLAB_BLOCKS * least) bytes = SLAB_BLOCKS * least;
    if (bytes < SLAB_MIN) bytes = SLAB_MIN;
    if (bytes < least) bytes = least;
    void *memory = memory_pin(pool, bytes, false);
    if (!memory && (must || bytes > least)) memory = memory_pin(pool, bytes = least, must);
    if (!memory) return false;
    slabs_add(pool->slabs, memory, bytes);
    pool->shared += bytes;
    return true;
}

/* False: a new slab is needed but cannot be allocated. */
static bool take_shared(struct pinned *pool, struct pinned_block *block, bool must)
{
    size_t wanted;
    block->memory = slabs_allocate(pool->slabs, block->bytes, &wanted);
    if (!block->memory && wanted > 0) {
        if (!add_slab(pool, wanted, must)) return false;
        block->memory = slabs_allocate(pool->slabs, block->bytes, &wanted);
    }
    if (block->memory) block->origin = FROM_SLABS;
    return true;
}

static bool take_pinned(struct pinned *pool, struct pinned_block *block, bool must)
{
    if (pool->slabs && block->bytes <= SHARED_MAX && !take_shared(pool, block, must)) return false;
    if (block->memory) return true;
    block->memory = memory_pin(pool, block->bytes, must);
    if (block->memory) block->origin = PINNED_ALONE;
    return block->memory != NULL;
}

static void say_fallback(struct pinned *pool, size_t bytes, const char *owner)
{
    char wanted[TEXT_BYTES], held[TEXT_BYTES];
    log_line(pool->warned ? LOG_DETAIL : LOG_WARNING,
             "no pinned host memory for %s of %s (%s are pinned); copies of unpinned memory are slower",
             text_bytes(bytes, wanted), owner, text_bytes(pool->statistics.held, held));
    pool->warned = true;
}

static bool take_ordinary(struct pinned *pool, struct pinned_block *block, const char *owner)
{
    say_fallback(pool, block->bytes, owner);
    block->memory = aligned_alloc(SLAB_PAGE, align_up(block->bytes, SLAB_PAGE));
    block->origin = ORDINARY;
    if (!block->memory) return false;
    pool->statistics.ordinary += block->bytes;
    pool->statistics.fallbacks++;
    return true;
}

/* Blocks. */

/* Where the block at an address is, or belongs. */
static int block_find(const struct pinned *pool, const void *memory)
{
    int low = 0, high = pool->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if ((uintptr_t)pool->blocks[middle].memory < (uintptr_t)memory) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void block_insert(struct pinned *pool, const struct pinned_block *block)
{
    int at = block_find(pool, block->memory), after = pool->count - at;
    (void)array_put(pool->blocks, pool->count, pool->room);
    memmove(&pool->blocks[at + 1], &pool->blocks[at], (size_t)after * sizeof *pool->blocks);
    pool->blocks[at] = *block;
    pool->statistics.allocations++;
    pool->statistics.requested += block->bytes;
    if (pool->statistics.requested > pool->statistics.requested_peak)
        pool->statistics.requested_peak = pool->statistics.requested;
}

static void end_block(struct pinned *pool, int at)
{
    struct pinned_block block = pool->blocks[at];
    pool->count--;
    memmove(&pool->blocks[at], &pool->blocks[at + 1], (size_t)(pool->count - at) * sizeof *pool->blocks);
    pool->statistics.requested -= block.bytes;
    switch (block.origin) {
    case FROM_SLABS: slabs_free(pool->slabs, block.memory); break;
    case PINNED_ALONE: memory_unpin(pool, block.memory, block.bytes); break;
    case ORDINARY:
        pool->statistics.ordinary -= block.bytes;
        free(block.memory);
        break;
    }
}

/* Frees the blocks whose copies have ended; with `wait`, all released ones. Returns whether there were
 * any. */
static bool pending_collect(struct pinned *pool, bool wait)
{
    int before = pool->waiting;
    for (int i = pool->count - 1; i >= 0 && pool->waiting > 0; i--) {
        struct pinned_block *block = &pool->blocks[i];
        if (!block->waits) continue;
        if (!pool->pinning.event_retire(pool->pinning.context, block->event, wait)) continue;
        pool->waiting--;
        pool->statistics.waiting -= block->bytes;
        end_block(pool, i);
    }
    return pool->waiting < before;
}

static bool wait_for_copies(struct pinned *pool)
{
    pool->statistics.waits += pool->waiting > 0;
    return pending_collect(pool, true);
}

static bool block_allocate(struct pinned *pool, struct pinned_block *block, const char *owner, bool must)
{
    pending_collect(pool, false);
    if (take_pinned(pool, block, must)) return true;
    if (wait_for_copies(pool) && take_pinned(pool, block, must)) return true;
    return !must && take_ordinary(pool, block, owner);
}

void *pinned_allocate(struct pinned *pool, size_t bytes, const char *owner, bool *is_pinned)
{
    struct pinned_block block = {.bytes = bytes > 0 ? bytes : 1};
    if (bytes > PTRDIFF_MAX - SLAB_PAGE) return NULL;
    pthread_mutex_lock(&pool->lock);
    bool taken = block_allocate(pool, &block, owner, !is_pinned);
    if (taken) block_insert(pool, &block);
    pthread_mutex_unlock(&pool->lock);
    if (taken && is_pinned) *is_pinned = block.origin != ORDINARY;
    return taken ? block.memory : NULL;
}

static void block_free(struct pinned *pool, void *memory, void *event)
{
    int at = block_find(pool, memory);
    assert(at < pool->count && pool->blocks[at].memory == memory && !pool->blocks[at].waits);
    pool->statistics.frees++;
    if (!event) {
        end_block(pool, at);
        return;
    }
    pool->blocks[at].waits = true;
    pool->blocks[at].event = event;
    pool->waiting++;
    pool->statistics.waiting += pool->blocks[at].bytes;
}

void pinned_free(struct pinned *pool, void *memory)
{
    if (!memory) return;
    pthread_mutex_lock(&pool->lock);
    block_free(pool, memory, NULL);
    pthread_mutex_unlock(&pool->lock);
}

void pinned_free_after(struct pinned *pool, void *memory, int stream)
{
    const struct pinning *pinning = &pool->pinning;
    if (!memory) return;
    pthread_mutex_lock(&pool->lock);
    block_free(pool, memory, pinning->event_create ? pinning->event_create(pinning->context, stream) : NULL);
    pthread_mutex_unlock(&pool->lock);
}

struct pinned_statistics pinned_statistics(struct pinned *pool)
{
    pthread_mutex_lock(&pool->lock);
    struct pinned_statistics statistics = pool->statistics;
    statistics.blocks = pool->count;
    pthread_mutex_unlock(&pool->lock);
    return statistics;
}

struct pinned *pinned_open(const struct pinning *pinning, size_t cap)
{
    struct pinned *pool = memory_new(1, sizeof *pool);
    pool->pinning = *pinning;
    pool->cap = cap;
    pool->slabs = slabs_open();
    pthread_mutex_init(&pool->lock, NULL);
    return pool;
}

void pinned_close(struct pinned *pool)
{
    if (!pool) return;
    pending_collect(pool, true);
    bool used = false;
    for (int i = 0; i < pool->count; i++) used = used || pool->blocks[i].origin == FROM_SLABS;
    if (!used) slabs_close(pool->slabs, memory_unpin, pool);
    pthread_mutex_destroy(&pool->lock);
    free(pool->blocks);
    free(pool);
}
