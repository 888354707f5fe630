#include "session/tiles.h"

#define STRIP_COLUMNS 4096               /* a band has at least so many, and ... */
#define STRIP_TILES 4                    /* ... at least so many tiles */
#define SEGMENT_BYTES (INT64_C(8) << 20) /* of results, and of true classes */
#define SEGMENT_ROWS 65536
#define ALONE_PIXELS (1 << 21)           /* of a batch that no training step determines, on a GPU; */
#define ALONE_PIXELS_CPU (1 << 19)       /* on the CPU larger ones are not faster */

/* As many pixels as a training step has. */
static int batch_of(const struct session *session)
{
    const struct images *train = &session->data.train, *val = &session->data.val;
    int64_t tile = (int64_t)val->h * val->w, pixels = ALONE_PIXELS, share = 64;
    if (session->tile_batch > 0) return session->tile_batch;
    if (session_device_kind(session) == DEVICE_CPU) pixels = ALONE_PIXELS_CPU;
    if (train->dataset) {
        share = hyperparameters_share(&session->hyper);
        pixels = share * train->h * train->w;
    }
    int64_t tiles = pixels / tile < share ? pixels / tile : share;
    return tiles > 1 ? (int)tiles : 1;
}

struct tiles tiles_of(const struct session *session)
{
    const struct images *val = &session->data.val;
    struct tiles tiles = {
        .h = val->h, .w = val->w, .classes = session->data.classes, .batch = batch_of(session),
        .overlap = 0.5,
        .strip = STRIP_TILES * val->w > STRIP_COLUMNS ? STRIP_TILES * val->w : STRIP_COLUMNS,
        .rows = SEGMENT_ROWS, .probabilities = session->keeps_probabilities,
    };
    int64_t pixel = 2 + (tiles.probabilities ? tiles.classes * (int64_t)sizeof(float) : 0);
    tiles.pixels = SEGMENT_BYTES / pixel;
    return tiles;
}

int64_t tiles_band_bytes(const struct tiles *tiles)
{
    return ((int64_t)tiles->h * tiles->strip * tiles->classes + tiles->h + tiles->w) * (int64_t)sizeof(float);
}

int64_t tiles_segment_bytes(const struct tiles *tiles)
{
    int64_t pixel = 2 + (tiles->probabilities ? tiles->classes * (int64_t)sizeof(float) : 0);
    return tiles->pixels * pixel + tiles->rows * (int64_t)sizeof(double);
}

int64_t tiles_bytes(const struct tiles *tiles)
{
    return tiles_band_bytes(tiles) + TILES_SEGMENTS * tiles_segment_bytes(tiles);
}

/* Batches of evaluations lie in those of training, if they are no larger. */
int64_t tiles_run_bytes(const struct session *session)
{
    const struct images *train = &session->data.train, *val = &session->data.val;
    if (session->data.target != TARGET_MASK || !val->dataset) return 0;
    const struct tiles tiles = tiles_of(session);
    int batches = session_device_kind(session) == DEVICE_CUDA ? 2 : 1;
    int64_t number = session->data.channels * (int64_t)dtype_bytes(session->hyper.precision->storage);
    int64_t own = (int64_t)tiles.batch * tiles.h * tiles.w;
    int64_t lent = (int64_t)hyperparameters_share(&session->hyper) * train->h * train->w;
    int64_t bytes = tiles_bytes(&tiles) + own * tiles.classes * (int64_t)sizeof(float);
    return own > lent ? bytes + batches * own * number : bytes;
}
