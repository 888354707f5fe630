#include "explain/tiling.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "data/augment/augment_deep.h"
#include "data/dataset/image_list.h"
#include "kernels/images/blend.h"
#include "kernels/images/images.h"
#include "kernels/op.h"
#include "session/session_loader.h"

/* A tile of a batch. */
struct tiling_tile {
    struct whole_image *image;
    int strip, columns;          /* of the image: the part whose columns are being blended */
    int y, x;
    bool mirrored;
    int first_row, end_row;      /* of the image: rows that are complete with this tile; none if equal */
};

/* The tile that comes next. */
struct tiling_walk {
    struct whole_image *image;   /* NULL: none yet */
    int down, across;            /* tiles of the image */
    int strip, columns;
    int row, column, view;       /* of the tile; view 1: mirrored */
};

/* A part of a result on its way from the device. */
struct tiling_part {
    struct whole_image *image;
    struct box box;
    int64_t pixel, row;          /* where it begins in the segment */
};

/* Results that come back at once: arrays of the same sizes in device and host memory. */
struct tiling_segment {
    struct tiling_arrays {
        char *memory;
        uint8_t *truth, *best;
        float *probabilities;
        double *losses;
    } device, host;
    struct tiling_part *parts;
    int count;
    int64_t pixels, rows;        /* in use */
    void *event;                 /* that ends its use by the device; NULL: it has ended */
};

#define BATCHES 2

struct tiling {
    struct tiling_options options;
    struct device *device;
    struct tiles tiles;
    const struct blend_code *code;
    struct exec *exec;
    struct augment_table table;
    char *memory;                        /* device memory: windows, band and segments */
    bool lent;                           /* it is the exec's */
    float *band, *down, *across;         /* in it */
    char *sent;                          /* in it: table and records, once, and a batch's bytes */
    char *batches[BATCHES];              /* host memory: images, then labels */
    size_t batch_bytes, images_bytes;
    int64_t started, collected;
    struct tiling_tile *queue;           /* of a batch */
    int queued;
    bool as_bytes;                       /* it has bytes */
    struct tiling_walk walk;
    struct tiling_segment segments[TILES_SEGMENTS];
    int segment;                         /* that gets results now */
};

/* Memory. */

static struct tiling_arrays arrays_in(const struct tiles *tiles, char *memory)
{
    struct tiling_arrays arrays = {.memory = memory, .losses = (double *)memory};
    arrays.probabilities = (float *)(arrays.losses + tiles->rows);
    int64_t numbers = tiles->probabilities ? tiles->pixels * tiles->classes : 0;
    arrays.truth = (uint8_t *)(arrays.probabilities + numbers);
    if (numbers == 0) arrays.probabilities = NULL;
    arrays.best = arrays.truth + tiles->pixels;
    return arrays;
}

static enum status segment_open(struct tiling *tiling, int i)
{
    struct tiling_segment *segment = &tiling->segments[i];
    size_t bytes = (size_t)tiles_segment_bytes(&tiling->tiles);
    char *memory = tiling->memory + tiles_band_bytes(&tiling->tiles) + (size_t)i * bytes;
    char *host = device_host_allocate(tiling->device, bytes, "results of tiles", NULL);
    segment->device = arrays_in(&tiling->tiles, memory);
    segment->host = arrays_in(&tiling->tiles, host);
    return host ? OK : fail(NO_DEVICE, "not enough host memory for the results of tiles");
}

/* Band, windows and segments; a run's steps lend their memory. */
static enum status memory_open(struct tiling *tiling)
{
    size_t bytes = (size_t)tiles_bytes(&tiling->tiles);
    char words[TEXT_BYTES];
    tiling->memory = exec_behind(tiling->exec, (int64_t)bytes);
    tiling->lent = tiling->memory;
    if (!tiling->lent) tiling->memory = device_allocate(tiling->device, bytes, "blending of tiles");
    if (tiling->memory) return OK;
    return fail(NO_DEVICE, "the device does not have %s for the blending of tiles", text_bytes(bytes, words));
}

