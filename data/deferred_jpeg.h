/* undecoded.h: the files of a batch that a device decodes, from when they are read until their pixels are
 * there. */
#ifndef DATA_DEFERRED_JPEG_H
#define DATA_DEFERRED_JPEG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/decoder.h"
#include "data/jpeg_plain.h"

/* Device memory for the pixels of one batch. */
struct undecoded_room {
    uint8_t *memory;
    size_t bytes;
};

struct undecoded;

/* `places`: of a batch, which each have a file or none. */
struct undecoded *undecoded_new(const struct decoder *decoder, struct undecoded_room room, int places);
void undecoded_free(struct undecoded *undecoded);          /* accepts NULL */

/* Puts a file, in memory that free() gives back, at an empty place. From any thread, each for its own
 * place. */
void undecoded_put(struct undecoded *undecoded, int place, uint8_t *bytes, const struct jpeg_plain *plain);

/* All files are there: gives room to as many as it has, in the order of places, and says in how many pieces
 * they are decoded. */
int undecoded_order(struct undecoded *undecoded);

/* The places of a piece; how many. */
int undecoded_places(const struct undecoded *undecoded, int piece, const int **places);

/* Decodes them and forgets the files; from any thread, each with its own pieces. */
void undecoded_decode(struct undecoded *undecoded, int piece);

/* Where the pixels of a place lie, from the room's beginning, after that; -1: they are not there. */
int64_t undecoded_at(const struct undecoded *undecoded, int place);

/* Forgets everything, for another batch. */
void undecoded_clear(struct undecoded *undecoded);

#endif
