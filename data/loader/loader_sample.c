/* loader_sample.c: reads, augments and stores one image; an unusable image is replaced by another. */
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "data/dataset/masks.h"
#include "data/loader/loader_parts.h"

/* If this many replacements in a row are unusable, the run ends. */
#define REPLACEMENTS_MAX 100

/* The dataset's index of element i of what this loader serves. */
static int64_t index_of(const struct loader *loader, int64_t i)
{
    return loader->options.subset ? loader->options.subset[i] : i;
}

int views_count(const struct loader_views *views)
{
    return (views->mirrored ? 2 : 1) * (views->shift > 0 ? 3 : 1);
}

/* Unchanged, then to the upper left, then to the lower right, each of them mirrored before the next one. */
static int view_shift(const struct loader_views *views, int view)
{
    int turn = view / (views->mirrored ? 2 : 1);
    return turn == 0 ? 0 : turn == 1 ? views->shift : -views->shift;
}

void view_choose(const struct loader_views *views, int64_t number, struct batch *batch)
{
    batch->views = views_count(views);
    batch->view = (int)(number % batch->views);
    bool shifted = view_shift(views, batch->view) != 0;
    float part = views->shift == 0 ? 1 : shifted ? 0.25f : 0.5f;
    batch->weight = views->mirrored ? part / 2 : part;
}

static struct draw draw_of(const struct loader *loader, const struct batch *batch, int place)
{
    const struct loader_options *options = &loader->options;
    uint64_t epoch = (uint64_t)batch->epoch;
    if (!options->training) return (struct draw){index_of(loader, batch->first + place), 0};
    int repeats = options->repeats > 0 ? options->repeats : 1;
    struct draw draw = sampler_repeat(repeats, options->batch, batch->number, loader->share.first + place);
    if (options->shuffle)
        draw.image = sampler_permute(options->seed, epoch, options->count, draw.image);
    if (loader->by_class.classes > 0) {
        struct draw drawn = sampler_balance(options->seed, epoch, &loader->by_class, draw.image);
        draw = (struct draw){drawn.image, drawn.repetition * repeats + draw.repetition};
    }
    draw.image = index_of(loader, draw.image);
    return draw;
}

int64_t loader_image(const struct loader *loader, const struct batch *batch, int place)
{
    return draw_of(loader, batch, place).image;
}

/* A worker that returns late does not report. */
static void report_bad(struct loader *loader, int64_t index, const struct reason *reason)
{
    pthread_mutex_lock(&loader->lock);
    if (loader->options.bad_image && !loader->closing)
        loader->options.bad_image(loader->options.bad_context, index, reason->text);
    pthread_mutex_unlock(&loader->lock);
}

/* Augmentation's reasons say "the image"; this inserts the file's name. */
static void name_image(const struct dataset *dataset, int64_t index, struct reason *reason)
{
    char *path = dataset_image_path(dataset, index);
    if (path) because_of(reason, path, reason->text);
    free(path);
}

/* The crop of an image, once its size is known: when the decoder asks, or after it was read. */
struct view {
    const struct loader_options *options;
    const struct image *mask;    /* NULL: there are none */
    struct random *random;       /* NULL: evaluation */
    bool mirrored;
    int shift;
    struct cut cut;
    bool known;
    bool wrong;                  /* the mask has another size than the image */
};

static bool choose_cut(void *context, int h, int w, struct box *part, struct reason *reason)
{
    struct view *view = context;
    const struct loader_options *options = view->options;
    const struct cut_sizes sizes = {h, w, options->h, options->w};
    const struct augment *augment = &options->augment;
    view->wrong = view->mask && (view->mask->h != h || view->mask->w != w);
    bool good = view->mask ? augment_cut_masked(augment, view->random, &sizes, view->mask, &view->cut, reason)
                           : augment_cut(augment, view->random, &sizes, &view->cut, reason);
    if (!good) return false;
    if (view->mirrored) view->cut.flip = !view->cut.flip;
    view->cut.window.y += view->shift;
    view->cut.window.x += view->shift;
    view->known = true;
    *part = augment_needs(&view->cut);
    return true;
}

