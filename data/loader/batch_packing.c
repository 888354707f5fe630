#include "data/loader/batch_packing.h"

#include <assert.h>
#include <string.h>

#include "base/align.h"
#include "data/augment/vary.h"

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

size_t batch_packing_variations(int count)
{
    return record_bytes(count);
}

/* Where images begin. */
static size_t begin_of(int count, bool varies)
{
    return record_bytes(count) + (varies ? align_up((size_t)count * sizeof(struct variation), ALIGN) : 0);
}

size_t batch_packing_bytes(int count, int h, int w, int channels, bool varies)
{
    return begin_of(count, varies) + 2 * (size_t)count * bytes_of_image(h, w, channels);
}

void batch_packing_begin(struct batch_packing *packing, const struct augment *augment, bool varies,
                         int count, int h, int w, void *block)
{
    packing->augment = augment;
    packing->count = count;
    packing->h = h;
    packing->w = w;
    packing->bytes = batch_packing_bytes(count, h, w, augment->channels, varies);
    packing->records = block;
    packing->variations = varies ? (void *)((char *)block + batch_packing_variations(count)) : NULL;
    atomic_store(&packing->used, begin_of(count, varies));
    atomic_store(&packing->spare, (size_t)count * bytes_of_image(h, w, augment->channels));
    atomic_store(&packing->shared, 0);
    atomic_store(&packing->varied, false);
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

static size_t needed_bytes(const struct batch_packing *packing, struct box needs)
{
    return bytes_of_image(needs.h, needs.w, packing->augment->channels);
}

/* Room for the bytes of an image; false: there is none. */
static bool take_room(struct batch_packing *packing, struct box needs)
{
    size_t bytes = needed_bytes(packing, needs);
    size_t right = bytes_of_image(packing->h, packing->w, packing->augment->channels);
    return bytes <= right || take_spare(packing, bytes - right);
}

/* A device's shared memory is small. */
static bool device_resizes(const struct batch_packing *packing, const struct cut *cut,
                           const struct image_record *record)
{
    return !is_resized_reflection(record) && !is_bicubic(cut, record) &&
           image_record_shared_bytes(record, packing->augment->channels) <= TILE_SHARED_MAX;
}

/* True if a device does it; what is turned needs a picture of all that is seen then. */
static bool device_varies(const struct batch_packing *packing, const struct cut *cut,
                          struct variation *variation)
{
    int channels = packing->augment->channels;
    struct box seen = augment_record(cut, 0, 0).window;
    bool fits = (size_t)seen.h * (size_t)seen.w * (size_t)channels <=
                augment_picture_bytes(packing->augment, packing->h, packing->w);
    return fits && vary_leave(variation, packing->w * channels);
}

/* The host's part of an image's preprocessing. */
struct host_part {
    bool resizes, varies;
};

static struct host_part host_part_of(struct batch_packing *packing, const struct cut *cut,
                                     struct variation *variation)
{
    struct image_record record = augment_record(cut, 0, 0);
    bool varies = !device_varies(packing, cut, variation);
    if (!varies && device_resizes(packing, cut, &record) && take_room(packing, augment_needs(cut)))
        return (struct host_part){0};
    return (struct host_part){true, varies || !take_room(packing, record.window)};
}

static void put_record(struct batch_packing *packing, int place, const struct image_record *record,
                       const struct variation *variation)
{
    raise_to(&packing->shared, (size_t)image_record_shared_bytes(record, packing->augment->channels));
    packing->records[place] = *record;
    if (!packing->variations) return;
    packing->variations[place] = *variation;
    if (variation->turned || variation->count > 0) atomic_store(&packing->varied, true);
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

static const struct variation unvaried;

bool batch_packing_put(struct batch_packing *packing, int place, const struct augmenting *how,
                       const struct cut *cut, const struct image *image, struct reason *reason)
{
    struct augment_part part;
    struct variation variation;
    augment_draw(how->augment, how->random, cut, &variation);
    struct host_part host = host_part_of(packing, cut, &variation);
    if (!augment_leave(how, host.varies ? &variation : NULL, host.resizes, cut, image, &part, reason))
        return false;
    part.record.source = SOURCE_SENT;
    part.record.at = copy_part(packing, &part);
    part.record.stride = (int64_t)part.w * image->c;
    put_record(packing, place, &part.record, host.varies ? &unvaried : &variation);
    return true;
}

/* An image that is, or will be, complete on the device. */
static bool put_on_device(struct batch_packing *packing, int place, const struct cut *cut,
                          struct kept_image image, enum image_source where, struct random *random)
{
    struct image_record record = augment_record(cut, 0, 0);
    struct variation variation;
    augment_draw(packing->augment, random, cut, &variation);
    if (!device_resizes(packing, cut, &record) || !device_varies(packing, cut, &variation)) return false;
    record.source = where;
    record.at = image.at;
    record.stride = (int64_t)image.w * packing->augment->channels;
    record.erased = augment_erased(packing->augment, packing->h, packing->w, random);
    put_record(packing, place, &record, &variation);
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
    const struct image_record blank = {.blank = true};
    put_record(packing, place, &blank, &unvaried);
}
