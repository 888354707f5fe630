/* loader_batch.c: the batches in preparation, one per slot, read, decoded and mixed in chunks. */
#include <stdlib.h>
#include <string.h>

#include "base/align.h"
#include "base/memory.h"
#include "data/loader/loader_parts.h"

static void *slot_allocate(const struct loader_options *options, size_t bytes)
{
    if (options->allocate) return options->allocate(options->memory_context, bytes);
    return aligned_alloc(64, align_up(bytes, 64));
}

static void slot_release(const struct loader_options *options, void *memory, size_t bytes)
{
    if (options->allocate)
        options->release(options->memory_context, memory, bytes);
    else
        free(memory);
}

/* Each slot has its part of the room. */
static void slot_make_deferred(const struct loader *loader, struct slot *slot, int i)
{
    const struct loader_decoder *decoder = &loader->options.decoder;
    slot->room = (size_t)i * decoder->batch_bytes;
    const struct deferred_room room = {decoder->room + slot->room, decoder->batch_bytes};
    slot->deferred = deferred_jpeg_new(decoder->decoder, room, loader->share.count);
}

enum status slots_make(struct loader *loader)
{
    const struct loader_options *options = &loader->options;
    loader->slots = memory_new((size_t)loader->slot_count, sizeof *loader->slots);
    for (int i = 0; i < loader->slot_count; i++) {
        struct batch *batch = &loader->slots[i].batch;
        bool masks = loader->masks_bytes > 0;
        batch->labels = memory_new((size_t)loader->share.count, sizeof *batch->labels);
        batch->images = slot_allocate(options, loader->batch_bytes);
        loader->slots[i].device_preprocessing = (struct device_preprocessing){
            .count = loader->share.count, .h = options->h, .w = options->w, .mixed = loader->mixes,
        };
        if (options->device_preprocessing)
            batch->device_preprocessing = &loader->slots[i].device_preprocessing;
        if (options->decoder.decoder) slot_make_deferred(loader, &loader->slots[i], i);
        batch->count_numbers = options->classes * (masks ? loader->mask_targets.outputs : 1);
        if (loader->counts) batch->counts = memory_new((size_t)batch->count_numbers, sizeof *batch->counts);
        if (loader->makes_targets && !masks) batch->targets = slot_allocate(options, loader->targets_bytes);
        if (masks) batch->masks = slot_allocate(options, loader->masks_bytes);
        if (!batch->images || (masks && !batch->masks) ||
            (loader->makes_targets && !masks && !batch->targets))
            return fail(FAILED, "not enough memory for %d batches of %zu bytes", loader->slot_count,
                        loader->batch_bytes);
    }
    return OK;
}

void slots_free(struct loader *loader)
{
    for (int i = 0; i < loader->slot_count; i++) {
        struct slot *slot = &loader->slots[i];
        if (slot->batch.images) slot_release(&loader->options, slot->batch.images, loader->batch_bytes);
        if (slot->batch.targets) slot_release(&loader->options, slot->batch.targets, loader->targets_bytes);
        if (slot->batch.masks) slot_release(&loader->options, slot->batch.masks, loader->masks_bytes);
        free(slot->batch.labels);
        free(slot->batch.counts);
        deferred_jpeg_free(slot->deferred);
    }
    free(loader->slots);
}

static void empty_places(const struct loader *loader, struct slot *slot)
{
    for (int i = slot->batch.count; i < loader->share.count; i++)
        sample_none(loader, (struct target){.slot = slot, .place = i});
}

static void fill_chunk(struct worker *worker, struct chunk chunk)
{
    struct loader *loader = worker->loader;
    for (int i = 0; i < chunk.count; i++) {
        if (atomic_load(&loader->drop)) return;
        sample_fill(worker, (struct target){.slot = chunk.slot, .place = chunk.first + i});
    }
    if (chunk.first + chunk.count == chunk.slot->batch.count) empty_places(loader, chunk.slot);
}

/* Images that the device cannot decode are decoded by this worker. */
static void decode_piece(struct worker *worker, struct slot *slot, int piece)
{
    const int *places;
    if (atomic_load(&worker->loader->drop)) return;
    deferred_jpeg_decode(slot->deferred, piece);
    int count = deferred_jpeg_places(slot->deferred, piece, &places);
    for (int i = 0; i < count; i++) {
        struct target target = {.slot = slot, .place = places[i], .here = true};
        int64_t at = deferred_jpeg_at(slot->deferred, places[i]);
        if (atomic_load(&worker->loader->drop)) return;
        if (at < 0) sample_fill(worker, target);
        else batch_packing_decoded_at(&slot->packing, places[i], (int64_t)slot->room + at);
    }
}

void loader_weigh(const struct loader *loader, struct batch *batch)
{
    if (batch->masks) {
        mask_targets_weigh(&loader->mask_targets, batch->counts, loader->share.count, loader->options.batch,
                           batch->masks);
        return;
    }
    double factor = targets_factor(&loader->targets, batch->counts);
    targets_make(&loader->targets, NULL, factor, batch->labels, loader->share.count, batch->targets);
}

