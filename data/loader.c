#include "data/loader.h"

#include <assert.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/random.h"
#include "data/order.h"
#include "data/deferred_jpeg.h"

/* Where so many replacements in a row cannot be used either, the data is not worth training on. */
#define REPLACEMENTS_MAX 100
/* Images that a worker takes at a time: enough that small ones are not all locking. */
#define CHUNK_MAX 16

/* When no batch has come for so long, it is said what is waited for; and again after twice that time. */
#define STALLED_SECONDS 30
/* How long closing waits for threads that are in the midst of a read. */
#define LEAVING_SECONDS 2

/* Pieces that the mixing of a batch is divided into, for several workers;
 * one where only targets are mixed. */
#define MIX_PIECES 16

enum slot_state { SLOT_FREE, SLOT_FILLING, SLOT_DECODING, SLOT_MIXING, SLOT_READY, SLOT_OUT };

struct slot {
    struct batch batch;        /* first: what loader_return is given */
    enum slot_state state;
    int left;                  /* images that are not there yet; then pieces that are not decoded, or mixed */
    int pieces;                /* of the stage, */
    int handed;                /* of which so many were handed out */
    struct undecoded *undecoded;       /* files that a device decodes; NULL: it decodes none */
    size_t room;               /* where their pixels begin in FINISH_DECODED */
    struct batch_rest rest;
    struct sending sending;    /* where something is left to do to images */
    int bad_place;             /* of the first image that stops the run; INT32_MAX: none */
    struct reason why;
};

struct loader {
    struct loader_options options;
    struct augment_table table;
    size_t image_bytes, batch_bytes, targets_bytes;
    bool mixes;
    int pieces;                /* that mixing is divided into */
    struct share share;        /* of each batch, that is this rank's */
    int chunk;
    int64_t batches, limit;    /* in an epoch; images in it */
    int slot_count;
    struct slot *slots;
    struct worker *workers;
    int worker_count;          /* that run */

    pthread_mutex_t lock;      /* over all that follows and the slots' states */
    pthread_cond_t work;       /* for workers: a slot is free, an epoch began, or it is over */
    pthread_cond_t done;       /* for the caller: a batch is ready, or a worker let go */
    bool closing;
    int busy;                  /* workers with a chunk in hand */
    int decoding;              /* ... that have a device decode it */
    int64_t epoch;
    int64_t filling;           /* the batch that images are handed out from */
    struct slot *fill;         /* its slot; NULL: none was free yet */
    int handed;                /* images of it that were handed out */
    int64_t next;              /* the batch that loader_next will deliver */
    uint8_t *bad;              /* a bit for every image of the dataset */
    int64_t bad_count;

    atomic_bool drop;          /* workers: leave what you have, nobody wants it */
};

/* A run of images of one batch that is being filled; or of pieces of one that is being decoded or mixed. */
struct chunk {
    struct slot *slot;
    int first, count;
};

/* What a worker keeps from image to image. */
struct worker {
    struct loader *loader;
    pthread_t thread;
    struct image image;
    struct scratch scratch;
    atomic_llong reading;      /* the image of the data set that it is reading; -1: none */
    _Atomic double since;      /* when it began to */
};

/* Order */

/* The dataset's index of element i of what this loader serves. */
static int64_t index_of(const struct loader *loader, int64_t i)
{
    return loader->options.subset ? loader->options.subset[i] : i;
}

int64_t loader_image(const struct loader *loader, const struct batch *batch, int place)
{
    const struct loader_options *options = &loader->options;
    int64_t at = batch->first + place;
    if (options->training && options->shuffle)
        at = order_permute(options->seed, (uint64_t)batch->epoch, options->count, at);
    return index_of(loader, at);
}

/* Images */

static void report_bad(struct loader *loader, int64_t index, const struct reason *reason)
{
    pthread_mutex_lock(&loader->lock);
    uint8_t bit = (uint8_t)(1 << (index & 7));
    if (!(loader->bad[index >> 3] & bit)) {
        loader->bad[index >> 3] |= bit;
        loader->bad_count++;
        /* A worker that comes back late finds nobody to tell. */
        if (loader->options.bad_image && !loader->closing)
            loader->options.bad_image(loader->options.bad_context, index, reason->text);
    }
    pthread_mutex_unlock(&loader->lock);
}

