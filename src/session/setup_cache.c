#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "session/gpu_preprocessing.h"

/* The share of the host's memory that is taken unasked; of a device's so many bytes at most, or a share of
 * memory.limit. */
#define SHARE_UNASKED 4
#define DEVICE_UNASKED ((int64_t)1 << 30)
#define DEVICE_SHARE_UNASKED 16

static size_t limit_of(const struct settings *settings)
{
    size_t available, total;
    if (settings->loader.cache_limit > 0) return (size_t)settings->loader.cache_limit;
    host_memory(&available, &total);
    return available / SHARE_UNASKED;
}

/* The images of a data set that are asked for in training or evaluation, however it is divided. */
static int64_t images_of(const struct setup *setup, const struct dataset *dataset)
{
    return (setup->train.dataset == dataset ? setup->train.count : 0) +
           (setup->val.dataset == dataset ? setup->val.count : 0);
}

/* Each data set has its share of the limit, by its number of images. */
static void open_cache(struct setup *setup, enum split split, size_t limit, int64_t images)
{
    const struct dataset *dataset = &setup->opened[split];
    int64_t count = images_of(setup, dataset);
    if (count == 0) return;
    const struct image_cache_options options = {
        .dataset = dataset,
        .limit = (size_t)((double)limit * (double)count / (double)images),
        .all = setup->settings->loader.cache == CACHE_AUTO,
        .count = count,
    };
    setup->caches[split] = image_cache_open(&options);
    char bytes[TEXT_BYTES];
    log_detail("up to %s of decoded %s images are kept in host memory%s", text_bytes(options.limit, bytes),
               split == SPLIT_TRAIN ? "training" : "validation", options.all ? ", if all of them fit" : "");
}

/* What all images take that are asked for. -1: that is not known, because they are of many sizes. */
static int64_t bytes_of_images(const struct setup *setup)
{
    const struct images *const parts[] = {&setup->train, &setup->val};
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
static const char *device_refuses(const struct setup *setup)
{
    int64_t bytes = bytes_of_images(setup), limit = setup->settings->loader.cache_limit;
    if (!gpu_preprocessing_wanted(setup))
        return "a GPU keeps images of 1 to 4 channels only; 'host' keeps decoded images in host memory";
    if (augment_is_varied(&setup->augment))
        return "a GPU does not do augment.jitter and augment.auto_augment; "
               "'host' keeps images in host memory";
    if (bytes < 0) return "a GPU keeps images of one size only; 'host' keeps decoded images in host memory";
    if (limit > 0 && bytes > limit) return "loader.cache_limit is less than all images take on a GPU";
    return NULL;
}

enum status setup_check_cache(const struct setup *setup)
{
    if (setup->settings->loader.cache != CACHE_DEVICE || setup_device_kind(setup) != DEVICE_CUDA) return OK;
    const char *why = device_refuses(setup);
    return why ? setup_refuse(setup, "loader", "cache", "%s", why) : OK;
}

int64_t setup_device_cache(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    bool unasked = settings->loader.cache == CACHE_AUTO;
    if (setup_device_kind(setup) != DEVICE_CUDA || (settings->loader.cache != CACHE_DEVICE && !unasked))
        return 0;
    if (device_refuses(setup)) return 0;
    int64_t bytes = bytes_of_images(setup), most = settings->memory.limit / DEVICE_SHARE_UNASKED;
    if (most == 0 || most > DEVICE_UNASKED) most = DEVICE_UNASKED;
    return unasked && settings->loader.cache_limit == 0 && bytes > most ? 0 : bytes;
}

size_t setup_cache_limit(const struct setup *setup)
{
    return limit_of(setup->settings);
}

/* The CPU's memory is the host's. What lies in memory as it is, is not kept twice. */
void setup_open_caches(struct setup *setup)
{
    int64_t images = 0;
    if (setup->settings->loader.cache == CACHE_NONE) return;
    for (int i = 0; i < 2; i++)
        if (setup->opened[i].decoded) images += images_of(setup, &setup->opened[i]);
    size_t limit = images > 0 ? limit_of(setup->settings) : 0;
    for (int i = 0; i < 2; i++)
        if (setup->opened[i].decoded && !(setup->decoding && &setup->opened[i] == setup->train.dataset))
            open_cache(setup, (enum split)i, limit, images);
    if (setup->train.dataset) setup->train.cache = setup->caches[setup->train.dataset - setup->opened];
    if (setup->val.dataset) setup->val.cache = setup->caches[setup->val.dataset - setup->opened];
}
