#include "data/loader/image_cache.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"
#include "base/memory.h"
#include "data/dataset/masks.h"

/* Number of images from which the size of all is estimated. */
#define SAMPLE 64

/* In the mapping, at multiples of its alignment. */
struct kept {
    _Alignas(16) int32_t h, w, c, label, deep;
    float low, high;
    int32_t unused;
    uint8_t pixels[];
};

/* The header of the mapping, which other processes may share: images follow it and are found by their
 * offsets. */
struct books {
    atomic_size_t bytes;       /* taken */
    atomic_llong images;       /* kept */
    atomic_bool closed;        /* nothing more is cached */
    atomic_size_t at[];        /* by index; 0: not kept */
};

struct image_cache {
    struct image_cache_options options;
    struct books *books;
};

/* Only used pages take memory. */
struct image_cache *image_cache_open(const struct image_cache_options *options)
{
    assert(options->dataset->count > 0);
    size_t books_bytes = sizeof(struct books) + (size_t)options->dataset->count * sizeof(atomic_size_t);
    size_t bytes = align_up(books_bytes, _Alignof(struct kept));
    bool shared = options->shared > 0;
    int flags = MAP_NORESERVE | (shared ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS);
    if (bytes >= options->limit) return NULL;
    struct books *books = mmap(NULL, options->limit, PROT_READ | PROT_WRITE, flags,
                               shared ? options->shared : -1, 0);
    if (books == MAP_FAILED) return NULL;
    struct image_cache *cache = memory_new(1, sizeof *cache);
    *cache = (struct image_cache){*options, books};
    size_t none = 0;
    atomic_compare_exchange_strong(&books->bytes, &none, bytes);
    return cache;
}

void image_cache_close(struct image_cache *cache)
{
    if (!cache || cache->options.dataset->held) return;
    munmap(cache->books, cache->options.limit);
    free(cache);
}

size_t image_cache_bytes(const struct image_cache *cache)
{
    return atomic_load(&cache->books->bytes);
}

/* True if `all` images are to be kept, and the first ones show that they will not fit. */
static bool too_large(const struct image_cache *cache, long long images, size_t bytes)
{
    if (!cache->options.all || images != SAMPLE) return false;
    return (double)bytes / (double)images * (double)cache->options.count > (double)cache->options.limit;
}

static size_t kept_bytes(const struct image *image)
{
    return align_up(sizeof(struct kept) + image_bytes(image), _Alignof(struct kept));
}

/* Reserves memory and returns its offset; 0: there is not enough. */
static size_t take_room(struct image_cache *cache, size_t bytes)
{
    size_t at = image_cache_bytes(cache);
    do {
        if (bytes > cache->options.limit - at) return 0;
    } while (!atomic_compare_exchange_weak(&cache->books->bytes, &at, at + bytes));
    return at;
}

static struct kept *kept_at(const struct image_cache *cache, size_t at)
{
    return (struct kept *)((char *)cache->books + at);
}

static void image_cache_keep(struct image_cache *cache, int64_t index, const struct image *image, int label)
{
    struct books *books = cache->books;
    size_t at = take_room(cache, kept_bytes(image)), none = 0;
    if (at == 0) return;
    struct kept *kept = kept_at(cache, at);
    *kept = (struct kept){image->h, image->w, image->c, label, image->deep, image->low, image->high, 0};
    memcpy(kept->pixels, image->pixels, image_bytes(image));
    /* Another thread may have been faster, if an image replaces an unusable one. */
    if (!atomic_compare_exchange_strong(&books->at[index], &none, at)) return;
    long long images = atomic_fetch_add(&books->images, 1) + 1;
    if (too_large(cache, images, image_cache_bytes(cache))) atomic_store(&books->closed, true);
}

static bool read_uncached(const struct image_cache *cache, int64_t index, const struct image_choice *choice,
                          struct image *image, int *label, struct reason *reason)
{
    const struct dataset *dataset = cache->options.dataset;
    bool wrong = false;
    if (!cache->options.masks) return dataset->format->read(dataset, index, choice, image, label, reason);
    bool good = masks_read(dataset, index, image, &wrong, reason);
    *label = wrong;
    return good;
}

/* Decodes a whole image, if there is room for it. */
struct whole_choice {
    const struct image_cache *cache;
    const struct image_choice *otherwise;
    const struct image *image;     /* that is being decoded */
    bool whole;
};

static bool choose_whole(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct whole_choice *choice = context;
    const struct image_cache *cache = choice->cache;
    struct image image = {.h = h, .w = w, .c = cache->options.dataset->c, .deep = choice->image->deep};
    choice->whole = image_cache_bytes(cache) + kept_bytes(&image) <= cache->options.limit;
    *part = (struct box){.h = h, .w = w};
    return choice->whole || !choice->otherwise ||
           choice->otherwise->choose(choice->otherwise->context, h, w, part, reason);
}

static bool read_and_keep(struct image_cache *cache, int64_t index, const struct image_choice *choice,
                          struct image *image, int *label, struct reason *reason)
{
    struct whole_choice whole = {.cache = cache, .otherwise = choice, .image = image};
    const struct image_choice asked = {.choose = choose_whole, .context = &whole};
    if (read_uncached(cache, index, &asked, image, label, reason)) {
        if (image->h == image->full_h && image->w == image->full_w)
            image_cache_keep(cache, index, image, *label);
        return true;
    }
    /* The requested part may still be valid. */
    return whole.whole && read_uncached(cache, index, choice, image, label, reason);
}

const struct image *image_cache_read(struct image_cache *cache, int64_t index,
                                     const struct image_choice *choice, struct image image[2], int *label,
                                     struct reason *reason)
{
    size_t at = atomic_load(&cache->books->at[index]);
    if (at > 0) {
        struct kept *kept = kept_at(cache, at);
        image[1] = (struct image){.h = kept->h, .w = kept->w, .c = kept->c, .full_h = kept->h,
                                  .full_w = kept->w, .deep = kept->deep, .low = kept->low,
                                  .high = kept->high, .pixels = kept->pixels};
        *label = kept->label;
        return &image[1];
    }
    bool full = atomic_load(&cache->books->closed);
    bool good = full ? read_uncached(cache, index, choice, image, label, reason)
                     : read_and_keep(cache, index, choice, image, label, reason);
    return good ? image : NULL;
}