/* What augmentation knows only as an image gets its file's name. */
static void name_image(const struct dataset *dataset, int64_t index, struct reason *reason)
{
    if (!dataset->format->image_path) return;
    char *path = dataset->format->image_path(dataset, index);
    because_of(reason, path, reason->text);
    free(path);
}

/* How an image is cut, once its size is known: by its decoder's question, or after it was read. */
struct view {
    const struct loader_options *options;
    struct random *random;       /* NULL: evaluation */
    struct cut cut;
    bool known;
};

static bool choose_cut(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct view *view = context;
    const struct loader_options *options = view->options;
    const struct cut_sizes sizes = {h, w, options->h, options->w};
    if (!augment_cut(&options->augment, view->random, &sizes, &view->cut, reason)) return false;
    view->known = true;
    *part = augment_needs(&view->cut);
    return true;
}

static bool cut_after_reading(struct view *view, const struct image *image, struct reason *reason)
{
    struct box unused;
    return view->known || choose_cut(view, image->full_h, image->full_w, &unused, reason);
}

/* So that others can tell what this worker waits for, if it does. */
static void begin_reading(struct worker *worker, int64_t index)
{
    atomic_store(&worker->since, clock_seconds());
    atomic_store(&worker->reading, index);
}

static void end_reading(struct worker *worker)
{
    atomic_store(&worker->reading, -1);
}

static const struct image *read_image(struct worker *worker, int64_t index, const struct image_choice *choice,
                                      int *label, struct reason *reason)
{
    const struct loader_options *options = &worker->loader->options;
    const struct dataset *dataset = options->dataset;
    const struct image *image = &worker->image;
    begin_reading(worker, index);
    if (options->cache)
        image = image_cache_read(options->cache, index, choice, &worker->image, label, reason);
    else if (!dataset->format->read(dataset, index, choice, &worker->image, label, reason))
        image = NULL;
    end_reading(worker);
    return image;
}

/* Where an image goes. */
struct target {
    struct slot *slot;
    int place;
    bool here;                 /* this worker decodes it, nobody else */
};

static int32_t *target_label(struct target target)
{
    return &target.slot->batch.labels[target.place];
}

static void *target_pixels(const struct loader *loader, struct target target)
{
    return (char *)target.slot->batch.images + (size_t)target.place * loader->image_bytes;
}

/* An image that lies on the device; false: it does not, or cannot be finished from there. */
static bool put_kept(const struct loader *loader, int64_t index, struct view *view, struct target target)
{
    const struct loader_options *options = &loader->options;
    const struct kept_image *kept = options->kept ? &options->kept[index] : NULL;
    struct box unused;
    struct reason reason;
    if (!kept || kept->h == 0 || !choose_cut(view, kept->h, kept->w, &unused, &reason)) return false;
    if (!sending_put_kept(&target.slot->sending, target.place, &view->cut, kept, view->random)) return false;
    *target_label(target) = kept->label;
    return true;
}

static bool is_drawn(const struct loader *loader, int64_t index)
{
    struct random random =
        random_open(loader->options.seed, PURPOSE_DECODE, (uint64_t)loader->epoch, (uint64_t)index);
    return random_uniform(&random) < loader->options.decoder.share;
}

/* A file that a device may decode, and what will be left to do then; where its pixels lie is not
 * known yet. */
static bool leave_file(struct worker *worker, uint8_t *bytes, size_t count, struct view *view,
                       struct target target)
{
    const struct loader *loader = worker->loader;
    const struct loader_options *options = &loader->options;
    const struct decoder *decoder = options->decoder.decoder;
    struct jpeg_plain plain;
    struct box unused;
    struct reason reason;
    if (!jpeg_plain(bytes, count, &plain) || plain.h > decoder->h || plain.w > decoder->w ||
        !choose_cut(view, plain.h, plain.w, &unused, &reason))
        return false;
    if (!sending_put_decoded(&target.slot->sending, target.place, &view->cut, plain.w, view->random))
        return false;
    undecoded_put(target.slot->undecoded, target.place, bytes, &plain);
    return true;
}

