/* deferred_jpeg.h: a batch's JPEG files that a device decodes, from reading until their pixels are in device
 * memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decoder.h"
#include "data/jpeg_plain.h"

/* Device memory for the pixels of one batch. */
struct deferred_room {
    uint8_t *memory;
    size_t bytes;
};

struct deferred_jpeg;

/* `places`: of a batch, which each have a file or none. */
struct deferred_jpeg *deferred_jpeg_new(const struct decoder *decoder, struct deferred_room room, int places);
void deferred_jpeg_free(struct deferred_jpeg *deferred);   /* accepts NULL */

/* Puts a file, in memory that free() gives back, at an empty place. From any thread, each for its own
 * place. */
void deferred_jpeg_put(struct deferred_jpeg *deferred, int place, uint8_t *bytes,
                       const struct jpeg_plain *plain);

/* All files are there: gives room to as many as it has, in the order of places, and says in how many pieces
 * they are decoded. */
int deferred_jpeg_order(struct deferred_jpeg *deferred);

/* The places of a piece; how many. */
int deferred_jpeg_places(const struct deferred_jpeg *deferred, int piece, const int **places);

/* Decodes them and forgets the files; from any thread, each with its own pieces. */
void deferred_jpeg_decode(struct deferred_jpeg *deferred, int piece);

/* Where the pixels of a place lie, from the room's beginning, after that; -1: they are not there. */
int64_t deferred_jpeg_at(const struct deferred_jpeg *deferred, int place);

/* Forgets everything, for another batch. */
void deferred_jpeg_clear(struct deferred_jpeg *deferred);