static bool cut_after_reading(struct view *view, const struct image *image, struct reason *reason)
{
    struct box unused;
    return view->known || choose_cut(view, image->full_h, image->full_w, &unused, reason);
}

static const struct image *read_image(struct worker *worker, int64_t index, const struct image_choice *choice,
                                      int *label, struct reason *reason)
{
    const struct loader_options *options = &worker->loader->options;
    const struct dataset *dataset = options->dataset;
    const struct image *image = worker->image;
    reading_begin(worker, index);
    if (options->cache)
        image = image_cache_read(options->cache, index, choice, worker->image, label, reason);
    else if (!dataset->format->read(dataset, index, choice, worker->image, label, reason))
        image = NULL;
    reading_end(worker);
    return image;
}

/* The mask of an image; NULL with the reason. */
static const struct image *read_mask(struct worker *worker, int64_t index, struct reason *reason)
{
    const struct loader_options *options = &worker->loader->options;
    const struct image *mask = worker->mask;
    int wrong = 0;
    reading_begin(worker, index);
    if (options->mask_cache)
        mask = image_cache_read(options->mask_cache, index, NULL, worker->mask, &wrong, reason);
    else if (!masks_read(options->dataset, index, worker->mask, &worker->wrong, reason))
        mask = NULL;
    reading_end(worker);
    worker->wrong = worker->wrong || wrong;
    return mask;
}

static uint8_t *target_mask(const struct loader *loader, struct target target)
{
    size_t pixels = (size_t)loader->options.h * (size_t)loader->options.w;
    return target.slot->batch.masks + (size_t)target.place * pixels;
}

/* The label of the image there, -1: none; and its target, if that is no class. */
static void put_label(const struct loader *loader, struct target target, int64_t index, int label)
{
    const struct batch *batch = &target.slot->batch;
    const struct dataset *dataset = loader->options.dataset;
    batch->labels[target.place] = label;
    if (!target_is_row(loader->targets.kind)) return;
    size_t row = targets_row(&loader->targets);
    float *own = batch->targets + (size_t)target.place * row;
    memset(own, 0, row * sizeof *own);
    if (label >= 0 && dataset->target > TARGET_CLASS)
        dataset_target(dataset, index, loader->targets.mean, loader->targets.std, own);
}

static void *target_pixels(const struct loader *loader, struct target target)
{
    return (char *)target.slot->batch.images + (size_t)target.place * loader->image_bytes;
}

/* An image cached on the device; false: it is not, or cannot be preprocessed from there. */
static bool put_kept(const struct loader *loader, int64_t index, struct view *view, struct target target)
{
    const struct loader_options *options = &loader->options;
    const struct kept_image *kept = options->kept ? &options->kept[index] : NULL;
    struct box unused;
    struct reason reason;
    if (!kept || kept->h == 0 || !choose_cut(view, kept->h, kept->w, &unused, &reason)) return false;
    if (!batch_packing_put_kept(&target.slot->packing, target.place, &view->cut, kept, view->random))
        return false;
    put_label(loader, target, index, kept->label);
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
    if (!jpeg_plain(bytes, count, &plain)) return false;
    if (plain.orientation != 1 && !options->dataset->ignore_orientation) return false;
    if (plain.h > decoder->h || plain.w > decoder->w || !choose_cut(view, plain.h, plain.w, &unused, &reason))
        return false;
    if (!batch_packing_put_decoded(&target.slot->packing, target.place, &view->cut, plain.w, view->random))
        return false;
    deferred_jpeg_put(target.slot->deferred, target.place, bytes, &plain);
    return true;
}