/* False: the worker decodes it, or finds out what is wrong with it; or it came back late: nobody wants it. */
static bool leave_undecoded(struct worker *worker, int64_t index, struct view *view, struct target target)
{
    const struct loader *loader = worker->loader;
    const struct dataset *dataset = loader->options.dataset;
    uint8_t *bytes;
    size_t count;
    int label;
    struct reason reason;
    if (target.here || !target.slot->undecoded || !is_drawn(loader, index)) return false;
    begin_reading(worker, index);
    bool read = dataset->format->read_file(dataset, index, &bytes, &count, &label, &reason);
    end_reading(worker);
    if (!read) return false;
    bool left = !atomic_load(&loader->drop) && leave_file(worker, bytes, count, view, target);
    if (left) *target_label(target) = label;
    else free(bytes);
    return left;
}

static bool put_image(struct worker *worker, const struct view *view, const struct image *image,
                      struct target target, struct reason *reason)
{
    const struct loader *loader = worker->loader;
    const struct loader_options *options = &loader->options;
    const struct augmenting how = {&options->augment, view->random, &worker->scratch};
    if (options->leaves)
        return sending_put(&target.slot->sending, target.place, &how, &view->cut, image, reason);
    return augment_apply(&how, &loader->table, &view->cut, image, target_pixels(loader, target), reason);
}

static void put_nothing(const struct loader *loader, struct target target)
{
    if (loader->options.leaves) sending_put_nothing(&target.slot->sending, target.place);
    else memset(target_pixels(loader, target), 0, loader->image_bytes);
    *target_label(target) = -1;
}

/* Reads image `index` and augments it by the random numbers of image `named`. */
static bool load_image(struct worker *worker, int64_t index, int64_t named, struct target target,
                       struct reason *reason)
{
    struct loader *loader = worker->loader;
    const struct loader_options *options = &loader->options;
    int label;
    struct random random =
        random_open(options->seed, PURPOSE_AUGMENT, (uint64_t)loader->epoch, (uint64_t)named), begin = random;
    struct view view = {.options = options, .random = options->training ? &random : NULL};
    if (put_kept(loader, index, &view, target)) return true;
    random = begin;
    if (leave_undecoded(worker, index, &view, target) || atomic_load(&loader->drop)) return true;
    random = begin;
    view.known = false;
    struct image_choice choice = {.choose = choose_cut, .context = &view};
    const struct image *image = read_image(worker, index, &choice, &label, reason);
    if (atomic_load(&loader->drop)) return true;
    if (image) {
        if (cut_after_reading(&view, image, reason) && put_image(worker, &view, image, target, reason)) {
            *target_label(target) = label;
            return true;
        }
        name_image(options->dataset, index, reason);
    }
    report_bad(loader, index, reason);
    return false;
}

static int64_t draw_below(struct random *random, int64_t limit)
{
    if (limit <= UINT32_MAX) return random_below(random, (uint32_t)limit);
    uint64_t high = random_next(random);
    return (int64_t)((high << 32 | random_next(random)) % (uint64_t)limit);
}

static bool load_replacement(struct worker *worker, int64_t index, struct target target,
                             struct reason *reason)
{
    const struct loader *loader = worker->loader;
    struct random random = random_open(loader->options.seed, PURPOSE_REPLACE, (uint64_t)loader->epoch,
                                       (uint64_t)index);
    target.here = true;        /* a place is filled once, whatever becomes of it elsewhere */
    for (int attempt = 0; attempt < REPLACEMENTS_MAX; attempt++) {
        if (atomic_load(&loader->drop)) return true;
        int64_t other = index_of(loader, draw_below(&random, loader->options.count));
        if (load_image(worker, other, index, target, reason)) return true;
    }
    struct reason last = *reason;
    return because(reason, "%d replacements in a row cannot be used either, the last one: %.160s",
                   REPLACEMENTS_MAX, last.text);
}

static void stop_at(struct loader *loader, struct slot *slot, int place, const struct reason *why)
{
    pthread_mutex_lock(&loader->lock);
    if (place < slot->bad_place) {
        slot->bad_place = place;
        slot->why = *why;
    }
    pthread_mutex_unlock(&loader->lock);
}

/* The image that belongs in this batch could not be used, whatever stands in for it. */
static void count_bad(struct loader *loader, struct slot *slot)
{
    pthread_mutex_lock(&loader->lock);
    slot->batch.bad++;
    pthread_mutex_unlock(&loader->lock);
}