/* Uploads what batches of bytes share: the table, and records, since bytes need no more than to be converted.
 * Synchronous. */
static enum status sent_open(struct tiling *tiling)
{
    const struct tiles *tiles = &tiling->tiles;
    struct device *device = tiling->device;
    int h = tiles->h, w = tiles->w, c = tiling->options.session->data.channels;
    struct image_record *records = memory_new((size_t)tiles->batch, sizeof *records);
    for (int i = 0; i < tiles->batch; i++)
        records[i] = (struct image_record){
            .at = (int64_t)i * h * w * c, .stride = (int64_t)w * c, .source = SOURCE_SENT, .h = h, .w = w,
            .from = {.h = h, .w = w}, .window = {.h = h, .w = w},
        };
    enum status status = device->backend->transfers.upload(device, 0, tiling->sent, tiling->table.bits,
                                                           augment_table_bytes(c));
    if (status == OK)
        status = device->backend->transfers.upload(device, 0, tiling->sent + tiles->table, records,
                                                   (size_t)tiles->batch * sizeof *records);
    if (status == OK) status = device->backend->synchronize(device);
    free(records);
    return status;
}

static enum status band_open(struct tiling *tiling)
{
    const struct tiles *tiles = &tiling->tiles;
    struct device *device = tiling->device;
    size_t bytes = (size_t)tiles_band_bytes(tiles);
    tiling->down = (float *)tiling->memory;
    tiling->sent = tiling->memory + tiles_bytes(tiles) - tiles_sent_bytes(tiles);
    tiling->across = tiling->down + tiles->h;
    tiling->band = tiling->across + tiles->w;
    float *windows = memory_new((size_t)(tiles->h + tiles->w), sizeof *windows);
    blend_window(tiles->h, windows);
    blend_window(tiles->w, windows + tiles->h);
    size_t used = (size_t)(tiles->h + tiles->w) * sizeof *windows;
    enum status status = device->backend->transfers.upload(device, 0, tiling->down, windows, used);
    if (status == OK)
        status = device->backend->transfers.fill_zero(device, 0, tiling->band, bytes - used);
    if (status == OK && tiles->bytes > 0) status = sent_open(tiling);
    if (status == OK) status = device->backend->synchronize(device);
    free(windows);
    return status;
}

static enum status batches_open(struct tiling *tiling)
{
    const struct program *program = &tiling->options.step->compiled.program;
    bool pinned;
    tiling->images_bytes = (size_t)program->images_bytes;
    assert(tiling->tiles.bytes <= program->images_bytes);
    tiling->batch_bytes = tiling->images_bytes + (size_t)program->targets_bytes;
    for (int i = 0; i < exec_depth(tiling->exec); i++) {
        tiling->batches[i] = device_host_allocate(tiling->device, tiling->batch_bytes, "tiles", &pinned);
        if (!tiling->batches[i]) return fail(NO_DEVICE, "not enough host memory for a batch of tiles");
        memset(tiling->batches[i], 0, tiling->batch_bytes);
    }
    return OK;
}

enum status tiling_open(const struct tiling_options *options, struct tiling **tiling)
{
    const struct session *session = options->session;
    struct tiling *made = memory_new(1, sizeof *made);
    *made = (struct tiling){
        .options = *options, .device = session->device, .tiles = tiles_of(session),
        .exec = options->step->exec,
        .code = session->device->backend->kind == DEVICE_CPU ? &blend_cpu : ON_CUDA(blend_cuda),
        .table = augment_table_make(&session->data.augment, session->hyper.precision->storage),
    };
    made->queue = memory_new((size_t)made->tiles.batch, sizeof *made->queue);
    enum status status = memory_open(made);
    if (status == OK) status = band_open(made);
    for (int i = 0; status == OK && i < TILES_SEGMENTS; i++) status = segment_open(made, i);
    if (status == OK) status = batches_open(made);
    if (status == OK) *tiling = made;
    else tiling_close(made);
    return status;
}

