/* tiles.h: the tiles in which images of any size are evaluated (data.task=segment), and the device memory
 * that this takes besides the program of a batch of tiles: none of it depends on the images. */
#pragma once

#include "session/session.h"

struct tiles {
    int h, w, classes;           /* of a tile and of its logits */
    int batch;                   /* tiles in a batch */
    double overlap;
    int strip;                   /* the most columns of an image that are blended at once */
    int64_t pixels, rows;        /* of the result: the most that come back from the device at once */
    bool probabilities;          /* come back, too */
    int64_t records, bytes;      /* of a batch that a GPU gets as bytes, behind its tables; 0: none */
    int64_t table;               /* bytes: what the numbers of bytes are */
};

struct tiles tiles_of(const struct session *session);

/* Device memory: of band and windows; of each of the TILES_SEGMENTS for results, behind these; of table,
 * records and bytes, behind those; of all. */
#define TILES_SEGMENTS 2
int64_t tiles_band_bytes(const struct tiles *tiles);
int64_t tiles_segment_bytes(const struct tiles *tiles);
int64_t tiles_sent_bytes(const struct tiles *tiles);
int64_t tiles_bytes(const struct tiles *tiles);

/* True if a training run evaluates in tiles. All of that lies in the arena of its steps, behind the tensors
 * of an evaluation: tiles_behind_bytes; but batches larger than those of steps: tiles_batches_bytes. */
bool tiles_run(const struct session *session);
int64_t tiles_behind_bytes(const struct session *session);
int64_t tiles_batches_bytes(const struct session *session);
