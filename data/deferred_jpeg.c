#include "data/deferred_jpeg.h"

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

struct undecoded {
    const struct decoder *decoder;
    struct undecoded_room room;
    int place_count;
    struct file *files;        /* [place_count] */
    int count, pieces;         /* places with a file; set by undecoded_order */
    int *places;               /* these, in order */
    struct decoder_image *images;      /* [place_count], in that order */
};

struct undecoded *undecoded_new(const struct decoder *decoder, struct undecoded_room room, int places)
{
    struct undecoded *undecoded = memory_new(1, sizeof *undecoded);
    *undecoded = (struct undecoded){.decoder = decoder, .room = room, .place_count = places};
    undecoded->files = memory_new((size_t)places, sizeof *undecoded->files);
    undecoded->places = memory_new((size_t)places, sizeof *undecoded->places);
    undecoded->images = memory_new((size_t)places, sizeof *undecoded->images);
    return undecoded;
}

void undecoded_clear(struct undecoded *undecoded)
{
    for (int i = 0; i < undecoded->place_count; i++) {
        free(undecoded->files[i].bytes);
        undecoded->files[i].bytes = NULL;
    }
    undecoded->count = undecoded->pieces = 0;
}

void undecoded_free(struct undecoded *undecoded)
{
    if (!undecoded) return;
    undecoded_clear(undecoded);
    free(undecoded->files);
    free(undecoded->places);
    free(undecoded->images);
    free(undecoded);
}

void undecoded_put(struct undecoded *undecoded, int place, uint8_t *bytes, const struct jpeg_plain *plain)
{
    undecoded->files[place] = (struct file){.bytes = bytes, .plain = *plain, .at = -1};
}

static size_t surface_bytes(const struct jpeg_plain *plain)
{
    return align_up((size_t)plain->h * (size_t)plain->w * 3, ROOM_ALIGN);
}

int undecoded_order(struct undecoded *undecoded)
{
    size_t used = 0;
    undecoded->count = 0;
    for (int i = 0; i < undecoded->place_count; i++) {
        struct file *file = &undecoded->files[i];
        if (!file->bytes) continue;
        size_t bytes = surface_bytes(&file->plain);
        if (bytes <= undecoded->room.bytes - used) {
            file->at = (int64_t)used;
            used += bytes;
        }
        undecoded->places[undecoded->count++] = i;
    }
    int most = undecoded->decoder->images;
    undecoded->pieces = (undecoded->count + most - 1) / most;
    return undecoded->pieces;
}

/* Pieces are as equal as can be. */
static int piece_begin(const struct undecoded *undecoded, int piece)
{
    return (int)((int64_t)undecoded->count * piece / undecoded->pieces);
}

int undecoded_places(const struct undecoded *undecoded, int piece, const int **places)
{
    int begin = piece_begin(undecoded, piece);
    *places = undecoded->places + begin;
    return piece_begin(undecoded, piece + 1) - begin;
}

void undecoded_decode(struct undecoded *undecoded, int piece)
{
    const int *places;
    int count = undecoded_places(undecoded, piece, &places), asked = 0;
    struct decoder_image *images = undecoded->images + (places - undecoded->places);
    for (int i = 0; i < count; i++) {
        const struct file *file = &undecoded->files[places[i]];
        if (file->at < 0) continue;
        images[asked++] = (struct decoder_image){
            .bytes = file->bytes,
            .count = file->plain.count,
            .h = file->plain.h,
            .w = file->plain.w,
            .to = undecoded->room.memory + file->at,
        };
    }
    if (asked > 0) undecoded->decoder->decode(undecoded->decoder->context, images, asked);
    for (int i = 0, k = 0; i < count; i++) {
        struct file *file = &undecoded->files[places[i]];
        if (file->at >= 0 && !images[k++].good) file->at = -1;
        free(file->bytes);
        file->bytes = NULL;
    }
}

int64_t undecoded_at(const struct undecoded *undecoded, int place)
{
    return undecoded->files[place].at;
}