void tiling_close(struct tiling *tiling)
{
    if (!tiling) return;
    struct device *device = tiling->device;
    if (!tiling->lent && tiling->memory)
        device_release(device, tiling->memory, (size_t)tiles_bytes(&tiling->tiles));
    for (int i = 0; i < TILES_SEGMENTS; i++) {
        struct tiling_segment *segment = &tiling->segments[i];
        size_t bytes = (size_t)tiles_segment_bytes(&tiling->tiles);
        if (segment->host.memory) device_host_release(device, segment->host.memory, bytes);
        free(segment->parts);
    }
    for (int i = 0; i < BATCHES; i++)
        if (tiling->batches[i]) device_host_release(device, tiling->batches[i], tiling->batch_bytes);
    augment_table_free(&tiling->table);
    free(tiling->queue);
    free(tiling);
}

/* Order: images, strips, rows of tiles, tiles, views. */

static int position(const struct tiling *tiling, bool down, int i)
{
    const struct tiling_walk *walk = &tiling->walk;
    const struct image *image = &walk->image->image;
    return down ? blend_position(image->h, tiling->tiles.h, walk->down, i)
                : blend_position(image->w, tiling->tiles.w, walk->across, i);
}

/* True if the tile of this column shows some of the strip. */
static bool shows_strip(const struct tiling *tiling, int column)
{
    const struct tiling_walk *walk = &tiling->walk;
    int x = position(tiling, false, column);
    return x < walk->strip + walk->columns && x + tiling->tiles.w > walk->strip;
}

static void begin_strip(struct tiling *tiling, int first)
{
    struct tiling_walk *walk = &tiling->walk;
    int w = walk->image->image.w, count = (w + tiling->tiles.strip - 1) / tiling->tiles.strip;
    int each = (w + count - 1) / count;
    walk->strip = first;
    walk->columns = first + each < w ? each : w - first;
    walk->row = walk->column = walk->view = 0;
    while (!shows_strip(tiling, walk->column)) walk->column++;
}

/* The next image that can be used; NULL: there is none. */
static enum status begin_image(struct tiling *tiling, struct whole_images *images)
{
    struct tiling_walk *walk = &tiling->walk;
    const struct tiles *tiles = &tiling->tiles;
    TRY(whole_images_next(images, &walk->image));
    while (walk->image && walk->image->problem) {
        whole_images_give(images, walk->image);
        TRY(whole_images_next(images, &walk->image));
    }
    if (!walk->image) return OK;
    walk->down = blend_count(walk->image->image.h, tiles->h, tiles->overlap);
    walk->across = blend_count(walk->image->image.w, tiles->w, tiles->overlap);
    begin_strip(tiling, 0);
    return OK;
}

/* Returns the tile, and goes on to the next one. */
static struct tiling_tile take_tile(struct tiling *tiling)
{
    struct tiling_walk *walk = &tiling->walk;
    int h = walk->image->image.h, w = walk->image->image.w, strip_end = walk->strip + walk->columns;
    struct tiling_tile tile = {
        .image = walk->image, .strip = walk->strip, .columns = walk->columns,
        .y = position(tiling, true, walk->row), .x = position(tiling, false, walk->column),
        .mirrored = walk->view,
    };
    walk->view = !walk->view && tiling->options.mirrored;
    if (walk->view) return tile;
    walk->column++;
    if (walk->column < walk->across && shows_strip(tiling, walk->column)) return tile;
    bool bottom = walk->row + 1 == walk->down;
    tile.first_row = tile.y > 0 ? tile.y : 0;
    tile.end_row = bottom ? h : position(tiling, true, walk->row + 1);
    if (!bottom) {
        walk->row++;
        walk->column = 0;
        while (!shows_strip(tiling, walk->column)) walk->column++;
    } else if (strip_end == w) {
        walk->image = NULL;
    } else {
        begin_strip(tiling, strip_end);
    }
    return tile;
}