static void fill_place(struct worker *worker, struct target target)
{
    struct loader *loader = worker->loader;
    struct slot *slot = target.slot;
    int64_t index = loader_image(loader, &slot->batch, target.place);
    struct reason reason;
    if (load_image(worker, index, index, target, &reason)) return;
    count_bad(loader, slot);
    bool replace = loader->options.training && !loader->options.stop_on_error;
    if (replace && load_replacement(worker, index, target, &reason)) return;
    put_nothing(loader, target);
    if (replace || loader->options.stop_on_error) stop_at(loader, slot, target.place, &reason);
}

static void empty_places(const struct loader *loader, struct slot *slot)
{
    for (int i = slot->batch.count; i < loader->share.count; i++)
        put_nothing(loader, (struct target){.slot = slot, .place = i});
}

static void fill_chunk(struct worker *worker, struct chunk chunk)
{
    struct loader *loader = worker->loader;
    for (int i = 0; i < chunk.count; i++) {
        if (atomic_load(&loader->drop)) return;
        fill_place(worker, (struct target){.slot = chunk.slot, .place = chunk.first + i});
    }
    if (chunk.first + chunk.count == chunk.slot->batch.count) empty_places(loader, chunk.slot);
}

/* What the device does not decode, or cannot, is left to this worker. */
static void decode_piece(struct worker *worker, struct slot *slot, int piece)
{
    const int *places;
    if (atomic_load(&worker->loader->drop)) return;
    undecoded_decode(slot->undecoded, piece);
    int count = undecoded_places(slot->undecoded, piece, &places);
    for (int i = 0; i < count; i++) {
        struct target target = {.slot = slot, .place = places[i], .here = true};
        int64_t at = undecoded_at(slot->undecoded, places[i]);
        if (atomic_load(&worker->loader->drop)) return;
        if (at < 0) fill_place(worker, target);
        else sending_decoded_at(&slot->sending, places[i], (int64_t)slot->room + at);
    }
}

/* The rows of a piece, of all images of the batch. Which piece has which rows changes no bit. */
static void mix_piece(const struct loader *loader, struct slot *slot, int piece)
{
    const struct loader_options *options = &loader->options;
    const struct batch *batch = &slot->batch;
    struct random random =
        random_open(options->seed, PURPOSE_MIX, (uint64_t)batch->epoch, (uint64_t)batch->number);
    struct mix mix = mix_draw(&options->mix, &random, options->h, options->w);
    if (piece == 0) mix_targets(&mix, batch->labels, loader->share.count, options->classes, batch->targets);
    if (options->leaves) {
        slot->rest.mix = mix;
        return;
    }
    const struct mix_batch images = {
        .images = batch->images,
        .dtype = options->dtype,
        .count = loader->share.count,
        .h = options->h,
        .w = options->w,
        .c = options->channels,
    };
    int from = options->h * piece / loader->pieces, to = options->h * (piece + 1) / loader->pieces;
    mix_rows(&mix, &images, from, to - from);
}

static void do_chunk(struct worker *worker, struct chunk chunk)
{
    if (chunk.slot->state == SLOT_MIXING)
        mix_piece(worker->loader, chunk.slot, chunk.first);
    else if (chunk.slot->state == SLOT_DECODING)
        decode_piece(worker, chunk.slot, chunk.first);
    else
        fill_chunk(worker, chunk);
}

/* Workers; what follows is called with the lock held unless it says otherwise */

static struct slot *begin_slot(struct loader *loader)
{
    for (int i = 0; i < loader->slot_count; i++) {
        struct slot *slot = &loader->slots[i];
        if (slot->state != SLOT_FREE) continue;
        struct batch *batch = &slot->batch;
        batch->epoch = loader->epoch;
        batch->number = loader->filling;
        batch->bad = 0;
        batch->first = loader->filling * loader->options.batch + loader->share.first;
        int64_t count = loader->limit > batch->first ? loader->limit - batch->first : 0;
        batch->count = count < loader->share.count ? (int)count : loader->share.count;
        slot->state = SLOT_FILLING;
        slot->left = batch->count;
        slot->bad_place = INT32_MAX;
        if (loader->options.leaves)
            sending_begin(&slot->sending, &loader->options.augment, loader->share.count, loader->options.h,
                          loader->options.w, batch->images);
        if (slot->undecoded) undecoded_clear(slot->undecoded);
        return slot;
    }
    return NULL;
}

/* Whether pieces of a batch can be worked on; of those that a device decodes, so many at a time. */
static bool has_pieces(const struct loader *loader, const struct slot *slot)
{
    if (slot->state != SLOT_MIXING && slot->state != SLOT_DECODING) return false;
    if (slot->state == SLOT_DECODING && loader->decoding == loader->options.decoder.decoder->callers)
        return false;
    return slot->handed < slot->pieces;
}

