#include "input/caching.h"

#include <stdio.h>
#include <unistd.h>

#include "base/host.h"
#include "base/log.h"
#include "base/text.h"
#include "comm/host_file.h"
#include "data/augment/gpu_preprocessing.h"

/* The default share of host memory; and of device memory a maximum in bytes, or a share of memory.limit. */
#define SHARE_UNASKED 4
#define DEVICE_UNASKED ((int64_t)1 << 30)
#define DEVICE_SHARE_UNASKED 16

size_t caching_host_limit(int64_t cache_limit)
{
    size_t available, total;
    if (cache_limit > 0) return (size_t)cache_limit;
    host_memory(&available, &total);
    return available / SHARE_UNASKED;
}

/* The images of a data set that are asked for in training or evaluation, however it is divided. */
static int64_t images_of(const struct data *data, const struct dataset *dataset)
{
    return (data->train.dataset == dataset ? data->train.count : 0) +
           (data->val.dataset == dataset ? data->val.count : 0);
}

/* `ranks` of this host keep images in the file. */
static struct image_cache *open_cache(const struct caching_options *caching,
                                      const struct image_cache_options *options, int ranks)
{
    bool train = options->dataset == &caching->data->opened[SPLIT_TRAIN];
    char bytes[TEXT_BYTES], shared[48] = "";
    if (ranks > 1) snprintf(shared, sizeof shared, " for %d ranks together", ranks);
    log_detail("up to %s of decoded %s %s are cached in host memory%s%s",
               text_bytes(options->limit, bytes), train ? "training" : "validation",
               options->masks ? "masks" : "images", shared,
               options->all ? ", if all of them fit" : "");
    return image_cache_open(options);
}

/* One file for all ranks of the host; if that is not possible, each rank has its part of the limit. */
static enum status open_shared(const struct caching_options *caching, struct image_cache_options *options,
                               bool wanted, struct image_cache **cache)
{
    struct comm *comm = caching->comm;
    int file = -1, ranks = comm ? comm->local_count : 1;
    int64_t limit = (int64_t)options->limit;
    if (comm) TRY(host_file_open(comm, &limit, &file));
    options->shared = file > 0 ? file : 0;
    options->limit = (size_t)(file > 0 ? limit : limit / ranks);
    if (wanted) *cache = open_cache(caching, options, file > 0 ? ranks : 1);
    if (file >= 0) close(file);
    return OK;
}

/* Bytes of all requested images; -1: not known, because their sizes differ. */
static int64_t bytes_of_images(const struct data *data)
{
    const struct images *const parts[] = {&data->train, &data->val};
    int64_t bytes = 0;
    for (int i = 0; i < 2; i++) {
        const struct dataset *dataset = parts[i]->dataset;
        if (!dataset) continue;
        if (dataset->h == 0) return -1;
        bytes += parts[i]->count * dataset->h * dataset->w * dataset->c;
    }
    return bytes;
}

/* Why images cannot be kept on a device; NULL: they can. */
static const char *device_refuses(const struct caching_options *caching)
{
    int64_t bytes = bytes_of_images(caching->data), limit = caching->cache_limit;
    if (caching->data->channels > GPU_CHANNELS_MAX)
        return "a GPU caches images of 1 to 4 channels only; use 'host'";
    if (caching->data->deep) return "images of more than 8 bits a sample are not cached on a GPU; use 'host'";
    if (bytes < 0) return "a GPU caches images of one size only; use 'host'";
    if (limit > 0 && bytes > limit) return "loader.cache_limit is less than all images need on a GPU";
    return NULL;
}

const char *caching_refusal(const struct caching_options *caching)
{
    if (caching->cache != CACHE_DEVICE || caching->kind != DEVICE_CUDA) return NULL;
    return device_refuses(caching);
}

int64_t caching_device_bytes(const struct caching_options *caching)
{
    bool unasked = caching->cache == CACHE_AUTO;
    if (caching->kind != DEVICE_CUDA || (caching->cache != CACHE_DEVICE && !unasked)) return 0;
    if (device_refuses(caching)) return 0;
    int64_t bytes = bytes_of_images(caching->data), most = caching->memory_limit / DEVICE_SHARE_UNASKED;
    if (most == 0 || most > DEVICE_UNASKED) most = DEVICE_UNASKED;
    return unasked && caching->cache_limit == 0 && bytes > most ? 0 : bytes;
}

/* A mask has a byte for each pixel, beside those of its image, which are left the rest of the limit. */
static enum status open_masks(const struct caching_options *caching, struct image_cache_options *images,
                              struct image_cache **cache)
{
    struct image_cache_options masks = *images;
    masks.masks = true;
    masks.limit = images->limit / ((size_t)images->dataset->c + 1);
    images->limit -= masks.limit;
    return open_shared(caching, &masks, true, cache);
}

static void take_caches(const struct data *data, struct images *images)
{
    if (!images->dataset) return;
    images->cache = data->caches[images->dataset - data->opened];
    images->mask_cache = data->mask_caches[images->dataset - data->opened];
}

/* The CPU's memory is the host's. Data sets that are in memory are not cached again; each of the others has
 * its share of the limit, by its number of images. */
enum status caching_open(const struct caching_options *caching, bool decoding, struct data *data)
{
    int64_t images = 0;
    if (caching->cache == CACHE_NONE) return OK;
    for (int i = 0; i < 2; i++)
        if (data->opened[i].decoded) images += images_of(data, &data->opened[i]);
    size_t limit = images > 0 ? caching_host_limit(caching->cache_limit) : 0;
    for (int i = 0; i < 2; i++) {
        const struct dataset *dataset = &data->opened[i];
        int64_t count = dataset->decoded ? images_of(data, dataset) : 0;
        if (count == 0) continue;
        struct image_cache_options options = {
            .dataset = dataset, .all = caching->cache == CACHE_AUTO, .count = count,
            .limit = (size_t)((double)limit * (double)count / (double)images),
        };
        if (dataset->masks) TRY(open_masks(caching, &options, &data->mask_caches[i]));
        TRY(open_shared(caching, &options, !(decoding && dataset == data->train.dataset), &data->caches[i]));
    }
    take_caches(data, &data->train);
    take_caches(data, &data->val);
    return OK;
}