static enum status fill_queue(struct tiling *tiling, struct whole_images *images)
{
    tiling->queued = 0;
    while (tiling->queued < tiling->tiles.batch) {
        if (!tiling->walk.image) TRY(begin_image(tiling, images));
        if (!tiling->walk.image) break;
        tiling->queue[tiling->queued++] = take_tile(tiling);
    }
    return OK;
}

/* Cutting. */

static void cut_row_deep(const struct tiling *tiling, const struct tiling_tile *tile, int row, void *to)
{
    const struct image *image = &tile->image->image;
    int w = tiling->tiles.w, y = blend_reflect(tile->y + row, image->h);
    size_t c = (size_t)image->c;
    const float *from = image_numbers(image) + (size_t)y * (size_t)image->w * c;
    float *samples = memory_new((size_t)w * c, sizeof *samples);
    struct deep_scale scale;
    const struct augment *augment = &tiling->options.session->data.augment;
    const struct image_range range = image_range_of(image, &augment->range);
    deep_scale_of(&range, augment->mean, augment->std, image->c, &scale);
    for (int column = 0; column < w; column++) {
        int x = blend_reflect(tile->x + (tile->mirrored ? w - 1 - column : column), image->w);
        memcpy(samples + (size_t)column * c, from + (size_t)x * c, c * sizeof *samples);
    }
    deep_scale_write(&scale, tiling->table.dtype, samples, w, image->c, to);
    free(samples);
}

static void cut_row(const struct tiling *tiling, const struct tiling_tile *tile, int row, void *to)
{
    const struct augment_table as_they_are = {.dtype = U8};
    const struct augment_table *table = tiling->as_bytes ? &as_they_are : &tiling->table;
    const struct image *image = &tile->image->image;
    int c = image->c, w = tiling->tiles.w, step = tile->mirrored ? -1 : 1;
    int first = tile->x + (tile->mirrored ? w - 1 : 0), y = blend_reflect(tile->y + row, image->h);
    size_t bytes = (size_t)c * dtype_bytes(table->dtype);
    const uint8_t *from = image->pixels + (size_t)y * (size_t)image->w * (size_t)c;
    for (int column = 0, count; column < w; column += count) {
        int x = first + step * column, at = blend_reflect(x, image->w);
        int inside = at != x ? 1 : step > 0 ? image->w - x : x + 1;
        count = inside < w - column ? inside : w - column;
        augment_paint(table, (struct pixel_row){from + (size_t)at * (size_t)c, step, count, c},
                      (char *)to + (size_t)column * bytes);
    }
}

/* Queues what makes the network's input of a batch of bytes. The stream keeps batches apart. */
static enum status make_numbers(void *context, const void *images, int stream, void *to)
{
    const struct tiling *tiling = context;
    const struct tiles *tiles = &tiling->tiles;
    struct device *device = tiling->device;
    const struct device_backend *backend = device->backend;
    const struct images_code *code = ON_CUDA(images_cuda);
    char *sent = tiling->sent + tiles->table;
    const struct images_job job = {
        .images = (const struct image_record *)sent,
        .sources = {[SOURCE_SENT] = (uint8_t *)sent + tiles->records},
        .table = (const uint32_t (*)[256])tiling->sent, .dtype = tiling->table.dtype,
        .count = tiles->batch, .h = tiles->h, .w = tiles->w, .c = tiling->options.session->data.channels,
        .out = to, .device = device, .stream = backend->stream(device, stream),
    };
    TRY(backend->transfers.upload(device, stream, sent + tiles->records, images, (size_t)tiles->bytes));
    return code->preprocess(&job);
}

/* A GPU converts bytes, if all tiles have them. */
static void cut_batch(struct tiling *tiling, char *batch)
{
    int h = tiling->tiles.h, rows = tiling->queued * h;
    size_t row_bytes = (size_t)tiling->tiles.w * (size_t)tiling->options.session->data.channels;
    tiling->as_bytes = tiling->tiles.bytes > 0;
    for (int i = 0; i < tiling->queued; i++)
        if (tiling->queue[i].image->image.deep) tiling->as_bytes = false;
    if (!tiling->as_bytes) row_bytes *= dtype_bytes(tiling->table.dtype);
#pragma omp parallel for schedule(static)
    for (int row = 0; row < rows; row++) {
        const struct tiling_tile *tile = &tiling->queue[row / h];
        (tile->image->image.deep ? cut_row_deep : cut_row)(tiling, tile, row % h,
                                                           batch + (size_t)row * row_bytes);
    }
}

