/* bench_loader: images a second of the loader alone, by the clock and by the CPU time that it takes.
 *
 *   bench_loader [OPTION=VALUE]... FORMAT [PATH]
 *
 * Options: workers, batch, seconds, dtype (fp32, fp16, bf16), val (1: the evaluation's images and cuts),
 * leaves (1: the last steps are left to a device), masks (1: with a mask for each image), and of what is done
 * with images: crop, pad, flip, part (1: RandomResizedCrop), least (percent of the image that a part has at
 * least, 8), foreground (percent of the crops), resize, mean (1: normalised), rotate (degrees), blur, noise
 * (the deviation, of every image), jitter, policy (1: trivial, 2: rand, 3: three). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "data/loader/loader.h"

struct request {
    struct loader_options loader;
    double seconds;
    int val, crop, resize, masks, least, foreground, policy;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double seconds_of(struct timeval time) { return (double)time.tv_sec + 1e-6 * (double)time.tv_usec; }

static double cpu_seconds(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
}

static int dtype_named(const char *name)
{
    for (int i = 0; i < DTYPE_COUNT; i++)
        if (strcmp(dtype_table[i].name, name) == 0) return i;
    return -1;
}

static void normalise(struct augment *augment)
{
    static const double mean[3] = {0.485, 0.456, 0.406}, std[3] = {0.229, 0.224, 0.225};
    memcpy(augment->mean, mean, sizeof mean);
    memcpy(augment->std, std, sizeof std);
}

static int set(struct request *request, const char *key, const char *value)
{
    struct augment *augment = &request->loader.augment;
    const struct {
        const char *name;
        int *to;
    } numbers[] = {
        {"workers", &request->loader.workers}, {"batch", &request->loader.batch},
        {"val", &request->val},                {"crop", &request->crop},
        {"pad", &augment->pad},                {"resize", &request->resize},
        {"masks", &request->masks},            {"least", &request->least},
        {"foreground", &request->foreground},
        {"policy", &request->policy},
    };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (strcmp(key, numbers[i].name) == 0) return *numbers[i].to = atoi(value), 1;
    if (strcmp(key, "seconds") == 0) return request->seconds = atof(value), 1;
    if (strcmp(key, "flip") == 0) return augment->flip = atof(value), 1;
    if (strcmp(key, "leaves") == 0) return request->loader.device_preprocessing = atoi(value), 1;
    if (strcmp(key, "part") == 0) return augment->random_resized = atoi(value), 1;
    if (strcmp(key, "rotate") == 0) return augment->rotate = atof(value), 1;
    const struct chance always = {1, atof(value), atof(value)};
    if (strcmp(key, "blur") == 0) return augment->intensity.blur = always, 1;
    if (strcmp(key, "noise") == 0) return augment->intensity.noise = always, 1;
    if (strcmp(key, "jitter") == 0) {
        for (int i = 0; i < 3; i++) augment->jitter[i] = atof(value);
        return 1;
    }
    if (strcmp(key, "mean") == 0 && atoi(value)) return normalise(augment), 1;
    if (strcmp(key, "dtype") == 0 && dtype_named(value) >= 0)
        return request->loader.dtype = (enum dtype)dtype_named(value), 1;
    return 0;
}

static enum status measure(const struct request *request)
{
    struct loader *loader;
    struct batch *batch;
    TRY(loader_open(&request->loader, &loader));
    double start = 0, cpu = 0, wait = 0;
    int64_t images = 0;
    for (int epoch = 0; epoch == 0 || now() - start < request->seconds; epoch++) {
        enum status status = loader_start(loader, epoch, 0);
        /* The first batch is not counted: it brings memory and files in. */
        while (status == OK && (status = loader_next(loader, &batch, &wait)) == OK && batch) {
            loader_return(loader, batch);
            if (start == 0) start = now(), cpu = cpu_seconds();
            else images += batch->count;
            if (now() - start >= request->seconds) break;
        }
        if (status != OK) return loader_close(loader), status;
    }
    double wall = now() - start, used = cpu_seconds() - cpu;
    printf("%.0f images/s with %d threads; %.0f images/s a core (%.2f us of CPU an image)\n",
           (double)images / wall, request->loader.workers, (double)images / used,
           1e6 * used / (double)images);
    loader_close(loader);
    return OK;
}

int main(int count, char **words)
{
    struct request request = {
        .seconds = 3, .least = 8,
        .loader = {.training = true, .shuffle = true, .batch = 256, .workers = 1, .prefetch = 4, .dtype = F16,
                   .augment = {.std = {1, 1, 1, 1}}},
    };
    int i = 1;
    for (char *value; i < count && (value = strchr(words[i], '=')); i++) {
        *value = '\0';
        if (!set(&request, words[i], value + 1)) return fprintf(stderr, "unknown: %s\n", words[i]), 2;
    }
    const struct format *format = i < count ? format_find(words[i]) : NULL;
    if (!format) return fprintf(stderr, "bench_loader [OPTION=VALUE]... FORMAT [PATH]\n"), 2;
    struct loader_options *loader = &request.loader;
    struct dataset dataset;
    struct dataset_options options = {.path = words[i + 1], .split = request.val ? SPLIT_VAL : SPLIT_TRAIN,
                                      .h = request.crop, .c = 3,
                                      .target = request.masks ? TARGET_MASK : TARGET_CLASS,
                                      .masks = {.ignore = true}};
    if (dataset_open(format, &options, &dataset) != OK) return 3;
    loader->dataset = &dataset;
    loader->count = dataset.count;
    loader->channels = loader->augment.channels = dataset.c;
    loader->h = request.crop ? request.crop : dataset.h;
    loader->w = request.crop ? request.crop : dataset.w;
    loader->augment.random_crop = loader->augment.pad > 0 || request.crop > 0;
    loader->augment.scale[0] = request.least / 100.0, loader->augment.scale[1] = 1;
    loader->augment.policy = (enum policy)request.policy;
    loader->augment.foreground = request.foreground / 100.0;
    loader->augment.ratio[0] = 3 / 4.0, loader->augment.ratio[1] = 4 / 3.0;
    loader->training = loader->shuffle = !request.val;
    loader->classes = dataset.classes;
    loader->target = dataset.target;
    if (request.masks)
        loader->masks = (struct mask_targets){.classes = dataset.classes, .h = loader->h, .w = loader->w,
                                              .outputs = 1, .stride = {1}};
    loader->augment.resize = image_size_square(request.resize);
    loader->augment.val_resize = image_size_square(request.crop * 8 / 7);
    loader->augment.crop = loader->augment.val_crop = request.crop > 0;
    if (loader->batch > dataset.count) loader->batch = (int)dataset.count;
    enum status status = measure(&request);
    dataset_close(&dataset);
    return status;
}
