#include "input/gpu_preprocessing.h"

#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/watch.h"
#include "kernels/images/images.h"

/* Cached images are copied to the device in pieces of about this many bytes. */
#define PIECE ((size_t)16 << 20)

struct gpu_preprocessing {
    struct device *device;
    const struct data *data;
    const struct images_code *code;
    enum dtype dtype;
    int channels;
    uint8_t *sent, *kept;              /* device memory: a batch's bytes; images of all data sets */
    uint8_t *decoded;                  /* device memory: where the room of images decoded there begins */
    size_t sent_bytes, kept_bytes, pictures_bytes;
    uint8_t *pictures;                 /* device memory for images that are varied; NULL: they are not */
    float *normal;                     /* device memory: intensity_quantiles; NULL: there is no noise */
    void *table;                       /* device memory: augment_table's bits */
    struct kept_image *index[2];       /* of each data set opened, [count]; NULL: nothing of it is kept */
};

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* A batch for training or for evaluation, which never run at the same time. */
static size_t sent_bytes(const struct data *data, int batch)
{
    bool varies = augment_is_varied(&data->augment);
    return larger(batch_packing_bytes(batch, data->train.h, data->train.w, data->channels, varies),
                  batch_packing_bytes(batch, data->val.h, data->val.w, data->channels, false));
}

static size_t picture_bytes(const struct data *data)
{
    return align_up(augment_picture_bytes(&data->augment, data->train.h, data->train.w), 16);
}

static size_t pictures_bytes(const struct data *data, int batch)
{
    return augment_is_varied(&data->augment) ? images_pictures(batch) * picture_bytes(data) : 0;
}

static size_t normal_bytes(const struct data *data)
{
    return data->augment.intensity.noise.p > 0 ? INTENSITY_QUANTILES * sizeof(float) : 0;
}

bool gpu_preprocessing_can(enum device_kind kind, const struct data *data)
{
    return kind == DEVICE_CUDA && data->channels <= GPU_CHANNELS_MAX && !data->deep;
}

int64_t gpu_preprocessing_bytes(const struct data *data, int batch)
{
    return (int64_t)(sent_bytes(data, batch) + augment_table_bytes(data->channels) +
                     pictures_bytes(data, batch) + normal_bytes(data));
}

int64_t gpu_preprocessing_bytes_kept(const struct gpu_preprocessing *gpu)
{
    return (int64_t)gpu->kept_bytes;
}

/* The copying of images that the device caches. */
struct moving {
    struct gpu_preprocessing *gpu;
    uint8_t *piece;                    /* pinned */
    size_t room, used;                 /* of it */
    size_t moved;                      /* bytes copied so far */
    struct image image;
};

static enum status take_piece(struct moving *moving)
{
    bool pinned;
    struct device *device = moving->gpu->device;
    moving->piece = device_host_allocate(device, moving->room, "images to be cached", &pinned);
    return moving->piece ? OK : fail(NO_DEVICE, "not enough host memory for batches");
}

/* The next one is filled while this one is being copied. */
static enum status move_piece(struct moving *moving)
{
    struct gpu_preprocessing *gpu = moving->gpu;
    struct device *device = gpu->device;
    TRY(device->backend->transfers.upload(device, 0, gpu->kept + moving->moved, moving->piece, moving->used));
    moving->moved += moving->used;
    moving->used = 0;
    device_host_release_after(device, moving->piece, moving->room, 0);
    moving->piece = NULL;
    return OK;
}

/* An unreadable image is left to the loader, which reports it. */
static enum status move_image(struct moving *moving, const struct dataset *dataset, int64_t i,
                              struct kept_image *kept)
{
    struct image *image = &moving->image;
    struct reason reason;
    int label;
    size_t bytes = (size_t)dataset->h * (size_t)dataset->w * (size_t)dataset->c;
    if (kept->h > 0 || !dataset->format->read(dataset, i, NULL, image, &label, &reason)) return OK;
    if (image->h != dataset->h || image->w != dataset->w || image->c != dataset->c) return OK;
    if (moving->used + bytes > moving->room) TRY(move_piece(moving));
    if (!moving->piece) TRY(take_piece(moving));
    memcpy(moving->piece + moving->used, image->pixels, bytes);
    *kept = (struct kept_image){(int64_t)(moving->moved + moving->used), image->h, image->w, label};
    moving->used += bytes;
    return OK;
}

static enum status move_images(struct moving *moving, const struct images *images)
{
    if (!images->dataset) return OK;
    struct kept_image **index = &moving->gpu->index[images->dataset - moving->gpu->data->opened];
    if (!*index) *index = memory_new((size_t)images->dataset->count, sizeof **index);
    for (int64_t i = 0; i < images->count; i++) {
        int64_t at = images_index(images, i);
        TRY(move_image(moving, images->dataset, at, &(*index)[at]));
    }
    return OK;
}

static enum status keep_images(struct gpu_preprocessing *gpu)
{
    struct device *device = gpu->device;
    struct moving moving = {.gpu = gpu};
    moving.room = gpu->kept_bytes < PIECE ? gpu->kept_bytes : PIECE;
    struct watch *watch = watch_begin(WATCH_SECONDS, "copying images to the device");
    enum status status = move_images(&moving, &gpu->data->train);
    if (status == OK) status = move_images(&moving, &gpu->data->val);
    if (status == OK && moving.piece) status = move_piece(&moving);
    if (moving.piece) device_host_release(device, moving.piece, moving.room);
    if (status == OK) status = device->backend->synchronize(device);
    watch_end(watch);
    image_free(&moving.image);
    char bytes[TEXT_BYTES];
    log_detail("%s of images are cached on the device", text_bytes(moving.moved, bytes));
    return status;
}