/* The next piece of a batch of which all files are there but not all is decoded, or all but not mixed: of the
 * batch that is wanted first. */
static bool take_piece(struct loader *loader, struct chunk *chunk)
{
    bool any = loader->mixes || loader->options.decoder.decoder;
    struct slot *found = NULL;
    for (int i = 0; any && i < loader->slot_count; i++) {
        struct slot *slot = &loader->slots[i];
        if (has_pieces(loader, slot) && (!found || slot->batch.number < found->batch.number)) found = slot;
    }
    if (!found) return false;
    *chunk = (struct chunk){.slot = found, .first = found->handed++, .count = 1};
    loader->decoding += found->state == SLOT_DECODING;
    return true;
}

/* The next images to be made; false: there is nothing to do now. */
static bool take_chunk(struct loader *loader, struct chunk *chunk)
{
    if (atomic_load(&loader->drop)) return false;
    if (take_piece(loader, chunk)) return true;
    if (loader->filling >= loader->batches) return false;
    if (!loader->fill) {
        loader->fill = begin_slot(loader);
        loader->handed = 0;
    }
    if (!loader->fill) return false;
    int rest = loader->fill->batch.count - loader->handed;
    *chunk = (struct chunk){.slot = loader->fill, .first = loader->handed};
    chunk->count = rest < loader->chunk ? rest : loader->chunk;
    loader->handed += chunk->count;
    if (chunk->count == rest) {
        loader->fill = NULL;
        loader->filling++;
    }
    return true;
}

static void begin_stage(struct loader *loader, struct slot *slot, enum slot_state state, int pieces)
{
    slot->state = state;
    slot->handed = 0;
    slot->pieces = slot->left = pieces;
    pthread_cond_broadcast(&loader->work);
}

/* Files are decoded by a device, if there are such; then all is mixed, if it is to be. A batch that stops the
 * run is left as it is. */
static void end_stage(struct loader *loader, struct slot *slot)
{
    bool good = slot->bad_place == INT32_MAX, filled = slot->state == SLOT_FILLING;
    int pieces = good && filled && slot->undecoded ? undecoded_order(slot->undecoded) : 0;
    slot->rest.bytes = atomic_load(&slot->sending.used);
    slot->rest.shared = atomic_load(&slot->sending.shared);
    if (pieces > 0) begin_stage(loader, slot, SLOT_DECODING, pieces);
    else if (good && loader->mixes && slot->state != SLOT_MIXING)
        begin_stage(loader, slot, SLOT_MIXING, loader->pieces);
    else slot->state = SLOT_READY;
}

static void put_chunk(struct loader *loader, struct chunk chunk)
{
    loader->busy--;
    loader->decoding -= chunk.slot->state == SLOT_DECODING;
    chunk.slot->left -= chunk.count;
    if (chunk.slot->left == 0) end_stage(loader, chunk.slot);
    if (chunk.slot->left == 0 || loader->busy == 0) pthread_cond_signal(&loader->done);
}

/* A thread; takes the lock itself. */
static void *work(void *context)
{
    struct worker *worker = context;
    struct loader *loader = worker->loader;
    struct chunk chunk;
    pthread_mutex_lock(&loader->lock);
    while (!loader->closing) {
        if (!take_chunk(loader, &chunk)) {
            pthread_cond_wait(&loader->work, &loader->lock);
            continue;
        }
        loader->busy++;
        pthread_mutex_unlock(&loader->lock);
        do_chunk(worker, chunk);
        pthread_mutex_lock(&loader->lock);
        put_chunk(loader, chunk);
    }
    pthread_mutex_unlock(&loader->lock);
    image_free(&worker->image);
    scratch_free(&worker->scratch);
    return NULL;
}

/* Waiting for workers, who may themselves wait for a file system that no longer answers */

struct wait {
    double from, said;         /* when it began; what was said last, in seconds after that */
};

/* The worker that has been reading one image for longest; NULL: none is reading. */
static const struct worker *slowest(const struct loader *loader)
{
    const struct worker *found = NULL;
    for (int i = 0; i < loader->worker_count; i++) {
        const struct worker *worker = &loader->workers[i];
        if (atomic_load(&worker->reading) < 0) continue;
        if (!found || atomic_load(&worker->since) < atomic_load(&found->since)) found = worker;
    }
    return found;
}

