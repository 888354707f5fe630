#include "data/loader/batch_packing.h"

#include <assert.h>
#include <string.h>

#include "base/align.h"

/* Images' bytes begin at multiples of this. */
#define ALIGN 16

static size_t bytes_of_image(int h, int w, int channels)
{
    return align_up((size_t)h * (size_t)w * (size_t)channels, ALIGN);
}

static size_t record_bytes(int count)
{
    return align_up((size_t)count * sizeof(struct image_record), ALIGN);
}

size_t batch_packing_bytes(int count, int h, int w, int channels)
{
    return record_bytes(count) + 2 * (size_t)count * bytes_of_image(h, w, channels);
}

void batch_packing_begin(struct batch_packing *packing, const struct augment *augment, int count, int h,
                         int w, void *block)
{
    packing->augment = augment;
    packing->count = count;
    packing->h = h;
    packing->w = w;
    packing->bytes = batch_packing_bytes(count, h, w, augment->channels);
    packing->records = block;
    atomic_store(&packing->used, record_bytes(count));
    atomic_store(&packing->spare, (size_t)count * bytes_of_image(h, w, augment->channels));
    atomic_store(&packing->shared, 0);
}

static void raise_to(atomic_size_t *most, size_t value)
{
    size_t now = atomic_load(most);
    while (now < value && !atomic_compare_exchange_weak(most, &now, value)) {}
}

static bool take_spare(struct batch_packing *packing, size_t bytes)
{
    size_t spare = atomic_load(&packing->spare);
    while (spare >= bytes)
        if (atomic_compare_exchange_weak(&packing->spare, &spare, spare - bytes)) return true;
    return false;
}

/* A device reflects the image as it was sent, not as it resizes it. */
static bool is_resized_reflection(const struct image_record *record)
{
    return record->reflect && image_record_resizes(record);
}

/* Devices resize bilinearly only. */
static bool is_bicubic(const struct cut *cut, const struct image_record *record)
{
    return cut->interpolation != RESIZE_BILINEAR && image_record_resizes(record);
}

/* Images to be augmented are resized before that; a device's shared memory is small. */
static bool must_resize(struct batch_packing *packing, const struct cut *cut, const struct random *random)
{
    int channels = packing->augment->channels;
    struct image_record record = augment_record(cut, 0, 0);
    struct box needs = augment_needs(cut);
    size_t bytes = bytes_of_image(needs.h, needs.w, channels),
           right = bytes_of_image(packing->h, packing->w, channels);
    if (random && augment_is_varied(packing->augment)) return true;
    if (is_resized_reflection(&record) || is_bicubic(cut, &record)) return true;
    if (image_record_shared_bytes(&record, channels) > TILE_SHARED_MAX) return true;
    return bytes > right && !take_spare(packing, bytes - right);
}

static void put_record(struct batch_packing *packing, int place, const struct image_record *record)
{
    raise_to(&packing->shared, (size_t)image_record_shared_bytes(record, packing->augment->channels));
    packing->records[place] = *record;
}

/* Copies the rows of a part; returns the offset in the block. */
static int64_t copy_part(struct batch_packing *packing, const struct augment_part *part)
{
    size_t row = (size_t)part->w * (size_t)packing->augment->channels;
    size_t bytes = align_up((size_t)part->h * row, ALIGN);
    size_t at = atomic_fetch_add(&packing->used, bytes);
    assert(at + bytes <= packing->bytes);
    uint8_t *to = (uint8_t *)packing->records + at;
    for (int y = 0; y < part->h; y++) memcpy(to + (size_t)y * row, part->pixels + y * part->stride, row);
    return (int64_t)at;
}

bool batch_packing_put(struct batch_packing *packing, int place, const struct augmenting *how,
                       const struct cut *cut, const struct image *image, struct reason *reason)
{
    struct augment_part part;
    bool resize = must_resize(packing, cut, how->random);
    if (!augment_leave(how, cut, image, resize, &part, reason)) return false;
    part.record.source = SOURCE_SENT;
    part.record.at = copy_part(packing, &part);
    part.record.stride = (int64_t)part.w * image->c;
    put_record(packing, place, &part.record);
    return true;
}

/* An image that is, or will be, complete on the device. */
static bool put_on_device(struct batch_packing *packing, int place, const struct cut *cut,
                          struct kept_image image, enum image_source where, struct random *random)
{
    int channels = packing->augment->channels;
    struct image_record record = augment_record(cut, 0, 0);
    if (image_record_shared_bytes(&record, channels) > TILE_SHARED_MAX || is_resized_reflection(&record))
        return false;
    if (cut->vflip || cut_is_turned(cut) || is_bicubic(cut, &record)) return false;
    record.source = where;
    record.at = image.at;
    record.stride = (int64_t)image.w * channels;
    record.erased = augment_erased(packing->augment, packing->h, packing->w, random);
    put_record(packing, place, &record);
    return true;
}

bool batch_packing_put_kept(struct batch_packing *packing, int place, const struct cut *cut,
                            const struct kept_image *kept, struct random *random)
{
    return put_on_device(packing, place, cut, *kept, SOURCE_KEPT, random);
}

bool batch_packing_put_decoded(struct batch_packing *packing, int place, const struct cut *cut, int w,
                               struct random *random)
{
    return put_on_device(packing, place, cut, (struct kept_image){.w = w}, SOURCE_DECODED, random);
}

void batch_packing_decoded_at(struct batch_packing *packing, int place, int64_t at)
{
    packing->records[place].at = at;
}

void batch_packing_put_nothing(struct batch_packing *packing, int place)
{
    packing->records[place] = (struct image_record){.blank = true};
}