/* False: the worker decodes it, or reports the error; or it returned late, and the image is not needed. */
static bool leave_deferred(struct worker *worker, int64_t index, struct view *view, struct target target)
{
    const struct loader *loader = worker->loader;
    const struct dataset *dataset = loader->options.dataset;
    uint8_t *bytes;
    size_t count;
    int label;
    struct reason reason;
    if (target.here || !target.slot->deferred || !is_drawn(loader, index)) return false;
    reading_begin(worker, index);
    bool read = dataset->format->read_file(dataset, index, &bytes, &count, &label, &reason);
    reading_end(worker);
    if (!read) return false;
    bool left = !atomic_load(&loader->drop) && leave_file(worker, bytes, count, view, target);
    if (left) put_label(loader, target, index, label);
    else free(bytes);
    return left;
}

/* A device preprocesses bytes; that a set has deeper images is found out before, from a sample. */
static bool reduce_image(struct worker *worker, int64_t index, const struct image *image,
                         struct reason *reason)
{
    struct loader *loader = worker->loader;
    char *path = dataset_image_path(loader->options.dataset, index);
    if (!atomic_exchange(&loader->reduced, true))
        log_warning("%s: has more than 8 bits a sample; such images are reduced to 8, since those examined "
                    "at first have 8, for which the GPU preprocesses; data.range = LO,HI keeps all bits",
                    path ? path : "an image");
    free(path);
    return image_reduce(image, &loader->options.augment.range, &worker->reduced, reason);
}

static bool put_image(struct worker *worker, const struct view *view, int64_t index,
                      const struct image *image, struct target target, struct reason *reason)
{
    const struct loader *loader = worker->loader;
    const struct loader_options *options = &loader->options;
    const struct augmenting how = {&options->augment, view->random, &worker->scratch};
    if (options->device_preprocessing && image->deep) {
        if (!reduce_image(worker, index, image, reason)) return false;
        image = &worker->reduced;
    }
    if (options->device_preprocessing)
        return batch_packing_put(&target.slot->packing, target.place, &how, &view->cut, image, reason);
    return augment_apply(&how, &loader->table, &view->cut, image, target_pixels(loader, target), reason);
}

void sample_none(const struct loader *loader, struct target target)
{
    if (loader->options.device_preprocessing) batch_packing_put_nothing(&target.slot->packing, target.place);
    else memset(target_pixels(loader, target), 0, loader->image_bytes);
    if (loader->masks_bytes > 0)
        memset(target_mask(loader, target), MASK_IGNORE,
               (size_t)loader->options.h * (size_t)loader->options.w);
    put_label(loader, target, -1, -1);
}

/* Half of the images are mirrored in epochs 0, 2, ..., the others in between; the repetitions of an image
 * within an epoch take turns, too. */
static bool is_mirrored(const struct loader *loader, const struct batch *batch, int64_t index, int64_t named)
{
    const struct loader_options *options = &loader->options;
    if (!options->alternate) return options->views.mirrored && batch->view % 2;
    struct random random = random_open(options->seed, PURPOSE_FLIP, 0, (uint64_t)index);
    int64_t turn = batch->epoch + named / options->dataset->count;
    return (random_next(&random) + (uint64_t)turn) % 2 == 1;
}

/* Unusable images were reported when the features were computed. */
static bool put_features(const struct loader *loader, int64_t index, struct target target,
                         struct reason *reason)
{
    const struct loader_features *features = loader->options.features;
    int64_t row = features->row[index];
    if (row < 0) {
        because(reason, "the image cannot be used");
        name_image(loader->options.dataset, index, reason);
        return false;
    }
    dtype_convert(loader->options.dtype, target_pixels(loader, target), F32,
                  features->rows + row * features->count, (size_t)features->count);
    put_label(loader, target, index, features->labels[row]);
    return true;
}