static enum status gpu_take(struct device *device, size_t bytes, const char *what, void *memory)
{
    void *taken = device_allocate(device, bytes, what);
    char needs[TEXT_BYTES];
    if (!taken) return fail(NO_DEVICE, "the device does not have %s for %s", text_bytes(bytes, needs), what);
    *(void **)memory = taken;
    return OK;
}

static enum status upload_table(struct gpu_preprocessing *gpu)
{
    struct device *device = gpu->device;
    struct augment_table table = augment_table_make(&gpu->data->augment, gpu->dtype);
    enum status status = device->backend->transfers.upload(device, 0, gpu->table, table.bits,
                                                 augment_table_bytes(gpu->channels));
    if (status == OK) status = device->backend->synchronize(device);
    augment_table_free(&table);
    return status;
}

static enum status upload_normal(struct gpu_preprocessing *gpu)
{
    struct device *device = gpu->device;
    float *normal = intensity_quantiles();
    enum status status = device->backend->transfers.upload(device, 0, gpu->normal, normal,
                                                           normal_bytes(gpu->data));
    if (status == OK) status = device->backend->synchronize(device);
    free(normal);
    return status;
}

static enum status gpu_make(struct gpu_preprocessing *gpu)
{
    struct device *device = gpu->device;
    TRY(gpu_take(device, augment_table_bytes(gpu->channels), "the preprocessing table", &gpu->table));
    TRY(upload_table(gpu));
    TRY(gpu_take(device, gpu->sent_bytes, "image transfers", &gpu->sent));
    if (gpu->pictures_bytes > 0)
        TRY(gpu_take(device, gpu->pictures_bytes, "pictures to be varied", &gpu->pictures));
    if (normal_bytes(gpu->data) > 0) {
        TRY(gpu_take(device, normal_bytes(gpu->data), "noise", &gpu->normal));
        TRY(upload_normal(gpu));
    }
    if (gpu->kept_bytes == 0) return OK;
    TRY(gpu_take(device, gpu->kept_bytes, "cached images", &gpu->kept));
    return keep_images(gpu);
}

enum status gpu_preprocessing_open(const struct gpu_preprocessing_options *options,
                                   struct gpu_preprocessing **gpu)
{
    struct gpu_preprocessing *made = memory_new(1, sizeof *made);
    *made = (struct gpu_preprocessing){
        .device = options->device,
        .data = options->data,
        .code = ON_CUDA(images_cuda),
        .dtype = options->dtype,
        .channels = options->data->channels,
        .sent_bytes = sent_bytes(options->data, options->batch),
        .kept_bytes = options->kept_bytes,
        .pictures_bytes = pictures_bytes(options->data, options->batch),
        .decoded = options->decoded,
    };
    enum status status = gpu_make(made);
    if (status != OK) gpu_preprocessing_close(made);
    else *gpu = made;
    return status;
}

void gpu_preprocessing_close(struct gpu_preprocessing *gpu)
{
    if (!gpu) return;
    if (gpu->sent) device_release(gpu->device, gpu->sent, gpu->sent_bytes);
    if (gpu->pictures) device_release(gpu->device, gpu->pictures, gpu->pictures_bytes);
    if (gpu->normal) device_release(gpu->device, gpu->normal, normal_bytes(gpu->data));
    if (gpu->kept) device_release(gpu->device, gpu->kept, gpu->kept_bytes);
    if (gpu->table) device_release(gpu->device, gpu->table, augment_table_bytes(gpu->channels));
    for (int i = 0; i < 2; i++) free(gpu->index[i]);
    free(gpu);
}

const struct kept_image *gpu_preprocessing_kept(const struct gpu_preprocessing *gpu,
                                                const struct dataset *dataset)
{
    return gpu ? gpu->index[dataset - gpu->data->opened] : NULL;
}

/* The stream keeps batches apart: the next one's bytes come when this one's were read. */
static enum status make_images(void *context, const void *images, int stream, void *to)
{
    const struct gpu_preprocessing *gpu = context;
    const struct batch *batch = images;
    const struct device_preprocessing *rest = batch->device_preprocessing;
    struct device *device = gpu->device;
    const struct device_backend *backend = device->backend;
    const struct images_job job = {
        .images = (const struct image_record *)gpu->sent,
        .sources = {
            [SOURCE_SENT] = gpu->sent,
            [SOURCE_KEPT] = gpu->kept,
            [SOURCE_DECODED] = gpu->decoded,
        },
        .table = gpu->table,
        .dtype = gpu->dtype,
        .count = rest->count,
        .h = rest->h,
        .w = rest->w,
        .c = gpu->channels,
        .shared = rest->shared,
        .variations = rest->varied ? (void *)(gpu->sent + batch_packing_variations(rest->count)) : NULL,
        .pictures = gpu->pictures,
        .picture = picture_bytes(gpu->data),
        .normal = gpu->normal,
        .mix = rest->mixed ? &rest->mix : NULL,
        .out = to,
        .device = device,
        .stream = backend->stream(device, stream),
    };
    TRY(backend->transfers.upload(device, stream, gpu->sent, batch->images, rest->bytes));
    return gpu->code->preprocess(&job);
}

struct exec_batch gpu_preprocessing_batch(struct gpu_preprocessing *gpu, const struct batch *batch)
{
    struct exec_batch given = {.images = batch->images, .labels = batch_targets(batch)};
    if (!batch->device_preprocessing) return given;
    given.images = batch;
    given.make = make_images;
    given.maker = gpu;
    return given;
}
