#include "data/loader/deferred_jpeg.h"

#include <stdlib.h>

#include "base/align.h"
#include "base/memory.h"

/* Images begin at multiples of this. */
#define ROOM_ALIGN 256

struct file {
    uint8_t *bytes;            /* NULL: there is none */
    struct jpeg_plain plain;
    int64_t at;
};

struct deferred_jpeg {
    const struct decoder *decoder;
    struct deferred_room room;
    int place_count;
    struct file *files;        /* [place_count] */
    int count, pieces;         /* places with a file; set by deferred_jpeg_order */
    int *places;               /* these, in order */
    struct decoder_image *images;      /* [place_count], in that order */
};

struct deferred_jpeg *deferred_jpeg_new(const struct decoder *decoder, struct deferred_room room, int places)
{
    struct deferred_jpeg *deferred = memory_new(1, sizeof *deferred);
    *deferred = (struct deferred_jpeg){.decoder = decoder, .room = room, .place_count = places};
    deferred->files = memory_new((size_t)places, sizeof *deferred->files);
    deferred->places = memory_new((size_t)places, sizeof *deferred->places);
    deferred->images = memory_new((size_t)places, sizeof *deferred->images);
    return deferred;
}

void deferred_jpeg_clear(struct deferred_jpeg *deferred)
{
    for (int i = 0; i < deferred->place_count; i++) {
        free(deferred->files[i].bytes);
        deferred->files[i].bytes = NULL;
    }
    deferred->count = deferred->pieces = 0;
}

void deferred_jpeg_free(struct deferred_jpeg *deferred)
{
    if (!deferred) return;
    deferred_jpeg_clear(deferred);
    free(deferred->files);
    free(deferred->places);
    free(deferred->images);
    free(deferred);
}

void deferred_jpeg_put(struct deferred_jpeg *deferred, int place, uint8_t *bytes,
                       const struct jpeg_plain *plain)
{
    deferred->files[place] = (struct file){.bytes = bytes, .plain = *plain, .at = -1};
}

static size_t surface_bytes(const struct jpeg_plain *plain)
{
    return align_up((size_t)plain->h * (size_t)plain->w * 3, ROOM_ALIGN);
}

int deferred_jpeg_order(struct deferred_jpeg *deferred)
{
    size_t used = 0;
    deferred->count = 0;
    for (int i = 0; i < deferred->place_count; i++) {
        struct file *file = &deferred->files[i];
        if (!file->bytes) continue;
        size_t bytes = surface_bytes(&file->plain);
        if (bytes <= deferred->room.bytes - used) {
            file->at = (int64_t)used;
            used += bytes;
        }
        deferred->places[deferred->count++] = i;
    }
    int most = deferred->decoder->images;
    deferred->pieces = (deferred->count + most - 1) / most;
    return deferred->pieces;
}

/* Pieces are as equal as can be. */
static int piece_begin(const struct deferred_jpeg *deferred, int piece)
{
    return (int)((int64_t)deferred->count * piece / deferred->pieces);
}

int deferred_jpeg_places(const struct deferred_jpeg *deferred, int piece, const int **places)
{
    int begin = piece_begin(deferred, piece);
    *places = deferred->places + begin;
    return piece_begin(deferred, piece + 1) - begin;
}

void deferred_jpeg_decode(struct deferred_jpeg *deferred, int piece)
{
    const int *places;
    int count = deferred_jpeg_places(deferred, piece, &places), asked = 0;
    struct decoder_image *images = deferred->images + (places - deferred->places);
    for (int i = 0; i < count; i++) {
        const struct file *file = &deferred->files[places[i]];
        if (file->at < 0) continue;
        images[asked++] = (struct decoder_image){
            .bytes = file->bytes,
            .count = file->plain.count,
            .h = file->plain.h,
            .w = file->plain.w,
            .to = deferred->room.memory + file->at,
        };
    }
    if (asked > 0) deferred->decoder->decode(deferred->decoder->context, images, asked);
    for (int i = 0, k = 0; i < count; i++) {
        struct file *file = &deferred->files[places[i]];
        if (file->at >= 0 && !images[k++].good) file->at = -1;
        free(file->bytes);
        file->bytes = NULL;
    }
}

int64_t deferred_jpeg_at(const struct deferred_jpeg *deferred, int place)
{
    return deferred->files[place].at;
}