/* Reads an image, or has it read, and cuts it. */
static bool load_pixels(struct worker *worker, int64_t index, struct view *view, struct random begin,
                        struct target target, struct reason *reason)
{
    struct loader *loader = worker->loader;
    struct random *random = view->random;
    int label;
    if (put_kept(loader, index, view, target)) return true;
    if (random) *random = begin;
    if (leave_deferred(worker, index, view, target) || atomic_load(&loader->drop)) return true;
    if (random) *random = begin;
    view->known = false;
    struct image_choice choice = {.choose = choose_cut, .context = view};
    const struct image *image = read_image(worker, index, &choice, &label, reason);
    if (atomic_load(&loader->drop)) return true;
    if (!image) return false;
    if (cut_after_reading(view, image, reason) && put_image(worker, view, index, image, target, reason)) {
        put_label(loader, target, index, label);
        return true;
    }
    name_image(loader->options.dataset, index, reason);
    return false;
}

/* Reads image `index` and augments it by the random numbers that `named` names: the index of the image that
 * belongs there, or beyond them one of its repetitions. Its mask is read before it, because a crop may have
 * to hold some of that. */
static bool load_image(struct worker *worker, int64_t index, int64_t named, struct target target,
                       struct reason *reason)
{
    struct loader *loader = worker->loader;
    const struct loader_options *options = &loader->options;
    if (options->features) return put_features(loader, index, target, reason);
    struct random random =
        random_open(options->seed, PURPOSE_AUGMENT, (uint64_t)loader->epoch, (uint64_t)named), begin = random;
    struct view view = {.options = options, .random = options->training ? &random : NULL,
                        .mirrored = is_mirrored(loader, &target.slot->batch, index, named),
                        .shift = view_shift(&options->views, target.slot->batch.view)};
    bool masks = loader->masks_bytes > 0;
    worker->wrong = false;
    bool good = !masks || (view.mask = read_mask(worker, index, reason));
    good = good && load_pixels(worker, index, &view, begin, target, reason);
    if (good && masks && view.known) augment_mask(&view.cut, view.mask, target_mask(loader, target));
    worker->wrong = worker->wrong || view.wrong;
    if (good || atomic_load(&loader->drop)) return true;
    if (!worker->wrong) report_bad(loader, index, reason);
    return false;
}

static int64_t draw_below(struct random *random, int64_t limit)
{
    if (limit <= UINT32_MAX) return random_below(random, (uint32_t)limit);
    uint64_t high = random_next(random);
    return (int64_t)((high << 32 | random_next(random)) % (uint64_t)limit);
}

static bool load_replacement(struct worker *worker, int64_t named, struct target target,
                             struct reason *reason)
{
    const struct loader *loader = worker->loader;
    struct random random = random_open(loader->options.seed, PURPOSE_REPLACE, (uint64_t)loader->epoch,
                                       (uint64_t)named);
    target.here = true;        /* each position is filled once */
    for (int attempt = 0; attempt < REPLACEMENTS_MAX; attempt++) {
        if (atomic_load(&loader->drop)) return true;
        int64_t other = index_of(loader, draw_below(&random, loader->options.count));
        if (load_image(worker, other, named, target, reason)) return true;
        if (worker->wrong) return false;
    }
    struct reason last = *reason;
    return because(reason, "%d replacements in a row are unusable too, the last one: %.160s",
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

/* Records that the batch's own image was unusable, even if it is replaced. */
static void count_bad(struct loader *loader, struct slot *slot)
{
    pthread_mutex_lock(&loader->lock);
    slot->batch.bad++;
    pthread_mutex_unlock(&loader->lock);
}

void sample_fill(struct worker *worker, struct target target)
{
    struct loader *loader = worker->loader;
    struct slot *slot = target.slot;
    struct draw draw = draw_of(loader, &slot->batch, target.place);
    int64_t named = draw.image + draw.repetition * loader->options.dataset->count;
    struct reason reason;
    if (load_image(worker, draw.image, named, target, &reason)) return;
    count_bad(loader, slot);
    bool stop = loader->options.stop_on_error || worker->wrong;
    bool replace = loader->options.training && !stop;
    if (replace && load_replacement(worker, named, target, &reason)) return;
    sample_none(loader, target);
    if (replace || stop) stop_at(loader, slot, target.place, &reason);
}
