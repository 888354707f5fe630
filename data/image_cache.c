#include "data/image_cache.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* So many images tell how large all of them will be. */
#define SAMPLE 64

struct kept {
    struct image image;        /* its pixels are those below */
    int label;
    uint8_t pixels[];
};

struct image_cache {
    struct image_cache_options options;
    atomic_size_t bytes;       /* taken, or about to be */
    atomic_llong images;       /* kept */
    atomic_bool closed;        /* nothing more will be kept */
    _Atomic(struct kept *) kept[];     /* by index */
};

struct image_cache *image_cache_open(const struct image_cache_options *options)
{
    assert(options->dataset->count > 0);
    size_t bytes = (size_t)options->dataset->count * sizeof(_Atomic(struct kept *));
    struct image_cache *cache = bytes < options->limit ? memory_try(1, sizeof *cache + bytes) : NULL;
    if (!cache) return NULL;
    cache->options = *options;
    atomic_init(&cache->bytes, bytes);
    return cache;
}

void image_cache_close(struct image_cache *cache)
{
    if (!cache || cache->options.dataset->held) return;
    for (int64_t i = 0; i < cache->options.dataset->count; i++) free(atomic_load(&cache->kept[i]));
    free(cache);
}

size_t image_cache_bytes(const struct image_cache *cache)
{
    return atomic_load(&cache->bytes);
}

static size_t pixel_bytes(const struct image *image)
{
    return (size_t)image->h * (size_t)image->w * (size_t)image->c;
}

/* Where all should fit or none be kept: whether the first ones say that they will not. */
static bool too_large(const struct image_cache *cache, long long images, size_t bytes)
{
    if (!cache->options.all || images != SAMPLE) return false;
    return (double)bytes / (double)images * (double)cache->options.count > (double)cache->options.limit;
}

/* Sets room aside; false: there is not enough. */
static bool take_room(struct image_cache *cache, size_t bytes)
{
    if (atomic_fetch_add(&cache->bytes, bytes) + bytes <= cache->options.limit) return true;
    atomic_fetch_sub(&cache->bytes, bytes);
    return false;
}

static struct kept *copy_of(const struct image *image, int label)
{
    size_t bytes = pixel_bytes(image);
    struct kept *kept = malloc(sizeof *kept + bytes);
    if (!kept) return NULL;
    kept->image = *image;
    kept->image.pixels = memcpy(kept->pixels, image->pixels, bytes);
    kept->image.capacity = 0;
    kept->label = label;
    return kept;
}

static void image_cache_keep(struct image_cache *cache, int64_t index, const struct image *image, int label)
{
    size_t bytes = sizeof(struct kept) + pixel_bytes(image);
    if (!take_room(cache, bytes)) return;
    struct kept *none = NULL, *kept = copy_of(image, label);
    if (!kept) {
        atomic_store(&cache->closed, true);
        return;
    }
    /* Another thread may have been faster, where an image stands in for one that cannot be used. */
    if (!atomic_compare_exchange_strong(&cache->kept[index], &none, kept)) {
        free(kept);
        atomic_fetch_sub(&cache->bytes, bytes);
        return;
    }
    long long images = atomic_fetch_add(&cache->images, 1) + 1;
    if (too_large(cache, images, image_cache_bytes(cache))) atomic_store(&cache->closed, true);
}

/* Has an image decoded whole, if there is room for it. */
struct whole_choice {
    const struct image_cache *cache;
    const struct image_choice *otherwise;
    bool whole;
};

static bool choose_whole(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct whole_choice *choice = context;
    const struct image_cache *cache = choice->cache;
    struct image image = {.h = h, .w = w, .c = cache->options.dataset->c};
    size_t bytes = sizeof(struct kept) + pixel_bytes(&image);
    choice->whole = image_cache_bytes(cache) + bytes <= cache->options.limit;
    *part = (struct box){.h = h, .w = w};
    return choice->whole || !choice->otherwise ||
           choice->otherwise->choose(choice->otherwise->context, h, w, part, reason);
}

static bool read_and_keep(struct image_cache *cache, int64_t index, const struct image_choice *choice,
                          struct image *image, int *label, struct reason *reason)
{
    const struct dataset *dataset = cache->options.dataset;
    struct whole_choice whole = {.cache = cache, .otherwise = choice};
    const struct image_choice asked = {.choose = choose_whole, .context = &whole};
    if (dataset->format->read(dataset, index, &asked, image, label, reason)) {
        if (image->h == image->full_h && image->w == image->full_w)
            image_cache_keep(cache, index, image, *label);
        return true;
    }
    /* The part that is wanted may be good all the same. */
    return whole.whole && dataset->format->read(dataset, index, choice, image, label, reason);
}

const struct image *image_cache_read(struct image_cache *cache, int64_t index,
                                     const struct image_choice *choice, struct image *image, int *label,
                                     struct reason *reason)
{
    const struct dataset *dataset = cache->options.dataset;
    const struct kept *kept = atomic_load(&cache->kept[index]);
    if (kept) {
        *label = kept->label;
        return &kept->image;
    }
    bool full = atomic_load(&cache->closed);
    bool good = full ? dataset->format->read(dataset, index, choice, image, label, reason)
                     : read_and_keep(cache, index, choice, image, label, reason);
    return good ? image : NULL;
}
