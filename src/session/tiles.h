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
};

struct tiles tiles_of(const struct session *session);

/* Device memory: of the band and the windows; of each of the TILES_SEGMENTS for results; of all. */
#define TILES_SEGMENTS 2
int64_t tiles_band_bytes(const struct tiles *tiles);
int64_t tiles_segment_bytes(const struct tiles *tiles);
int64_t tiles_bytes(const struct tiles *tiles);

/* Bytes that a training run needs for its evaluations besides arena and store; 0: it has none in tiles. */
int64_t tiles_run_bytes(const struct session *session);