/* Results. */

static void take_part(const struct tiling *tiling, const struct tiling_segment *segment,
                      const struct tiling_part *part)
{
    struct whole_image *image = part->image;
    size_t classes = (size_t)tiling->tiles.classes, w = (size_t)part->box.w;
    for (int row = 0; row < part->box.h; row++) {
        size_t to = (size_t)(part->box.y + row) * (size_t)image->w + (size_t)part->box.x;
        size_t from = (size_t)part->pixel + (size_t)row * w;
        memcpy(image->classes + to, segment->host.best + from, w);
        if (image->probabilities)
            memcpy(image->probabilities + to * classes, segment->host.probabilities + from * classes,
                   w * classes * sizeof(float));
        image->loss += segment->host.losses[part->row + row];
    }
    image->left -= (int64_t)part->box.h * part->box.w;
}

/* Waits for the results of a segment, and takes them. */
static void segment_collect(struct tiling *tiling, struct tiling_segment *segment,
                            struct whole_images *images)
{
    if (segment->event) tiling->device->backend->events.retire(tiling->device, segment->event, true);
    segment->event = NULL;
    for (int i = 0; i < segment->count; i++) {
        const struct tiling_part *part = &segment->parts[i];
        take_part(tiling, segment, part);
        if (part->image->left == 0) whole_images_give(images, part->image);
    }
    segment->count = 0;
    segment->pixels = segment->rows = 0;
}

/* Queues its way to the host, and takes the results of the next one. */
static enum status segment_end(struct tiling *tiling, struct whole_images *images)
{
    struct tiling_segment *segment = &tiling->segments[tiling->segment];
    struct device *device = tiling->device;
    const struct device_backend *backend = device->backend;
    size_t pixels = (size_t)segment->pixels, classes = (size_t)tiling->tiles.classes;
    if (segment->count == 0) return OK;
    TRY(backend->transfers.download(device, 0, segment->host.best, segment->device.best, pixels));
    TRY(backend->transfers.download(device, 0, segment->host.losses, segment->device.losses,
                                    (size_t)segment->rows * sizeof(double)));
    if (segment->device.probabilities)
        TRY(backend->transfers.download(device, 0, segment->host.probabilities,
                                        segment->device.probabilities, pixels * classes * sizeof(float)));
    if (backend->events.create) segment->event = backend->events.create(device, 0);
    tiling->segment = (tiling->segment + 1) % TILES_SEGMENTS;
    segment_collect(tiling, &tiling->segments[tiling->segment], images);
    return OK;
}

static struct blend_band band_of(const struct tiling *tiling, const struct tiling_tile *tile)
{
    return (struct blend_band){tiling->band, tiling->tiles.h, tile->strip, tile->columns,
                               tiling->tiles.classes};
}

/* A part of the result that has room in a segment. */
static enum status finish_part(struct tiling *tiling, const struct tiling_tile *tile, struct box box,
                               struct whole_images *images)
{
    struct tiling_segment *segment = &tiling->segments[tiling->segment];
    struct device *device = tiling->device;
    struct whole_image *image = tile->image;
    int64_t pixels = (int64_t)box.h * box.w;
    if (segment->pixels + pixels > tiling->tiles.pixels || segment->rows + box.h > tiling->tiles.rows) {
        TRY(segment_end(tiling, images));
        segment = &tiling->segments[tiling->segment];
    }
    struct blend_part part = {
        .band = band_of(tiling, tile), .image_h = image->image.h, .image_w = image->image.w,
        .h = image->h, .w = image->w, .box = box,
        .best = segment->device.best + segment->pixels, .losses = segment->device.losses + segment->rows,
    };
    if (segment->device.probabilities)
        part.probabilities = segment->device.probabilities + segment->pixels * tiling->tiles.classes;
    if (image->mask.pixels) {
        uint8_t *truth = segment->host.truth + segment->pixels;
        for (int row = 0; row < box.h; row++)
            memcpy(truth + (size_t)row * (size_t)box.w, image->mask.pixels +
                   (size_t)(box.y + row) * (size_t)image->w + (size_t)box.x, (size_t)box.w);
        part.truth = segment->device.truth + segment->pixels;
        TRY(device->backend->transfers.upload(device, 0, (uint8_t *)part.truth, truth, (size_t)pixels));
    }
    *array_push(segment->parts, segment->count) =
        (struct tiling_part){image, box, segment->pixels, segment->rows};
    segment->pixels += pixels;
    segment->rows += box.h;
    return tiling->code->finish(device, device->backend->stream(device, 0), &part);
}