/* What is waited for. */
static void describe_wait(const struct loader *loader, double now, struct reason *what)
{
    const struct dataset *dataset = loader->options.dataset;
    const struct worker *worker = slowest(loader);
    int64_t index = worker ? atomic_load(&worker->reading) : -1;
    if (index < 0) {
        because(what, "%d threads have much to do", loader->worker_count);
        return;
    }
    char *path = dataset->format->image_path ? dataset->format->image_path(dataset, index)
                                             : text_format("image %lld", (long long)index);
    struct reason why;
    because(&why, "reading it takes %.0f s so far", now - atomic_load(&worker->since));
    because_of(what, path, why.text);
    free(path);
}

/* Waits for a second at most. Whoever waits looks then for itself. */
static enum status wait_for_workers(struct loader *loader, struct wait *wait)
{
    const struct loader_options *options = &loader->options;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec++;
    pthread_cond_timedwait(&loader->done, &loader->lock, &until);
    if (options->stop && options->stop()) return STOPPED;
    double now = clock_seconds(), waited = now - wait->from;
    bool over = options->timeout > 0 && waited >= options->timeout;
    if (!over && waited < (wait->said > 0 ? 2 * wait->said : STALLED_SECONDS)) return OK;
    struct reason what;
    describe_wait(loader, now, &what);
    if (over)
        return fail(BAD_DATA, "%s; no batch for %.0f s, and loader.timeout allows no more", what.text,
                    waited);
    log_warning("%s; no batch for %.0f s", what.text, waited);
    wait->said = waited;
    return OK;
}

/* Makes workers let go of what they have, and takes it from them. */
static enum status drop_all(struct loader *loader)
{
    struct wait wait = {.from = clock_seconds()};
    atomic_store(&loader->drop, true);
    while (loader->busy > 0) TRY(wait_for_workers(loader, &wait));
    for (int i = 0; i < loader->slot_count; i++)
        if (loader->slots[i].state != SLOT_OUT) loader->slots[i].state = SLOT_FREE;
    loader->fill = NULL;
    atomic_store(&loader->drop, false);
    return OK;
}

/* Opening and closing; what the caller sees */

/* Signals are the main thread's business. Which batches are made does not depend on how many threads there
 * are: some are enough. */
static enum status start_threads(struct loader *loader)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = 0;
    loader->workers = memory_new((size_t)loader->options.workers, sizeof *loader->workers);
    while (!failed && loader->worker_count < loader->options.workers) {
        struct worker *worker = &loader->workers[loader->worker_count];
        worker->loader = loader;
        atomic_init(&worker->reading, -1);
        failed = pthread_create(&worker->thread, NULL, work, worker);
        if (failed) break;
        /* The others look at the workers that are counted. */
        pthread_mutex_lock(&loader->lock);
        loader->worker_count++;
        pthread_mutex_unlock(&loader->lock);
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed && loader->worker_count == 0)
        return fail(FAILED, "cannot start a loader thread: %s", strerror(failed));
    if (failed)
        log_warning("cannot start more than %d of %d loader threads: %s", loader->worker_count,
                    loader->options.workers, strerror(failed));
    return OK;
}

static void *allocate(const struct loader_options *options, size_t bytes)
{
    if (options->allocate) return options->allocate(options->memory_context, bytes);
    return aligned_alloc(64, (bytes + 63) / 64 * 64);
}

static void release(const struct loader_options *options, void *memory, size_t bytes)
{
    if (options->allocate)
        options->release(options->memory_context, memory, bytes);
    else
        free(memory);
}

/* Each slot has its part of the room. */
static void make_undecoded(const struct loader *loader, struct slot *slot, int i)
{
    const struct loader_decoder *decoder = &loader->options.decoder;
    slot->room = (size_t)i * decoder->batch_bytes;
    const struct undecoded_room room = {decoder->room + slot->room, decoder->batch_bytes};
    slot->undecoded = undecoded_new(decoder->decoder, room, loader->share.count);
}

