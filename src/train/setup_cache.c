#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/host.h"
#include "base/log.h"
#include "train/setup.h"

/* The share of the host's memory that is taken unasked. */
#define SHARE_UNASKED 4

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

enum status setup_check_cache(const struct setup *setup)
{
    if (setup->settings->loader.cache != CACHE_DEVICE || setup_device_kind(setup) != DEVICE_CUDA) return OK;
    return setup_refuse(setup, "loader", "cache",
                        "'device' is not available on CUDA yet; 'host' keeps decoded images in host memory");
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
        if (setup->opened[i].decoded) open_cache(setup, (enum split)i, limit, images);
    if (setup->train.dataset) setup->train.cache = setup->caches[setup->train.dataset - setup->opened];
    if (setup->val.dataset) setup->val.cache = setup->caches[setup->val.dataset - setup->opened];
}