/* The first pixel of the result, of `to`, whose nearest one of `from` is `i` or later. */
static int result_from(int i, int to, int from)
{
    int first = (int)((int64_t)i * to / from);
    while (first > 0 && blend_nearest(first - 1, to, from) >= i) first--;
    while (first < to && blend_nearest(first, to, from) < i) first++;
    return first;
}

/* Clears rows that are finished. */
static enum status clear_rows(struct tiling *tiling, const struct tiling_tile *tile)
{
    const struct blend_band band = band_of(tiling, tile);
    struct device *device = tiling->device;
    int64_t width = (int64_t)band.w * band.classes;
    for (int y = tile->first_row, rows; y < tile->end_row; y += rows) {
        int at = y % band.rows;
        rows = tile->end_row - y < band.rows - at ? tile->end_row - y : band.rows - at;
        TRY(device->backend->transfers.fill_zero(device, 0, band.sums + at * width,
                                                 (size_t)(rows * width) * sizeof(float)));
    }
    return OK;
}

static enum status finish_rows(struct tiling *tiling, const struct tiling_tile *tile,
                               struct whole_images *images)
{
    const struct whole_image *image = tile->image;
    int from_h = image->image.h, from_w = image->image.w;
    int first = result_from(tile->first_row, image->h, from_h);
    int end = result_from(tile->end_row, image->h, from_h);
    int x_end = result_from(tile->strip + tile->columns, image->w, from_w);
    int pixels = (int)tiling->tiles.pixels, rows = (int)tiling->tiles.rows;
    for (int x = result_from(tile->strip, image->w, from_w), w; x < x_end; x += w) {
        w = x_end - x < pixels ? x_end - x : pixels;
        int most = pixels / w < rows ? pixels / w : rows;
        for (int y = first, h; y < end; y += h) {
            h = end - y < most ? end - y : most;
            TRY(finish_part(tiling, tile, (struct box){y, x, h, w}, images));
        }
    }
    return clear_rows(tiling, tile);
}

static enum status blend_batch(struct tiling *tiling, struct whole_images *images)
{
    const struct tiles *tiles = &tiling->tiles;
    struct device *device = tiling->device;
    int64_t each = (int64_t)tiles->h * tiles->w * tiles->classes;
    for (int i = 0; i < tiling->queued; i++) {
        const struct tiling_tile *at = &tiling->queue[i];
        const struct blend_tile tile = {
            .band = band_of(tiling, at), .logits = exec_results(tiling->exec) + i * each,
            .down = tiling->down, .across = tiling->across, .h = tiles->h, .w = tiles->w,
            .y = at->y, .x = at->x, .image_h = at->image->image.h, .image_w = at->image->image.w,
            .mirrored = at->mirrored,
        };
        TRY(tiling->code->add(device, device->backend->stream(device, 0), &tile));
        if (at->end_row > at->first_row) TRY(finish_rows(tiling, at, images));
    }
    return segment_end(tiling, images);
}