static enum status make_slots(struct loader *loader)
{
    const struct loader_options *options = &loader->options;
    loader->slots = memory_new((size_t)loader->slot_count, sizeof *loader->slots);
    for (int i = 0; i < loader->slot_count; i++) {
        struct batch *batch = &loader->slots[i].batch;
        batch->labels = memory_new((size_t)loader->share.count, sizeof *batch->labels);
        batch->images = allocate(options, loader->batch_bytes);
        loader->slots[i].rest = (struct batch_rest){
            .count = loader->share.count, .h = options->h, .w = options->w, .mixed = loader->mixes,
        };
        if (options->leaves) batch->rest = &loader->slots[i].rest;
        if (options->decoder.decoder) make_undecoded(loader, &loader->slots[i], i);
        if (loader->mixes) batch->targets = allocate(options, loader->targets_bytes);
        if (!batch->images || (loader->mixes && !batch->targets))
            return fail(FAILED, "no memory for %d batches of %zu bytes", loader->slot_count,
                        loader->batch_bytes);
    }
    return OK;
}

/* So many ahead, and the one in use. */
static int slots_of(int prefetch)
{
    return prefetch + 1;
}

static enum status check_options(const struct loader_options *options)
{
    assert(options->classes >= options->dataset->classes || !mix_wanted(&options->mix));
    assert(options->batch > 0 && options->workers > 0 && options->prefetch > 0);
    assert(options->ranks <= options->batch);
    if (options->count <= 0) return fail(BAD_DATA, "no images to load");
    if (options->training && options->count < options->batch)
        return fail(USAGE, "a batch of %d is more than the %lld training images", options->batch,
                    (long long)options->count);
    if (options->channels != options->dataset->c)
        return fail(USAGE, "the images have %d channels, not %d", options->dataset->c, options->channels);
    return OK;
}

enum status loader_open(const struct loader_options *options, struct loader **result)
{
    TRY(check_options(options));
    struct loader *loader = memory_new(1, sizeof *loader);
    loader->options = *options;
    loader->table = augment_table_make(&options->augment, options->dtype);
    loader->image_bytes =
        (size_t)options->h * (size_t)options->w * (size_t)options->channels * dtype_bytes(options->dtype);
    loader->share = order_share(options->batch, options->ranks > 0 ? options->ranks : 1, options->rank);
    loader->batch_bytes = (size_t)loader->share.count * loader->image_bytes;
    if (options->leaves)
        loader->batch_bytes = sending_bytes(loader->share.count, options->h, options->w, options->channels);
    loader->mixes = options->training && mix_wanted(&options->mix);
    loader->pieces = options->leaves ? 1 : MIX_PIECES;
    loader->targets_bytes = (size_t)loader->share.count * (size_t)options->classes * sizeof(float);
    loader->batches = (options->count + (options->training ? 0 : options->batch - 1)) / options->batch;
    loader->limit = options->training ? loader->batches * options->batch : options->count;
    loader->filling = loader->next = loader->batches;      /* nothing, until loader_start */
    loader->chunk = loader->share.count / (2 * options->workers);
    loader->chunk = loader->chunk < 1 ? 1 : loader->chunk > CHUNK_MAX ? CHUNK_MAX : loader->chunk;
    loader->slot_count = slots_of(options->prefetch);
    loader->bad = memory_new((size_t)options->dataset->count / 8 + 1, 1);
    atomic_init(&loader->drop, false);
    pthread_mutex_init(&loader->lock, NULL);
    pthread_cond_init(&loader->work, NULL);
    pthread_condattr_t steady;
    pthread_condattr_init(&steady);
    pthread_condattr_setclock(&steady, CLOCK_MONOTONIC);
    pthread_cond_init(&loader->done, &steady);
    pthread_condattr_destroy(&steady);
    enum status status = make_slots(loader);
    if (status == OK) status = start_threads(loader);
    if (status != OK) {
        loader_close(loader);
        return status;
    }
    *result = loader;
    return OK;
}

/* False: some of them do not come back. By the clock that ThreadSanitizer knows joining by. */
static bool join_workers(struct loader *loader)
{
    struct timespec until;
    bool all = true;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += LEAVING_SECONDS;
    for (int i = 0; i < loader->worker_count; i++)
        all = pthread_timedjoin_np(loader->workers[i].thread, NULL, &until) == 0 && all;
    return all;
}

