#include "data/batch_packing.h"

#include <assert.h>
#include <string.h>

#include "base/align.h"

/* Images' bytes begin at multiples of this. */
#define ALIGN 16

static size_t image_bytes(int h, int w, int channels)
{
    return align_up((size_t)h * (size_t)w * (size_t)channels, ALIGN);
}

static size_t record_bytes(int count)
{
    return align_up((size_t)count * sizeof(struct finish), ALIGN);
}

size_t sending_bytes(int count, int h, int w, int channels)
{
    return record_bytes(count) + 2 * (size_t)count * image_bytes(h, w, channels);
}

void sending_begin(struct sending *sending, const struct augment *augment, int count, int h, int w,
                   void *block)
{
    sending->augment = augment;
    sending->count = count;
    sending->h = h;
    sending->w = w;
    sending->bytes = sending_bytes(count, h, w, augment->channels);
    sending->records = block;
    atomic_store(&sending->used, record_bytes(count));
    atomic_store(&sending->spare, (size_t)count * image_bytes(h, w, augment->channels));
    atomic_store(&sending->shared, 0);
}

static void raise_to(atomic_size_t *most, size_t value)
{
    size_t now = atomic_load(most);
    while (now < value && !atomic_compare_exchange_weak(most, &now, value)) {}
}

static bool take_spare(struct sending *sending, size_t bytes)
{
    size_t spare = atomic_load(&sending->spare);
    while (spare >= bytes)
        if (atomic_compare_exchange_weak(&sending->spare, &spare, spare - bytes)) return true;
    return false;
}

/* Bytes that are to be varied are resized before; threads of a device share little memory. */
static bool must_resize(struct sending *sending, const struct cut *cut, const struct random *random)
{
    int channels = sending->augment->channels;
    struct finish finish = augment_rest(cut, 0, 0);
    struct box needs = augment_needs(cut);
    size_t bytes = image_bytes(needs.h, needs.w, channels),
           right = image_bytes(sending->h, sending->w, channels);
    if (random && augment_is_varied(sending->augment)) return true;
    if (finish_shared_bytes(&finish, channels) > FINISH_SHARED_MOST) return true;
    return bytes > right && !take_spare(sending, bytes - right);
}

static void put_record(struct sending *sending, int place, const struct finish *finish)
{
    raise_to(&sending->shared, (size_t)finish_shared_bytes(finish, sending->augment->channels));
    sending->records[place] = *finish;
}

/* Copies the rows of a part; where to, in bytes from the block's beginning. */
static int64_t copy_part(struct sending *sending, const struct augment_part *part)
{
    size_t row = (size_t)part->w * (size_t)sending->augment->channels;
    size_t bytes = align_up((size_t)part->h * row, ALIGN);
    size_t at = atomic_fetch_add(&sending->used, bytes);
    assert(at + bytes <= sending->bytes);
    uint8_t *to = (uint8_t *)sending->records + at;
    for (int y = 0; y < part->h; y++) memcpy(to + (size_t)y * row, part->pixels + y * part->stride, row);
    return (int64_t)at;
}

bool sending_put(struct sending *sending, int place, const struct augmenting *how, const struct cut *cut,
                 const struct image *image, struct reason *reason)
{
    struct augment_part part;
    bool resize = must_resize(sending, cut, how->random);
    if (!augment_leave(how, cut, image, resize, &part, reason)) return false;
    part.finish.place = FINISH_SENT;
    part.finish.at = copy_part(sending, &part);
    part.finish.stride = (int64_t)part.w * image->c;
    put_record(sending, place, &part.finish);
    return true;
}

/* One that is there whole, or will be. */
static bool put_whole(struct sending *sending, int place, const struct cut *cut, struct kept_image image,
                      enum finish_place where, struct random *random)
{
    int channels = sending->augment->channels;
    struct finish finish = augment_rest(cut, 0, 0);
    if (finish_shared_bytes(&finish, channels) > FINISH_SHARED_MOST) return false;
    finish.place = where;
    finish.at = image.at;
    finish.stride = (int64_t)image.w * channels;
    finish.erased = augment_erased(sending->augment, sending->h, sending->w, random);
    put_record(sending, place, &finish);
    return true;
}

bool sending_put_kept(struct sending *sending, int place, const struct cut *cut,
                      const struct kept_image *kept, struct random *random)
{
    return put_whole(sending, place, cut, *kept, FINISH_KEPT, random);
}

bool sending_put_decoded(struct sending *sending, int place, const struct cut *cut, int w,
                         struct random *random)
{
    return put_whole(sending, place, cut, (struct kept_image){.w = w}, FINISH_DECODED, random);
}

void sending_decoded_at(struct sending *sending, int place, int64_t at)
{
    sending->records[place].at = at;
}

void sending_put_nothing(struct sending *sending, int place)
{
    sending->records[place] = (struct finish){.blank = true};
}