static enum status run_batch(struct tiling *tiling, struct whole_images *images)
{
    int depth = exec_depth(tiling->exec);
    const struct update_rates rates = {0};
    if (tiling->started - tiling->collected == depth) {
        TRY(exec_collect(tiling->exec));
        tiling->collected++;
    }
    char *batch = tiling->batches[tiling->started % depth];
    cut_batch(tiling, batch);
    const struct exec_batch input = {.images = batch, .labels = batch + tiling->images_bytes,
                                     .make = tiling->as_bytes ? make_numbers : NULL, .maker = tiling};
    TRY(exec_start(tiling->exec, &input, &rates));
    tiling->started++;
    return blend_batch(tiling, images);
}

static enum status run_all(struct tiling *tiling, struct whole_images *images)
{
    while (true) {
        TRY(fill_queue(tiling, images));
        if (tiling->queued == 0) return OK;
        TRY(run_batch(tiling, images));
        if (whole_images_stop(images)) return STOPPED;
        if (tiling->options.progress) tiling->options.progress(tiling->options.context);
    }
}

enum status tiling_run(struct tiling *tiling, struct whole_images *images)
{
    tiling->walk = (struct tiling_walk){0};
    enum status status = run_all(tiling, images);
    for (; tiling->collected < tiling->started; tiling->collected++) {
        enum status collected = exec_collect(tiling->exec);
        if (status == OK) status = collected;
    }
    for (int i = 0; i < TILES_SEGMENTS; i++) {
        int next = (tiling->segment + 1 + i) % TILES_SEGMENTS;
        if (status == OK) segment_collect(tiling, &tiling->segments[next], images);
        tiling->segments[next].count = 0;
    }
    if (status != OK) tiling->device->backend->synchronize(tiling->device);
    return status;
}

int64_t tiling_count(const struct session *session, const struct listed_image *images, int64_t count)
{
    const struct tiles tiles = tiles_of(session);
    const struct image_size resize = session->data.augment.val_resize;
    int64_t sum = 0;
    for (int64_t i = 0; i < count; i++) {
        const struct listed_pixels *pixels = images[i].pixels;
        if (!pixels) return INT_MAX;
        struct image_size size = {pixels->h, pixels->w};
        if (resize.h > 0) size = image_size_covering(size, resize);
        sum += (int64_t)blend_count(size.h, tiles.h, tiles.overlap) *
               blend_count(size.w, tiles.w, tiles.overlap);
    }
    return sum;
}

/* Other steps may have used the memory that one lends. */
static enum status open_or_renew(const struct tiling_options *options, struct tiling **tiling)
{
    if (!*tiling) return tiling_open(options, tiling);
    (*tiling)->options = *options;
    return (*tiling)->lent ? band_open(*tiling) : OK;
}

enum status tiling_run_list(const struct tiling_options *options, const struct tiling_list *list,
                            struct tiling **kept)
{
    const struct session *session = options->session;
    struct tiling_options own = *options;
    struct dataset *dataset = memory_new(1, sizeof *dataset);
    struct whole_images *whole = NULL;
    struct tiling *tiling = kept ? *kept : NULL;
    int threads = session_workers(session);
    own.mirrored = own.mirrored || session->settings->augment.val_flip;
    image_list_open(list->images, list->count, session_image_options(session), dataset);
    const struct whole_images_options reading = {
        .dataset = dataset, .count = dataset->count, .ranks = 1, .resize = session->data.augment.val_resize,
        .interpolation = session->data.augment.interpolation,
        .outputs = session->keeps_probabilities ? session->data.classes : 0,
        .threads = threads < list->count ? threads : (int)list->count,
        .timeout = session->settings->loader.timeout, .stop = list->stop,
        .take = list->take, .context = list->context,
    };
    enum status status = whole_images_open(&reading, &whole);
    if (status == OK) status = open_or_renew(&own, &tiling);
    if (status == OK) status = tiling_run(tiling, whole);
    enum status closed = whole_images_close(whole);
    if (status == OK) status = closed;
    if (status != OK || !kept) tiling_close(tiling), tiling = NULL;
    if (kept) *kept = tiling;
    if (dataset->held) return status;
    dataset_close(dataset);
    free(dataset);
    return status;
}