static void make_targets(const struct loader *loader, const struct mix *mix, struct batch *batch)
{
    int count = loader->share.count;
    if (batch->masks) {
        mask_targets_count(&loader->mask_targets, batch->masks, count, batch->counts);
        loader_weigh(loader, batch);
    } else if (target_is_row(loader->targets.kind)) {
        targets_finish(&loader->targets, mix, count, batch->targets);
    } else if (loader->counts) {
        memset(batch->counts, 0, (size_t)loader->options.classes * sizeof *batch->counts);
        for (int i = 0; i < count; i++) batch->counts[batch->labels[i]]++;
        loader_weigh(loader, batch);
    } else {
        targets_make(&loader->targets, mix, 1, batch->labels, count, batch->targets);
    }
}

/* The rows of a piece, of all images of the batch. The division into pieces does not change a bit. */
static void mix_piece(const struct loader *loader, struct slot *slot, int piece)
{
    const struct loader_options *options = &loader->options;
    struct batch *batch = &slot->batch;
    if (!loader->mixes) {
        make_targets(loader, NULL, batch);
        return;
    }
    struct random random =
        random_open(options->seed, PURPOSE_MIX, (uint64_t)batch->epoch, (uint64_t)batch->number);
    struct mix mix = mix_draw(&options->mix, &random, options->h, options->w);
    mix.together = loader->together;
    if (piece == 0) make_targets(loader, &mix, batch);
    if (options->device_preprocessing) {
        slot->device_preprocessing.mix = mix;
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

void chunk_do(struct worker *worker, struct chunk chunk)
{
    if (chunk.slot->state == SLOT_MIXING)
        mix_piece(worker->loader, chunk.slot, chunk.first);
    else if (chunk.slot->state == SLOT_DECODING)
        decode_piece(worker, chunk.slot, chunk.first);
    else
        fill_chunk(worker, chunk);
}

/* The functions below are called with the lock held */

static struct slot *slot_begin(struct loader *loader)
{
    for (int i = 0; i < loader->slot_count; i++) {
        struct slot *slot = &loader->slots[i];
        if (slot->state != SLOT_FREE) continue;
        struct batch *batch = &slot->batch;
        batch->epoch = loader->epoch;
        batch->number = loader->filling;
        batch->bad = 0;
        view_choose(&loader->options.views, loader->filling, batch);
        batch->first = loader->filling / batch->views * loader->options.batch + loader->share.first;
        int64_t count = loader->limit > batch->first ? loader->limit - batch->first : 0;
        batch->count = count < loader->share.count ? (int)count : loader->share.count;
        slot->state = SLOT_FILLING;
        slot->left = batch->count;
        slot->bad_place = INT32_MAX;
        if (loader->options.device_preprocessing)
            batch_packing_begin(&slot->packing, &loader->options.augment, loader_varies(&loader->options),
                                loader->share.count, loader->options.h, loader->options.w, batch->images);
        if (slot->deferred) deferred_jpeg_clear(slot->deferred);
        return slot;
    }
    return NULL;
}

/* True if pieces of a batch can be worked on; of those that a device decodes, so many at a time. */
static bool has_pieces(const struct loader *loader, const struct slot *slot)
{
    if (slot->state != SLOT_MIXING && slot->state != SLOT_DECODING) return false;
    if (slot->state == SLOT_DECODING && loader->decoding == loader->options.decoder.decoder->callers)
        return false;
    return slot->handed < slot->pieces;
}

/* The next piece of a batch of which all files are there but not all is decoded, or all but not mixed: of the
 * batch that is wanted first. */
static bool piece_next(struct loader *loader, struct chunk *chunk)
{
    bool any = loader->makes_targets || loader->options.decoder.decoder;
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
bool chunk_next(struct loader *loader, struct chunk *chunk)
{
    if (atomic_load(&loader->drop)) return false;
    if (piece_next(loader, chunk)) return true;
    if (loader->filling >= loader->batches) return false;
    if (!loader->fill) {
        loader->fill = slot_begin(loader);
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

static void slot_begin_stage(struct loader *loader, struct slot *slot, enum slot_state state, int pieces)
{
    slot->state = state;
    slot->handed = 0;
    slot->pieces = slot->left = pieces;
    pthread_cond_broadcast(&loader->work);
}

/* Files are decoded by a device, if there are any; then images are mixed, if configured. A batch that stops
 * the run is not processed further. */
static void slot_end_stage(struct loader *loader, struct slot *slot)
{
    bool good = slot->bad_place == INT32_MAX, filled = slot->state == SLOT_FILLING;
    int pieces = good && filled && slot->deferred ? deferred_jpeg_order(slot->deferred) : 0;
    slot->device_preprocessing.bytes = atomic_load(&slot->packing.used);
    slot->device_preprocessing.shared = atomic_load(&slot->packing.shared);
    slot->device_preprocessing.varied = atomic_load(&slot->packing.varied);
    if (pieces > 0) slot_begin_stage(loader, slot, SLOT_DECODING, pieces);
    else if (good && loader->makes_targets && slot->state != SLOT_MIXING)
        slot_begin_stage(loader, slot, SLOT_MIXING, loader->pieces);
    else slot->state = SLOT_READY;
}

void chunk_end(struct loader *loader, struct chunk chunk)
{
    loader->busy--;
    loader->decoding -= chunk.slot->state == SLOT_DECODING;
    chunk.slot->left -= chunk.count;
    if (chunk.slot->left == 0) slot_end_stage(loader, chunk.slot);
    if (chunk.slot->left == 0 || loader->busy == 0) pthread_cond_signal(&loader->done);
}