void loader_close(struct loader *loader)
{
    if (!loader) return;
    pthread_mutex_lock(&loader->lock);
    loader->closing = true;
    atomic_store(&loader->drop, true);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
    if (!join_workers(loader)) {
        loader->options.dataset->held = true;
        return;
    }
    for (int i = 0; i < loader->slot_count; i++) {
        if (loader->slots[i].batch.images)
            release(&loader->options, loader->slots[i].batch.images, loader->batch_bytes);
        if (loader->slots[i].batch.targets)
            release(&loader->options, loader->slots[i].batch.targets, loader->targets_bytes);
        free(loader->slots[i].batch.labels);
        undecoded_free(loader->slots[i].undecoded);
    }
    pthread_cond_destroy(&loader->work);
    pthread_cond_destroy(&loader->done);
    pthread_mutex_destroy(&loader->lock);
    free(loader->slots);
    free(loader->workers);
    augment_table_free(&loader->table);
    free(loader->bad);
    free(loader);
}

size_t loader_decoded_bytes(int prefetch, size_t batch_bytes)
{
    return (size_t)slots_of(prefetch) * batch_bytes;
}

int64_t loader_batches(const struct loader *loader) { return loader->batches; }

enum status loader_start(struct loader *loader, int64_t epoch, int64_t first)
{
    if (first < 0 || first > loader->batches)
        return fail(FAILED, "batch %lld of an epoch of %lld batches", (long long)first,
                    (long long)loader->batches);
    pthread_mutex_lock(&loader->lock);
    enum status status = drop_all(loader);
    if (status == OK) {
        loader->epoch = epoch;
        loader->filling = loader->next = first;
        pthread_cond_broadcast(&loader->work);
    }
    pthread_mutex_unlock(&loader->lock);
    return status;
}

static struct slot *ready_slot(struct loader *loader)
{
    for (int i = 0; i < loader->slot_count; i++)
        if (loader->slots[i].state == SLOT_READY && loader->slots[i].batch.number == loader->next)
            return &loader->slots[i];
    return NULL;
}

static int slots_out(const struct loader *loader)
{
    int count = 0;
    for (int i = 0; i < loader->slot_count; i++) count += loader->slots[i].state == SLOT_OUT;
    return count;
}

/* *slot is NULL where the epoch is over. */
static enum status next_slot(struct loader *loader, struct slot **slot, double *wait_seconds)
{
    *slot = NULL;
    if (loader->next >= loader->batches) return OK;
    assert(slots_out(loader) < loader->slot_count);
    *slot = ready_slot(loader);
    if (*slot) return OK;
    struct wait wait = {.from = clock_seconds()};
    while (!(*slot = ready_slot(loader))) TRY(wait_for_workers(loader, &wait));
    if (wait_seconds) *wait_seconds += clock_seconds() - wait.from;
    return OK;
}

bool loader_wait(struct loader *loader, double most)
{
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    int64_t nanoseconds = until.tv_nsec + (int64_t)(1e9 * most);
    until.tv_sec += nanoseconds / 1000000000;
    until.tv_nsec = nanoseconds % 1000000000;
    pthread_mutex_lock(&loader->lock);
    bool late = false;
    while (loader->next < loader->batches && !ready_slot(loader) && !late)
        late = pthread_cond_timedwait(&loader->done, &loader->lock, &until) != 0;
    bool there = loader->next >= loader->batches || ready_slot(loader);
    pthread_mutex_unlock(&loader->lock);
    return there;
}

enum status loader_next(struct loader *loader, struct batch **batch, double *wait_seconds)
{
    struct reason why;
    pthread_mutex_lock(&loader->lock);
    struct slot *slot;
    enum status status = next_slot(loader, &slot, wait_seconds);
    bool bad = slot && slot->bad_place < INT32_MAX;
    if (bad) {
        why = slot->why;
    } else if (slot) {
        slot->state = SLOT_OUT;
        loader->next++;
    }
    pthread_mutex_unlock(&loader->lock);
    TRY(status);
    if (bad) return fail(BAD_DATA, "%s", why.text);
    *batch = slot ? &slot->batch : NULL;
    return OK;
}

void loader_return(struct loader *loader, struct batch *batch)
{
    struct slot *slot = (struct slot *)batch;
    pthread_mutex_lock(&loader->lock);
    assert(slot->state == SLOT_OUT);
    slot->state = SLOT_FREE;
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

int64_t loader_bad_images(struct loader *loader)
{
    pthread_mutex_lock(&loader->lock);
    int64_t count = loader->bad_count;
    pthread_mutex_unlock(&loader->lock);
    return count;
}
