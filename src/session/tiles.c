#include "session/tiles.h"

#include "base/align.h"
#include "input/gpu_preprocessing.h"

#define STRIP_COLUMNS 4096               /* a band has so many, but ... */
#define STRIP_TILES_MIN 4                /* ... at least so many tiles, and ... */
#define STRIP_TILES_MAX 64               /* ... at most so many: fewer than 2 % are computed twice */
#define SEGMENT_BYTES (INT64_C(8) << 20) /* of results, and of true classes, at most */
#define SEGMENT_ROWS 65536
#define LIMIT_SHARE 8                    /* of a memory limit, band and results get one part, if they can */
#define PIXELS (1 << 21)                 /* of a batch, which keep a GPU busy; */
#define PIXELS_CPU (1 << 19)             /* on the CPU larger ones are not faster */
#define ALIGNMENT 256

static int clamp(int64_t value, int least, int most)
{
    return value < least ? least : value > most ? most : (int)value;
}

/* Bytes of a pixel of the result that comes back. */
static int64_t pixel_bytes(const struct tiles *tiles)
{
    return 2 + (tiles->probabilities ? tiles->classes * (int64_t)sizeof(float) : 0);
}

/* Tiles with as many pixels as a training step has, or as keep the device busy, if these are fewer. */
static int batch_of(const struct session *session)
{
    const struct images *train = &session->data.train, *val = &session->data.val;
    int64_t tile = (int64_t)val->h * val->w, share = 64;
    int64_t pixels = session_device_kind(session) == DEVICE_CPU ? PIXELS_CPU : PIXELS;
    if (session->tile_batch > 0) return session->tile_batch;
    if (train->dataset) {
        share = hyperparameters_share(&session->hyper);
        if (share * train->h * train->w < pixels) pixels = share * train->h * train->w;
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

static void set_sent(const struct session *session, struct tiles *tiles)
{
    size_t records = (size_t)tiles->batch * sizeof(struct image_record);
    if (!gpu_preprocessing_can(session_device_kind(session), &session->data)) return;
    tiles->records = (int64_t)align_up(records, ALIGNMENT);
    tiles->bytes = (int64_t)tiles->batch * tiles->h * tiles->w * session->data.channels;
    tiles->table = (int64_t)align_up(augment_table_bytes(session->data.channels), ALIGNMENT);
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
    set_sent(session, &tiles);
    while (share > 0 && tiles_bytes(&tiles) > share && tiles.strip > least) {
        tiles.strip = clamp(tiles.strip / 2, least, tiles.strip);
        set_segment(&tiles);
    }
    return tiles;
}

int64_t tiles_band_bytes(const struct tiles *tiles)
{
    int64_t numbers = (int64_t)tiles->h * tiles->strip * tiles->classes + tiles->h + tiles->w;
    return (int64_t)align_up((size_t)numbers * sizeof(float), ALIGNMENT);
}

int64_t tiles_segment_bytes(const struct tiles *tiles)
{
    int64_t bytes = tiles->pixels * pixel_bytes(tiles) + tiles->rows * (int64_t)sizeof(double);
    return (int64_t)align_up((size_t)bytes, ALIGNMENT);
}

int64_t tiles_sent_bytes(const struct tiles *tiles)
{
    return (int64_t)align_up((size_t)(tiles->table + tiles->records + tiles->bytes), ALIGNMENT);
}

int64_t tiles_bytes(const struct tiles *tiles)
{
    return tiles_band_bytes(tiles) + TILES_SEGMENTS * tiles_segment_bytes(tiles) + tiles_sent_bytes(tiles);
}

/* Plans open no validation data. */
bool tiles_run(const struct session *session)
{
    const struct settings *settings = session->settings;
    bool evaluates = session->data.val.dataset || data_holds_out(settings) || settings->data.val ||
                     !settings->data.train;
    return session->data.target == TARGET_MASK && evaluates;
}

int64_t tiles_behind_bytes(const struct session *session)
{
    const struct tiles tiles = tiles_of(session);
    return 2 * ALIGNMENT + results_bytes(&tiles) + tiles_bytes(&tiles);
}

int64_t tiles_batches_bytes(const struct session *session)
{
    const struct images *train = &session->data.train;
    if (!tiles_run(session)) return 0;
    const struct tiles tiles = tiles_of(session);
    int batches = session_device_kind(session) == DEVICE_CUDA ? 2 : 1;
    int64_t number = session->data.channels * (int64_t)dtype_bytes(session->hyper.precision->storage);
    int64_t own = (int64_t)tiles.batch * tiles.h * tiles.w;
    int64_t lent = (int64_t)hyperparameters_share(&session->hyper) * train->h * train->w;
    return own > lent ? batches * own * number : 0;
}
