/* deferred_jpeg.h: a batch's JPEG files that a device decodes, from reading until their pixels are in device
 * memory. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decoder.h"
#include "data/image/jpeg_plain.h"

/* Device memory for the pixels of one batch. */
struct deferred_room {
    uint8_t *memory;
    size_t bytes;
};

struct deferred_jpeg;

/* `places`: positions of a batch, each of which has a file or none. */
struct deferred_jpeg *deferred_jpeg_new(const struct decoder *decoder, struct deferred_room room, int places);
void deferred_jpeg_free(struct deferred_jpeg *deferred);   /* accepts NULL */

/* Adds a file, in memory allocated by malloc, at an empty position. May be called by several threads, each
 * for its own position. */
void deferred_jpeg_put(struct deferred_jpeg *deferred, int place, uint8_t *bytes,
                       const struct jpeg_plain *plain);

/* After all files were added: assigns memory to as many as fit, in the order of positions, and returns the
 * number of pieces in which they are decoded. */
int deferred_jpeg_order(struct deferred_jpeg *deferred);

/* The positions of a piece; returns their number. */
int deferred_jpeg_places(const struct deferred_jpeg *deferred, int piece, const int **places);

/* Decodes them and frees the files; may be called by several threads, each for its own pieces. */
void deferred_jpeg_decode(struct deferred_jpeg *deferred, int piece);

/* The offset of a position's pixels in the device memory, after decoding; -1: none. */
int64_t deferred_jpeg_at(const struct deferred_jpeg *deferred, int place);

/* Resets everything for another batch. */
void deferred_jpeg_clear(struct deferred_jpeg *deferred);
