#include "session/tiles.h"

#define STRIP_COLUMNS 4096               /* a band has so many, but ... */
#define STRIP_TILES_MIN 4                /* ... at least so many tiles, and ... */
#define STRIP_TILES_MAX 64               /* ... at most so many: fewer than 2 % are computed twice */
#define SEGMENT_BYTES (INT64_C(8) << 20) /* of results, and of true classes, at most */
#define SEGMENT_ROWS 65536
#define LIMIT_SHARE 8                    /* of a memory limit, all of this gets one part, if it can */
#define ALONE_PIXELS (1 << 21)           /* of a batch that no training step determines, on a GPU; */
#define ALONE_PIXELS_CPU (1 << 19)       /* on the CPU larger ones are not faster */

static int clamp(int64_t value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

/* Bytes of a pixel of the result that comes back. */
static int64_t pixel_bytes(const struct tiles *tiles)
{
    return 2 + (tiles->probabilities ? tiles->classes * (int64_t)sizeof(float) : 0);
}

/* Tiles with as many pixels as a training step has. */
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

/* Room for what a batch completes. */
static void set_segment(struct tiles *tiles)
{
    int64_t row = (int64_t)tiles->h * tiles->strip, batch = (int64_t)tiles->h * tiles->w * tiles->batch;
    tiles->pixels = clamp(row > batch ? row : batch, 1, (int)(SEGMENT_BYTES / pixel_bytes(tiles)));
    tiles->rows = clamp(tiles->pixels / 16, 1, SEGMENT_ROWS);
}

static int64_t results_bytes(const struct tiles *tiles)
{
    return (int64_t)tiles->batch * tiles->h * tiles->w * tiles->classes * (int64_t)sizeof(float);
}

/* Results depend on neither strips nor batches. */
struct tiles tiles_of(const struct session *session)
{
    const struct images *val = &session->data.val;
    int least = STRIP_TILES_MIN * val->w;
    struct tiles tiles = {
        .h = val->h, .w = val->w, .classes = session->data.classes, .batch = batch_of(session),
        .overlap = session->settings->augment.val_overlap,
        .strip = clamp(STRIP_COLUMNS, least, STRIP_TILES_MAX * val->w),
        .probabilities = session->keeps_probabilities,
    };
    int64_t share = session_limit(session) / LIMIT_SHARE;
    set_segment(&tiles);
    while (share > 0 && tiles_bytes(&tiles) + results_bytes(&tiles) > share &&
           (tiles.strip > least || tiles.batch > 1)) {
        if (tiles.strip > least) tiles.strip = clamp(tiles.strip / 2, least, tiles.strip);
        else tiles.batch /= 2;
        set_segment(&tiles);
    }
    return tiles;
}

int64_t tiles_band_bytes(const struct tiles *tiles)
{
    return ((int64_t)tiles->h * tiles->strip * tiles->classes + tiles->h + tiles->w) * (int64_t)sizeof(float);
}

int64_t tiles_segment_bytes(const struct tiles *tiles)
{
    return tiles->pixels * pixel_bytes(tiles) + tiles->rows * (int64_t)sizeof(double);
}

int64_t tiles_bytes(const struct tiles *tiles)
{
    return tiles_band_bytes(tiles) + TILES_SEGMENTS * tiles_segment_bytes(tiles);
}

/* Plans open no validation data. */
static bool evaluates(const struct session *session)
{
    const struct settings *settings = session->settings;
    return session->data.val.dataset || data_holds_out(settings) || settings->data.val ||
           !settings->data.train;
}

/* Batches of evaluations lie in those of training, if they are no larger. */
int64_t tiles_run_bytes(const struct session *session)
{
    const struct images *train = &session->data.train;
    if (session->data.target != TARGET_MASK || !evaluates(session)) return 0;
    const struct tiles tiles = tiles_of(session);
    int batches = session_device_kind(session) == DEVICE_CUDA ? 2 : 1;
    int64_t number = session->data.channels * (int64_t)dtype_bytes(session->hyper.precision->storage);
    int64_t own = (int64_t)tiles.batch * tiles.h * tiles.w;
    int64_t bytes = tiles_bytes(&tiles) + results_bytes(&tiles);
    int64_t lent = (int64_t)hyperparameters_share(&session->hyper) * train->h * train->w;
    return own > lent ? bytes + batches * own * number : bytes;
}
