#include "cache.h"

#include <assert.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/memory.h"

/* A contiguous range of memory. All blocks together cover the mapped memory, and no two free ones are
 * adjacent. */
struct block {
    uintptr_t at;
    size_t bytes;
    size_t requested;
    const char *owner;               /* NULL: free */
    bool seam;                       /* it is not coalesced with a block right below it */
};

struct list {
    struct block **blocks;
    int count;
};

/* The memory from one call of map. */
struct piece {
    uintptr_t at;
    size_t bytes;
};

struct cache {
    struct physical physical;
    struct cache_options options;
    pthread_mutex_t lock;
    uintptr_t range;                 /* 0: there are no ranges */
    struct list all;                 /* by address */
    struct list free;                /* by size, then address */
    struct piece *pieces;            /* by address */
    int piece_count;
    struct cache_statistics statistics;        /* except for values that follow from the lists */
};

/* Lists. */

/* The first block at or above an address; the first of a size and at an address, or more. */
static int find_address(const struct list *list, uintptr_t at)
{
    int low = 0, high = list->count;
    while (low < high) {
        int middle = (low + high) / 2;
        if (list->blocks[middle]->at < at) low = middle + 1;
        else high = middle;
    }
    return low;
}

static int find_size(const struct list *list, size_t bytes, uintptr_t at)
{
    int low = 0, high = list->count;
    while (low < high) {
        int middle = (low + high) / 2;
        const struct block *block = list->blocks[middle];
        if (block->bytes < bytes || (block->bytes == bytes && block->at < at)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void list_insert(struct list *list, int place, struct block *block)
{
    array_push(list->blocks, list->count);
    memmove(&list->blocks[place + 1], &list->blocks[place],
            (size_t)(list->count - 1 - place) * sizeof *list->blocks);
    list->blocks[place] = block;
}

static void list_remove(struct list *list, int place)
{
    list->count--;
    memmove(&list->blocks[place], &list->blocks[place + 1],
            (size_t)(list->count - place) * sizeof *list->blocks);
}

static struct block *list_at(const struct list *list, int place)
{
    return place >= 0 && place < list->count ? list->blocks[place] : NULL;
}

static void block_add(struct cache *cache, struct block *block)
{
    list_insert(&cache->all, find_address(&cache->all, block->at), block);
}

static void block_drop(struct cache *cache, struct block *block)
{
    list_remove(&cache->all, find_address(&cache->all, block->at));
    free(block);
}

static void add_free(struct cache *cache, struct block *block)
{
    list_insert(&cache->free, find_size(&cache->free, block->bytes, block->at), block);
}

static void drop_free(struct cache *cache, struct block *block)
{
    list_remove(&cache->free, find_size(&cache->free, block->bytes, block->at));
}

/* Blocks. */

/* Truncates the block to its first `bytes`. The rest becomes a block that is not in the free lists yet. */
static struct block *block_cut(struct cache *cache, struct block *block, size_t bytes)
{
    struct block *rest = memory_new(1, sizeof *rest);
    *rest = *block;
    rest->at += bytes;
    rest->bytes -= bytes;
    rest->seam = false;
    block->bytes = bytes;
    block_add(cache, rest);
    return rest;
}

static bool can_coalesce(const struct block *low, const struct block *high)
{
    return low && high && !low->owner && !high->owner && low->at + low->bytes == high->at && !high->seam;
}

static void block_coalesce(struct cache *cache, struct block *low, struct block *high)
{
    low->bytes += high->bytes;
    block_drop(cache, high);
}

/* Coalesces a block without an owner with its free neighbours. */
static void block_put_back(struct cache *cache, struct block *block)
{
    int place = find_address(&cache->all, block->at);
    struct block *below = list_at(&cache->all, place - 1), *above = list_at(&cache->all, place + 1);
    if (can_coalesce(block, above)) {
        drop_free(cache, above);
        block_coalesce(cache, block, above);
    }
    if (can_coalesce(below, block)) {
        drop_free(cache, below);
        block_coalesce(cache, below, block);
        block = below;
    }
    add_free(cache, block);
}

/* The best-fitting block; NULL: none fits. */
static struct block *best_fit(const struct cache *cache, size_t bytes)
{
    return list_at(&cache->free, find_size(&cache->free, bytes, 0));
}

static struct block *block_of(const struct cache *cache, const void *memory)
{
    struct block *block = list_at(&cache->all, find_address(&cache->all, (uintptr_t)memory));
    assert(block && block->at == (uintptr_t)memory && block->owner);
    return block;
}

/* Memory. */

/* Blocks may span several pieces. */
static bool has_joints(const struct cache *cache)
{
    return cache->range && cache->options.chunk > 0;
}

/* Finds where the smallest mapping gives a free block of `bytes`, counting adjacent free blocks. False: no
 * addresses are left for it. */
static bool find_gap(const struct cache *cache, size_t bytes, struct piece *gap)
{
    size_t granularity = cache->physical.granularity, below = 0;
    uintptr_t at = cache->range;
    *gap = (struct piece){0, cache->range ? SIZE_MAX : align_up(bytes, granularity)};
    for (int i = 0; cache->range && i <= cache->all.count; i++) {
        const struct block *next = list_at(&cache->all, i);
        size_t empty = (next ? next->at : cache->range + cache->options.range) - at;
        size_t above = next && !next->owner && has_joints(cache) ? next->bytes : 0;
        if (empty > 0 && below + empty + above >= bytes) {
            size_t fresh = align_up(bytes - below, granularity);
            if (fresh > empty) fresh = empty;
            if (fresh < gap->bytes) *gap = (struct piece){at, fresh};
        }
        below = above;
        if (next) at = next->at + next->bytes;
    }
    return gap->bytes < SIZE_MAX;
}

static void statistic_rise(size_t *now, size_t *peak, size_t bytes)
{
    *now += bytes;
    if (*now > *peak) *peak = *now;
}

static void add_piece(struct cache *cache, struct piece piece)
{
    int place = cache->piece_count;
    array_push(cache->pieces, cache->piece_count);
    for (; place > 0 && cache->pieces[place - 1].at > piece.at; place--)
        cache->pieces[place] = cache->pieces[place - 1];
    cache->pieces[place] = piece;
}

static void drop_piece(struct cache *cache, int place)
{
    cache->piece_count--;
    memmove(&cache->pieces[place], &cache->pieces[place + 1],
            (size_t)(cache->piece_count - place) * sizeof *cache->pieces);
}

static bool map_piece(struct cache *cache, uintptr_t at, size_t bytes)
{
    void *mapped = cache->physical.map(cache->physical.context, (void *)at, bytes);
    if (!mapped) return false;
    struct block *block = memory_new(1, sizeof *block);
    *block = (struct block){.at = (uintptr_t)mapped, .bytes = bytes, .seam = !has_joints(cache)};
    add_piece(cache, (struct piece){block->at, bytes});
    cache->statistics.maps++;
    statistic_rise(&cache->statistics.reserved, &cache->statistics.reserved_peak, bytes);
    block_add(cache, block);
    block_put_back(cache, block);
    return true;
}

/* True if there now is a free block of `bytes`. Otherwise what could be mapped stays mapped. */
static bool cache_grow(struct cache *cache, size_t bytes)
{
    struct piece gap;
    size_t limit = cache->options.limit ? cache->options.limit : SIZE_MAX;
    if (!find_gap(cache, bytes, &gap) || cache->statistics.reserved > limit ||
        gap.bytes > limit - cache->statistics.reserved)
        return false;
    while (gap.bytes > 0) {
        size_t part = gap.bytes;
        if (has_joints(cache) && part > cache->options.chunk) part = cache->options.chunk;
        if (!map_piece(cache, gap.at, part)) return false;
        gap.at += part;
        gap.bytes -= part;
    }
    return true;
}

/* The free block that contains the piece; NULL if a live block overlaps it. */
static struct block *idle_block(const struct cache *cache, const struct piece *piece)
{
    int above = find_address(&cache->all, piece->at + 1);
    struct block *block = list_at(&cache->all, above - 1);
    return !block->owner && piece->at + piece->bytes <= block->at + block->bytes ? block : NULL;
}

static void unmap_piece(struct cache *cache, const struct piece *piece, struct block *block)
{
    drop_free(cache, block);
    if (piece->at > block->at) {
        struct block *rest = block_cut(cache, block, piece->at - block->at);
        add_free(cache, block);
        block = rest;
    }
    if (block->bytes > piece->bytes) add_free(cache, block_cut(cache, block, piece->bytes));
    block_drop(cache, block);
    cache->physical.unmap(cache->physical.context, (void *)piece->at, piece->bytes);
    cache->statistics.reserved -= piece->bytes;
    cache->statistics.unmaps++;
}

static size_t cache_trim_to(struct cache *cache, size_t most)
{
    size_t before = cache->statistics.reserved;
    bool finished = false;
    for (int i = cache->piece_count - 1; i >= 0 && cache->statistics.reserved > most; i--) {
        struct block *block = idle_block(cache, &cache->pieces[i]);
        if (!block) continue;
        if (!finished && !cache->physical.synchronize(cache->physical.context)) break;
        finished = true;
        unmap_piece(cache, &cache->pieces[i], block);
        drop_piece(cache, i);
    }
    return before - cache->statistics.reserved;
}

/* A free block that is a piece of that many bytes; NULL: none. */
static struct block *idle_piece(const struct cache *cache, size_t bytes)
{
    for (int i = 0; i < cache->piece_count; i++) {
        struct block *block = cache->pieces[i].bytes == bytes ? idle_block(cache, &cache->pieces[i]) : NULL;
        if (block) return block;
    }
    return NULL;
}

/* A free block found by `find`, from the cheapest source. If the device has no memory left, free pieces
 * elsewhere are unmapped, so that they can be mapped where they are needed; if that is not enough, all of
 * them. */
static struct block *make_room(struct cache *cache, size_t bytes,
                               struct block *(*find)(const struct cache *cache, size_t bytes))
{
    struct block *block = find(cache, bytes);
    if (block) return block;
    if (!cache_grow(cache, bytes)) {
        cache->statistics.retries++;
        if (cache_trim_to(cache, 0) == 0 || !cache_grow(cache, bytes)) {
            cache->statistics.failures++;
            cache_trim_to(cache, 0);
            return NULL;
        }
    }
    return find(cache, bytes);
}

/* Public functions. */

struct cache *cache_open(const struct physical *physical, const struct cache_options *options)
{
    assert(options->alignment <= physical->granularity && options->chunk % physical->granularity == 0);
    struct cache *cache = memory_new(1, sizeof *cache);
    cache->physical = *physical;
    cache->options = *options;
    cache->options.range = align_up(options->range, physical->granularity);
    if (physical->reserve) {
        cache->range = (uintptr_t)physical->reserve(physical->context, cache->options.range);
        if (!cache->range) {
            free(cache);
            return NULL;
        }
    }
    pthread_mutex_init(&cache->lock, NULL);
    return cache;
}

void cache_close(struct cache *cache)
{
    if (!cache) return;
    const struct physical *physical = &cache->physical;
    physical->synchronize(physical->context);
    for (int i = 0; i < cache->piece_count; i++)
        physical->unmap(physical->context, (void *)cache->pieces[i].at, cache->pieces[i].bytes);
    if (cache->range) physical->unreserve(physical->context, (void *)cache->range, cache->options.range);
    for (int i = 0; i < cache->all.count; i++) free(cache->all.blocks[i]);
    pthread_mutex_destroy(&cache->lock);
    free(cache->all.blocks);
    free(cache->free.blocks);
    free(cache->pieces);
    free(cache);
}

static void *block_allocate(struct cache *cache, size_t bytes, const char *owner, bool piece)
{
    size_t unit = piece ? cache->physical.granularity : cache->options.alignment;
    size_t rounded = align_up(bytes ? bytes : 1, unit);
    if (bytes > cache->options.range) return NULL;
    struct block *block = make_room(cache, rounded, piece ? idle_piece : best_fit);
    if (!block) return NULL;
    drop_free(cache, block);
    if (block->bytes > rounded) add_free(cache, block_cut(cache, block, rounded));
    block->owner = owner;
    block->requested = bytes;
    cache->statistics.allocations++;
    statistic_rise(&cache->statistics.requested, &cache->statistics.requested_peak, bytes);
    statistic_rise(&cache->statistics.allocated, &cache->statistics.allocated_peak, rounded);
    return (void *)block->at;
}

static void *cache_take(struct cache *cache, size_t bytes, const char *owner, bool piece)
{
    assert(owner);
    pthread_mutex_lock(&cache->lock);
    void *memory = block_allocate(cache, bytes, owner, piece);
    pthread_mutex_unlock(&cache->lock);
    return memory;
}

void *cache_allocate(struct cache *cache, size_t bytes, const char *owner)
{
    return cache_take(cache, bytes, owner, false);
}

void *cache_allocate_piece(struct cache *cache, size_t bytes, const char *owner)
{
    assert(!has_joints(cache));
    return cache_take(cache, bytes, owner, true);
}

static void block_free(struct cache *cache, struct block *block)
{
    cache->statistics.frees++;
    cache->statistics.requested -= block->requested;
    cache->statistics.allocated -= block->bytes;
    block->owner = NULL;
    block->requested = 0;
    block_put_back(cache, block);
}

void cache_free(struct cache *cache, void *memory)
{
    if (!memory) return;
    pthread_mutex_lock(&cache->lock);
    block_free(cache, block_of(cache, memory));
    pthread_mutex_unlock(&cache->lock);
}

size_t cache_trim(struct cache *cache, size_t most)
{
    pthread_mutex_lock(&cache->lock);
    size_t released = cache_trim_to(cache, most);
    pthread_mutex_unlock(&cache->lock);
    return released;
}

bool cache_limit(struct cache *cache, size_t limit)
{
    pthread_mutex_lock(&cache->lock);
    cache->options.limit = limit;
    if (limit) cache_trim_to(cache, limit);
    bool kept = !limit || cache->statistics.reserved <= limit;
    pthread_mutex_unlock(&cache->lock);
    return kept;
}

static struct cache_statistics cache_count(const struct cache *cache)
{
    struct cache_statistics statistics = cache->statistics;
    size_t unused = statistics.reserved - statistics.allocated;
    if (cache->free.count > 0) statistics.largest = cache->free.blocks[cache->free.count - 1]->bytes;
    if (unused > 0) statistics.fragmentation = 1 - (double)statistics.largest / (double)unused;
    return statistics;
}

struct cache_statistics cache_statistics(struct cache *cache)
{
    pthread_mutex_lock(&cache->lock);
    struct cache_statistics statistics = cache_count(cache);
    pthread_mutex_unlock(&cache->lock);
    return statistics;
}

int cache_snapshot(struct cache *cache, struct cache_block **blocks)
{
    pthread_mutex_lock(&cache->lock);
    int count = cache->all.count;
    *blocks = memory_new((size_t)count + 1, sizeof **blocks);
    for (int i = 0; i < count; i++) {
        const struct block *block = cache->all.blocks[i];
        (*blocks)[i] = (struct cache_block){.at = block->at, .bytes = block->bytes,
                                            .requested = block->requested, .owner = block->owner};
    }
    pthread_mutex_unlock(&cache->lock);
    return count;
}

/* The table. */

struct row {
    const char *owner;
    size_t bytes;
    int blocks;
};

static int by_bytes(const void *a, const void *b)
{
    const struct row *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return strcmp(x->owner, y->owner);
}

static int by_owner(const void *a, const void *b)
{
    return strcmp(((const struct row *)a)->owner, ((const struct row *)b)->owner);
}

/* One row per owner, in `rows`; returns their number. */
static int sum_owners(const struct list *all, struct row *rows)
{
    int live = 0, count = 0;
    for (int i = 0; i < all->count; i++) {
        const struct block *block = all->blocks[i];
        if (block->owner) rows[live++] = (struct row){block->owner, block->bytes, 1};
    }
    qsort(rows, (size_t)live, sizeof *rows, by_owner);
    for (int i = 0; i < live; i++) {
        if (count > 0 && strcmp(rows[count - 1].owner, rows[i].owner) == 0) {
            rows[count - 1].bytes += rows[i].bytes;
            rows[count - 1].blocks++;
        } else {
            rows[count++] = rows[i];
        }
    }
    qsort(rows, (size_t)count, sizeof *rows, by_bytes);
    return count;
}

static void add_line(struct text *out, size_t bytes, const char *what, int blocks)
{
    char words[TEXT_BYTES];
    text_add(out, "%12s  %s", text_bytes(bytes, words), what);
    if (blocks > 1) text_add(out, " (%d blocks)", blocks);
    text_add(out, "\n");
}

void cache_table(struct cache *cache, struct text *out)
{
    pthread_mutex_lock(&cache->lock);
    struct row *rows = memory_new((size_t)cache->all.count + 1, sizeof *rows);
    int owners = sum_owners(&cache->all, rows);
    struct cache_statistics statistics = cache_count(cache);
    for (int i = 0; i < owners; i++) add_line(out, rows[i].bytes, rows[i].owner, rows[i].blocks);
    add_line(out, statistics.reserved - statistics.allocated, "free between them", cache->free.count);
    add_line(out, statistics.reserved, "reserved together", 1);
    if (cache->options.limit) add_line(out, cache->options.limit, "is the limit", 1);
    add_line(out, cache->physical.free_bytes(cache->physical.context), "free on the device", 1);
    free(rows);
    pthread_mutex_unlock(&cache->lock);
}
