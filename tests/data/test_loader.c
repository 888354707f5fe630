/* The loader: the same batches for any number of threads, every image once, a clean stop at any moment. */
#include <math.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/guest.h"
#include "base/memory.h"
#include "base/text.h"
#include "data/loader/loader.h"
#include "data/loader/sampler.h"
#include "data/loader/targets.h"
#include "tests/support/data_case.h"
#include "tests/support/process.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

static struct dataset synthetic(int64_t count)
{
    struct dataset dataset = {0};
    struct dataset_options options = {
        .seed = 3, .h = 9, .w = 8, .c = 3, .classes = 7, .synthetic_count = count};
    assert_int_equal(dataset_open(format_find("synthetic"), &options, &dataset), OK);
    return dataset;
}

static struct loader_options training(struct dataset *dataset)
{
    return (struct loader_options){
        .dataset = dataset,
        .count = dataset->count,
        .augment = {.pad = 2, .random_crop = true, .flip = 0.5, .channels = 3, .std = {1, 1, 1, 1}},
        .training = true,
        .shuffle = true,
        .batch = 16,
        .h = 9,
        .w = 8,
        .channels = 3,
        .dtype = F32,
        .workers = 1,
        .prefetch = 2,
        .seed = 42,
    };
}

static struct loader *opened(const struct loader_options *options)
{
    struct loader *loader = NULL;
    assert_int_equal(loader_open(options, &loader), OK);
    return loader;
}

static uint64_t mixed(uint64_t hash, const void *data, size_t count)
{
    const uint8_t *bytes = data;
    for (size_t i = 0; i < count; i++) hash = (hash ^ bytes[i]) * 0x100000001b3u;
    return hash;
}

static uint64_t hash_of(const struct loader_options *options, const struct batch *batch)
{
    size_t elements = (size_t)(options->batch * options->h * options->w * options->channels);
    uint64_t hash = mixed(0xcbf29ce484222325u, batch->images, elements * dtype_bytes(options->dtype));
    size_t numbers = (size_t)options->batch * target_numbers(options->classes);
    if (batch->targets) hash = mixed(hash, batch->targets, numbers * sizeof(float));
    return mixed(hash, batch->labels, (size_t)options->batch * sizeof *batch->labels);
}

/* The batches of an epoch from `first` on, as hashes; the array's length is loader_batches. Returns
 * how many images of them were bad. */
static int read_epoch(struct loader *loader, const struct loader_options *options, int64_t epoch,
                      int64_t first, uint64_t *hashes)
{
    struct batch *batch;
    int bad = 0;
    assert_int_equal(loader_start(loader, epoch, first), OK);
    for (int64_t number = first;; number++) {
        assert_int_equal(loader_next(loader, &batch, NULL), OK);
        if (!batch) {
            assert_int_equal(number, loader_batches(loader));
            return bad;
        }
        assert_int_equal(batch->number, number);
        assert_int_equal(batch->epoch, epoch);
        assert_int_equal(batch->first, number * options->batch);
        hashes[number] = hash_of(options, batch);
        bad += batch->bad;
        loader_return(loader, batch);
    }
}

#define BATCHES 12

static void workers_and_prefetch_change_nothing(void **state)
{
    static const int workers[] = {1, 2, 5, 16}, prefetch[] = {1, 3, 8};
    struct dataset dataset = synthetic(BATCHES * 16 + 5);
    uint64_t want[2][BATCHES], got[BATCHES];
    struct loader_options options = training(&dataset);
    for (int i = 0; i < 4; i++) {
        for (int j = 0; j < 3; j++) {
            options.workers = workers[i];
            options.prefetch = prefetch[j];
            options.helps = (i + j) % 2;
            struct loader *loader = opened(&options);
            assert_int_equal(loader_batches(loader), BATCHES);
            for (int epoch = 0; epoch < 2; epoch++) {
                read_epoch(loader, &options, epoch, 0, i + j ? got : want[epoch]);
                if (i + j) assert_memory_equal(got, want[epoch], sizeof got);
            }
            loader_close(loader);
        }
    }
    assert_memory_not_equal(want[0], want[1], sizeof got);
    dataset_close(&dataset);
}

/* Everything that draws: jitter, policy, erasing and mixing of batches. */
static struct loader_options varied(struct dataset *dataset)
{
    struct loader_options options = training(dataset);
    options.augment.policy = POLICY_TRIVIAL;
    options.augment.erase = 0.5;
    for (int i = 0; i < 4; i++) options.augment.jitter[i] = 0.3;
    options.mix = (struct mix_settings){.mixup = 0.4, .cutmix = 1};
    options.classes = 9;
    return options;
}

static void workers_change_no_mixture(void **state)
{
    static const int workers[] = {1, 2, 5, 16};
    struct dataset dataset = synthetic(BATCHES * 16 + 5);
    struct loader_options options = varied(&dataset);
    uint64_t want[BATCHES], got[BATCHES];
    for (enum dtype dtype = F32; dtype <= BF16; dtype++) {
        options.dtype = dtype;
        for (int i = 0; i < 4; i++) {
            options.workers = workers[i];
            options.prefetch = 1 + i;
            struct loader *loader = opened(&options);
            read_epoch(loader, &options, 2, 0, i ? got : want);
            if (i) assert_memory_equal(got, want, sizeof got);
            loader_close(loader);
        }
    }
    dataset_close(&dataset);
}

/* Copies of an image in a batch are augmented differently; so are those of balanced classes. */
static void copies_are_augmented_anew(void **state)
{
    struct dataset dataset = synthetic(BATCHES * 16);
    struct loader_options options = varied(&dataset);
    options.mix = (struct mix_settings){0};
    options.repeats = 2;
    for (int balance = 0; balance < 2; balance++) {
        options.balance = balance;
        struct loader *loader = opened(&options);
        struct batch *batch;
        int64_t bytes = (int64_t)sizeof(float) * options.h * options.w * 3, same = 0;
        assert_int_equal(loader_start(loader, 0, 0), OK);
        assert_int_equal(loader_batches(loader), BATCHES);
        while (loader_next(loader, &batch, NULL) == OK && batch) {
            const char *pixels = batch->images;
            for (int i = 0; i < 8; i++) {
                assert_int_equal(loader_image(loader, batch, i), loader_image(loader, batch, i + 8));
                assert_int_equal(batch->labels[i], batch->labels[i + 8]);
                same += memcmp(pixels + i * bytes, pixels + (i + 8) * bytes, (size_t)bytes) == 0;
            }
            loader_return(loader, batch);
        }
        assert_in_range(same, 0, BATCHES);      /* both may be black, shifted out of sight */
        loader_close(loader);
    }
    dataset_close(&dataset);
}

/* A pixel of an image of 9 x 8 x 3, which is black beyond its edges. */
static float pixel(const float *image, int y, int x, int k)
{
    return y < 0 || y >= 9 || x < 0 || x >= 8 ? 0 : image[(y * 8 + x) * 3 + k];
}

/* The images of a view are those of the first one, shifted, and then mirrored. */
static void check_view(const struct batch *plain, const struct batch *view, int shift, bool mirrored)
{
    assert_int_equal(view->count, plain->count);
    assert_memory_equal(view->labels, plain->labels, (size_t)plain->count * sizeof *plain->labels);
    for (int i = 0; i < plain->count; i++) {
        const float *a = (float *)plain->images + i * 9 * 8 * 3, *b = (float *)view->images + i * 9 * 8 * 3;
        for (int at = 0; at < 9 * 8 * 3; at++) {
            int y = at / 24, x = at / 3 % 8;
            assert_true(b[at] == pixel(a, y + shift, (mirrored ? 7 - x : x) + shift, at % 3));
        }
    }
}

/* Each batch of an evaluation comes again for every other view, the last one and shares of ranks too. */
static void check_views(const struct loader_options *options, int views, float weight)
{
    static const int turns[] = {0, 1, -1};
    bool mirrored = options->views.mirrored;
    struct loader *loader = opened(options);
    struct batch *plain, *view;
    int seen = 0;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    assert_int_equal(loader_batches(loader), 3 * views);
    while (loader_next(loader, &plain, NULL) == OK && plain) {
        float weights = plain->weight;
        assert_int_equal(plain->view, 0);
        assert_int_equal(plain->views, views);
        assert_true(plain->weight == weight);
        for (int i = 1; i < views; i++, loader_return(loader, view)) {
            assert_int_equal(loader_next(loader, &view, NULL), OK);
            assert_int_equal(view->view, i);
            check_view(plain, view, turns[mirrored ? i / 2 : i] * options->views.shift, mirrored && i % 2);
            weights += view->weight;
        }
        assert_true(weights == 1);
        seen += plain->count;
        loader_return(loader, plain);
    }
    if (options->ranks == 1) assert_int_equal(seen, 37);
    loader_close(loader);
}

static void batches_come_again_in_every_view(void **state)
{
    struct dataset dataset = synthetic(37);
    struct loader_options options = training(&dataset);
    options.training = false;
    for (options.ranks = 1; options.ranks <= 2; options.ranks++)
        for (options.rank = 0; options.rank < options.ranks; options.rank++) {
            options.views = (struct loader_views){true, 0};
            check_views(&options, 2, 0.5f);
            options.views = (struct loader_views){false, 2};
            check_views(&options, 3, 0.5f);
            options.views = (struct loader_views){true, 1};
            check_views(&options, 6, 0.25f);
        }
    dataset_close(&dataset);
}

/* Sums that tell an image from its mirror image. */
static void take_sides(struct loader *loader, int64_t epoch, double *sides)
{
    struct batch *batch;
    assert_int_equal(loader_start(loader, epoch, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        for (int i = 0; i < batch->count; i++) {
            const float *pixels = (float *)batch->images + i * 9 * 8 * 3;
            double *side = &sides[loader_image(loader, batch, i)];
            *side = 0;
            for (int at = 0; at < 9 * 8 * 3; at++) *side += pixels[at] * (at / 3 % 8 - 3.5);
        }
        loader_return(loader, batch);
    }
}

static void images_are_mirrored_in_every_second_epoch(void **state)
{
    enum { COUNT = 320 };
    struct dataset dataset = synthetic(COUNT);
    struct loader_options options = training(&dataset);
    double plain[COUNT], sides[3][COUNT];
    options.augment.flip = options.augment.pad = options.augment.random_crop = 0;
    struct loader *loader = opened(&options);
    take_sides(loader, 0, plain);
    loader_close(loader);
    options.alternate = true;
    loader = opened(&options);
    for (int epoch = 0; epoch < 3; epoch++) take_sides(loader, epoch, sides[epoch]);
    loader_close(loader);
    int mirrored = 0;
    for (int i = 0; i < COUNT; i++) {
        assert_true(fabs(plain[i]) > 1e-3);
        assert_true(sides[0][i] * sides[1][i] < 0 && sides[0][i] == sides[2][i]);
        assert_true(fabs(fabs(sides[0][i]) - fabs(plain[i])) < 1e-3);
        mirrored += sides[0][i] * plain[i] < 0;
    }
    assert_in_range(mirrored, COUNT / 2 - 40, COUNT / 2 + 40);
    dataset_close(&dataset);
}

/* A target holds the shares of an image's own class and of the one before it. */
static void targets_go_with_labels(void **state)
{
    struct dataset dataset = synthetic(BATCHES * 16);
    struct loader_options options = varied(&dataset);
    options.workers = 3;
    struct loader *loader = opened(&options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        assert_ptr_equal(batch_targets(batch), batch->targets);
        float share = -1;
        for (int i = 0; i < 16; i++) {
            const float *target = batch->targets + 10 * i;
            int32_t own = batch->labels[i], other = batch->labels[(i + 15) % 16];
            float sum = 0;
            for (int k = 0; k < 9; k++) {
                sum += target[k];
                if (k != own && k != other) assert_true(target[k] == 0);
            }
            assert_true(sum > 0.9999f && sum < 1.0001f);
            if (own == other) continue;
            if (share < 0) share = target[own];
            assert_true(target[own] == share);
        }
        loader_return(loader, batch);
    }
    loader_close(loader);
    options.training = options.shuffle = false;
    loader = opened(&options);
    assert_int_equal(loader_start(loader, 0, 0), OK);
    assert_int_equal(loader_next(loader, &batch, NULL), OK);
    assert_null(batch->targets);
    assert_ptr_equal(batch_targets(batch), batch->labels);
    loader_close(loader);
    dataset_close(&dataset);
}

static void resumed_epochs_are_the_same(void **state)
{
    struct dataset dataset = synthetic(BATCHES * 16);
    struct loader_options options = varied(&dataset);
    uint64_t want[BATCHES], got[BATCHES];
    options.workers = 3;
    struct loader *loader = opened(&options);
    read_epoch(loader, &options, 5, 0, want);
    for (int first = 0; first <= BATCHES; first++) {
        struct batch *batch;
        assert_int_equal(loader_start(loader, 4, 0), OK);          /* dropped half-way */
        assert_int_equal(loader_next(loader, &batch, NULL), OK);
        loader_return(loader, batch);
        memcpy(got, want, sizeof got);
        memset(got + first, 0, (size_t)(BATCHES - first) * sizeof *got);
        read_epoch(loader, &options, 5, first, got);
        assert_memory_equal(got, want, sizeof got);
    }
    loader_close(loader);
    dataset_close(&dataset);
}

/* JPEG files of many sizes in a folder, decoded in part, one of them broken: the same batches for any
 * workers, resumed or not, and the same as of files decoded whole. */

static void write_pictures(const char *folder)
{
    for (int i = 0; i < 40; i++) {
        int w = 40 + 7 * i, h = 300 - 6 * i;
        uint8_t *pixels = memory_new((size_t)(w * h), 3);
        for (int k = 0; k < w * h * 3; k++) pixels[k] = (uint8_t)(k % w + k / w + 50 * (k % 3) + i);
        char *name = text_format("%c/%d.jpg", "abc"[i % 3], i);
        struct jpeg_sampling sampling = {1 + i % 2, 1 + i % 3 % 2, i % 7 == 0, i % 5 == 0};
        struct bytes jpeg = case_jpeg_sampled(w, h, sampling, pixels);
        if (i == 11) jpeg.count /= 2;
        case_write_bytes(folder, name, jpeg);
        free(name);
        free(pixels);
    }
}

static bool gzip_file_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                           struct image *image, int *label, struct reason *reason)
{
    (void)choice;
    return format_find("folder")->read(dataset, index, NULL, image, label, reason);
}

static void parts_of_files_make_the_same_batches(void **state)
{
    static const int workers[] = {1, 2, 5, 16};
    char *root = case_folder();
    struct dataset dataset;
    struct dataset_options options = {.path = root};
    write_pictures(root);
    assert_int_equal(dataset_open(format_find("folder"), &options, &dataset), OK);
    struct format whole = *dataset.format;
    struct dataset wholes = dataset;
    whole.read = gzip_file_read;
    wholes.format = &whole;
    for (int resized = 0; resized < 2; resized++) {
        uint64_t want[5], got[5];
        struct loader_options loading = varied(&wholes);
        loading.augment = (struct augment){.crop = 24, .random_resized = resized, .scale = {0.08, 1},
                                           .ratio = {0.75, 4 / 3.0}, .random_crop = true, .resize = {32, 32},
                                           .flip = 0.5, .channels = 3, .std = {1, 1, 1}};
        loading.batch = 8, loading.h = loading.w = 24, loading.dtype = F16;
        struct loader *loader = opened(&loading);
        assert_int_equal(read_epoch(loader, &loading, 3, 0, want), 1);
        loader_close(loader);
        loading.dataset = &dataset;
        for (int i = 0; i < 4; i++) {
            loading.workers = workers[i];
            loader = opened(&loading);
            for (int first = 0; first < 5; first += 2) {
                memcpy(got, want, sizeof got);
                memset(got + first, 0, (size_t)(5 - first) * sizeof *got);
                read_epoch(loader, &loading, 3, first, got);
                assert_memory_equal(got, want, sizeof got);
            }
            loader_close(loader);
        }
    }
    dataset_close(&dataset);
    case_remove(root);
}

/* A dataset whose image i is one pixel, i % 256, i / 256, 77, and cannot be read where i % bad == 1. */
struct counting {
    int64_t bad;
};

static bool counting_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                          struct image *image, int *label, struct reason *reason)
{
    (void)choice;
    const struct counting *counting = dataset->state;
    if (counting->bad && index % counting->bad == 1) return because(reason, "image %d is bad", (int)index);
    if (!image_resize_buffer(image, 1, 1, 3, reason)) return false;
    memcpy(image->pixels, (uint8_t[]){(uint8_t)index, (uint8_t)(index >> 8), 77}, 3);
    *label = (int)(index % 10);
    return true;
}

static const struct format counting_format = {.name = "counting", .read = counting_read};

static struct loader_options counted(struct dataset *dataset, struct counting *counting, int64_t count)
{
    *dataset = (struct dataset){
        .format = &counting_format, .count = count, .classes = 10, .h = 1, .w = 1, .c = 3, .state = counting};
    struct loader_options options = training(dataset);
    options.augment.pad = 0;
    options.h = options.w = 1;
    options.workers = 4;
    return options;
}

static int64_t index_in(const struct batch *batch, int i)
{
    const float *pixel = (const float *)batch->images + 3 * i;
    return (int)(pixel[0] * 255 + 0.5f) + 256 * (int)(pixel[1] * 255 + 0.5f);
}

struct masked {
    struct counting counting;
    atomic_int reads, requests, crashes;        /* reads with SIGTERM blocked, and with SIGSEGV */
};

static bool masked_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                        struct image *image, int *label, struct reason *reason)
{
    struct masked *masked = dataset->state;
    sigset_t blocked;
    pthread_sigmask(SIG_BLOCK, NULL, &blocked);
    masked->reads++;
    masked->requests += sigismember(&blocked, SIGTERM);
    masked->crashes += sigismember(&blocked, SIGSEGV);
    return counting_read(dataset, index, choice, image, label, reason);
}

static const struct format masked_format = {.name = "masked", .read = masked_read};

/* A crash in a worker that blocks its signal would end the process without a word, a sanitizer's too. */
static void workers_hold_requests_but_no_crashes(void **state)
{
    struct dataset dataset;
    struct masked masked = {0};
    struct loader_options options = counted(&dataset, &masked.counting, 64);
    dataset.format = &masked_format;
    struct loader *loader = opened(&options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) loader_return(loader, batch);
    loader_close(loader);
    assert_true(masked.reads >= 64);
    assert_int_equal(masked.requests, masked.reads);
    assert_int_equal(masked.crashes, 0);
}

static void training_sees_each_image_once(void **state)
{
    struct dataset dataset;
    struct counting counting = {0};
    struct loader_options options = counted(&dataset, &counting, 1000);
    int64_t order[2][992];
    struct loader *loader = opened(&options);
    for (int epoch = 0; epoch < 2; epoch++) {
        bool seen[1000] = {false};
        struct batch *batch;
        assert_int_equal(loader_start(loader, epoch, 0), OK);
        while (loader_next(loader, &batch, NULL) == OK && batch) {
            assert_int_equal(batch->count, 16);
            for (int i = 0; i < 16; i++) {
                int64_t index = index_in(batch, i);
                assert_false(seen[index]);
                seen[index] = true;
                assert_int_equal(batch->labels[i], index % 10);
                order[epoch][batch->first + i] = index;
            }
            loader_return(loader, batch);
        }
    }
    assert_memory_not_equal(order[0], order[1], sizeof order[0]);
    loader_close(loader);
}

static void evaluation_is_in_file_order_and_complete(void **state)
{
    struct dataset dataset;
    struct counting counting = {0};
    struct loader_options options = counted(&dataset, &counting, 100);
    int64_t subset[37];
    for (int i = 0; i < 37; i++) subset[i] = 2 * i + 3;
    options.subset = subset;
    options.count = 37;
    options.training = false;
    struct loader *loader = opened(&options);
    assert_int_equal(loader_batches(loader), 3);
    struct batch *batch;
    int seen = 0;
    for (int pass = 0; pass < 2; pass++) {
        assert_int_equal(loader_start(loader, pass, 0), OK);
        for (seen = 0; loader_next(loader, &batch, NULL) == OK && batch; seen += batch->count) {
            for (int i = 0; i < batch->count; i++) assert_int_equal(index_in(batch, i), 2 * (seen + i) + 3);
            for (int i = batch->count; i < 16; i++) {
                assert_int_equal(batch->labels[i], -1);
                assert_int_equal(index_in(batch, i), 0);
            }
            loader_return(loader, batch);
        }
        assert_int_equal(seen, 37);
    }
    loader_close(loader);
}

static void without_shuffling_training_is_in_order(void **state)
{
    struct dataset dataset;
    struct counting counting = {0};
    struct loader_options options = counted(&dataset, &counting, 64);
    options.shuffle = false;
    struct loader *loader = opened(&options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 0, 2), OK);
    assert_int_equal(loader_next(loader, &batch, NULL), OK);
    for (int i = 0; i < 16; i++) assert_int_equal(index_in(batch, i), 32 + i);
    loader_close(loader);              /* a batch is still out */
}

/* A cache: the same batches, whatever fits in it, and fewer images read. */

/* How often each image of a folder was read. */
struct watched {
    const struct dataset *dataset;
    int reads[40];
};

static bool watched_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                         struct image *image, int *label, struct reason *reason)
{
    struct watched *watched = dataset->state;
    __atomic_fetch_add(&watched->reads[index], 1, __ATOMIC_RELAXED);
    const struct dataset *folder = watched->dataset;
    return folder->format->read(folder, index, choice, image, label, reason);
}

static const struct format watched_format = {.name = "watched", .read = watched_read};

/* Images read during an epoch, each counted once, and how often any of them was read at most. */
static int count_reads(struct watched *watched, int *most)
{
    int read = 0;
    *most = 0;
    for (int i = 0; i < 40; i++) {
        read += watched->reads[i] > 0;
        if (watched->reads[i] > *most) *most = watched->reads[i];
        watched->reads[i] = 0;
    }
    return read;
}

static void a_cache_changes_nothing(void **state)
{
    static const size_t limits[] = {(size_t)1 << 30, 1 << 20, 1 << 12};
    char *root = case_folder();
    struct dataset folder;
    struct dataset_options options = {.path = root};
    write_pictures(root);
    assert_int_equal(dataset_open(format_find("folder"), &options, &folder), OK);
    assert_true(folder.decoded);
    struct watched watched = {.dataset = &folder};
    struct dataset dataset = folder;
    dataset.format = &watched_format;
    dataset.state = &watched;
    struct loader_options loading = varied(&dataset);
    loading.augment = (struct augment){.crop = 24, .random_resized = true, .scale = {0.08, 1},
                                       .ratio = {0.75, 4 / 3.0}, .flip = 0.5, .channels = 3,
                                       .std = {1, 1, 1}};
    loading.batch = 8, loading.h = loading.w = 24, loading.dtype = F16;
    uint64_t want[3][5], got[5];
    struct loader *loader = opened(&loading);
    for (int epoch = 0; epoch < 3; epoch++)
        assert_int_equal(read_epoch(loader, &loading, epoch, 0, want[epoch]), 1);
    loader_close(loader);
    int most;
    count_reads(&watched, &most);
    for (int i = 0; i < 3; i++) {
        struct image_cache_options keeping = {.dataset = &dataset, .limit = limits[i], .count = 40};
        loading.cache = image_cache_open(&keeping);
        assert_non_null(loading.cache);
        int read[3];
        for (int epoch = 0; epoch < 3; epoch++) {
            loading.workers = 1 + 2 * epoch;
            loader = opened(&loading);
            assert_int_equal(read_epoch(loader, &loading, epoch, 0, got), 1);
            assert_memory_equal(got, want[epoch], sizeof got);
            loader_close(loader);
            read[epoch] = count_reads(&watched, &most);
            assert_true(image_cache_bytes(loading.cache) <= limits[i]);
        }
        assert_int_equal(read[0], 40);
        if (i == 0) assert_int_equal(read[1], 1);          /* the broken one */
        if (i == 1) assert_in_range(read[1], 2, 39);
        if (i == 2) assert_int_equal(read[1], 40);
        assert_int_equal(read[2], read[1]);
        image_cache_close(loading.cache);
    }
    dataset_close(&folder);
    case_remove(root);
}

/* Broken below its middle: of use where only the upper part is looked at. */
static bool choose_top(void *context, int h, int w, struct box *part, struct reason *reason)
{
    (void)reason;
    ++*(int *)context;
    *part = (struct box){.h = h / 8, .w = w};
    return true;
}

static void what_is_broken_elsewhere_is_not_kept(void **state)
{
    char *root = case_folder();
    struct bytes jpeg = {0};
    uint8_t *pixels = memory_new(256 * 256, 3);
    for (int i = 0; i < 256 * 256 * 3; i++) pixels[i] = (uint8_t)(i * 7 + i / 256);
    jpeg = case_jpeg_sampled(256, 256, (struct jpeg_sampling){1, 1, 8, false}, pixels);
    memset(jpeg.data + jpeg.count * 3 / 4, 0xff, 200);
    case_write_bytes(root, "a/broken.jpg", jpeg);
    jpeg = case_jpeg_sampled(256, 256, (struct jpeg_sampling){1, 1, 8, false}, pixels);
    case_write_bytes(root, "a/good.jpg", jpeg);
    struct dataset dataset;
    struct dataset_options options = {.path = root};
    assert_int_equal(dataset_open(format_find("folder"), &options, &dataset), OK);
    struct image_cache_options keeping = {.dataset = &dataset, .limit = 1 << 20, .count = 2};
    struct image_cache *cache = image_cache_open(&keeping);
    struct image image[2] = {{0}};
    struct reason reason;
    int label, asked = 0;
    struct image_choice top = {.choose = choose_top, .context = &asked};
    assert_null(image_cache_read(cache, 0, NULL, image, &label, &reason));
    assert_non_null(strstr(reason.text, "broken.jpg"));
    size_t empty = image_cache_bytes(cache);
    for (int i = 0; i < 2; i++) {
        assert_ptr_equal(image_cache_read(cache, 0, &top, image, &label, &reason), image);
        assert_int_equal(asked, i + 1);
        assert_true(image->h < 256 && image->full_h == 256);
    }
    assert_int_equal(image_cache_bytes(cache), empty);
    assert_ptr_equal(image_cache_read(cache, 1, &top, image, &label, &reason), image);
    assert_true(image_cache_bytes(cache) > empty + 256 * 256 * 3);
    const struct image *kept = image_cache_read(cache, 1, &top, image, &label, &reason);
    assert_ptr_not_equal(kept, image);
    assert_int_equal(kept->h, 256);
    assert_memory_equal(kept->pixels, image->pixels, 256 * 256 * 3);
    image_cache_close(cache);
    image_free(image);
    free(pixels);
    dataset_close(&dataset);
    case_remove(root);
}

/* Unasked, a cache that could hold but a part of the images holds only those by which that is found out. */
static void all_or_a_few_are_kept(void **state)
{
    struct counting counting = {0};
    struct dataset dataset;
    counted(&dataset, &counting, 1000);
    struct image_cache_options keeping = {.dataset = &dataset, .all = true, .count = 1000};
    for (int fits = 0; fits < 2; fits++) {
        keeping.limit = fits ? 1 << 20 : 40000;
        struct image_cache *cache = image_cache_open(&keeping);
        struct image image[2] = {{0}};
        struct reason reason;
        int label, kept = 0;
        for (int i = 0; i < 1000; i++)
            assert_non_null(image_cache_read(cache, i, NULL, image, &label, &reason));
        for (int i = 0; i < 1000; i++) {
            const struct image *read = image_cache_read(cache, i, NULL, image, &label, &reason);
            kept += read != image;
            assert_int_equal(read->pixels[0], i & 255);
            assert_int_equal(label, i % 10);
        }
        assert_int_equal(kept, fits ? 1000 : 64);
        image_cache_close(cache);
        image_free(image);
    }
    keeping.limit = 100;
    assert_null(image_cache_open(&keeping));
}

/* Images that one process has decoded, others have. */
static void processes_share_what_is_kept(void **state)
{
    struct counting counting = {0};
    struct dataset dataset;
    counted(&dataset, &counting, 100);
    int file = memfd_create("images", 0), status;
    const struct image_cache_options keeping = {
        .dataset = &dataset, .limit = 1 << 20, .count = 100, .shared = file};
    assert_int_equal(ftruncate(file, 1 << 20), 0);
    struct image_cache *cache = image_cache_open(&keeping);
    struct image image[2] = {{0}};
    struct reason reason;
    int label;
    pid_t other = fork();
    if (other == 0) {
        struct image_cache *own = image_cache_open(&keeping);
        for (int i = 0; i < 60; i++) image_cache_read(own, i, NULL, image, &label, &reason);
        _exit(0);
    }
    assert_int_equal(waitpid(other, &status, 0), other);
    for (int i = 0; i < 100; i++) {
        const struct image *read = image_cache_read(cache, i, NULL, image, &label, &reason);
        assert_ptr_equal(read, &image[i < 60]);
        assert_int_equal(read->pixels[0], i & 255);
        assert_int_equal(label, i % 10);
    }
    image_cache_close(cache);
    image_free(image);
    close(file);
}

struct heard {
    bool known[160];
    int count;                   /* of different images */
};

static void hear(void *context, int64_t index, const char *why)
{
    struct heard *heard = context;
    assert_int_equal(index % 10, 1);
    assert_non_null(strstr(why, "is bad"));
    heard->count += !heard->known[index];
    heard->known[index] = true;
}

static void bad_images_are_replaced_alike(void **state)
{
    struct dataset dataset;
    struct counting counting = {.bad = 10};
    struct loader_options options = counted(&dataset, &counting, 160);
    uint64_t want[10], got[10];
    for (int workers = 1; workers <= 7; workers += 3) {
        struct heard heard = {0};
        options.workers = workers;
        options.bad_image = hear;
        options.bad_context = &heard;
        struct loader *loader = opened(&options);
        assert_int_equal(read_epoch(loader, &options, 1, 0, workers > 1 ? got : want), 16);
        if (workers > 1) assert_memory_equal(got, want, sizeof want);
        assert_int_equal(heard.count, 16);
        assert_int_equal(read_epoch(loader, &options, 2, 0, got), 16);
        assert_int_equal(heard.count, 16);
        loader_close(loader);
    }
}

static void bad_images_are_left_out_of_evaluation(void **state)
{
    struct dataset dataset;
    struct counting counting = {.bad = 10};
    struct loader_options options = counted(&dataset, &counting, 32);
    options.training = false;
    struct loader *loader = opened(&options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        for (int i = 0; i < 16; i++) {
            bool bad = (batch->first + i) % 10 == 1;
            assert_int_equal(batch->labels[i], bad ? -1 : (batch->first + i) % 10);
            assert_int_equal(index_in(batch, i), bad ? 0 : batch->first + i);
        }
        loader_return(loader, batch);
    }
    loader_close(loader);
}

static void bad_images_stop_a_run_at_their_batch(void **state)
{
    struct dataset dataset;
    struct counting counting = {.bad = 50};
    struct loader_options options = counted(&dataset, &counting, 160);
    options.shuffle = false;
    options.stop_on_error = true;
    for (int workers = 1; workers <= 4; workers++) {
        options.workers = workers;
        struct loader *loader = opened(&options);
        struct batch *batch;
        assert_int_equal(loader_start(loader, 0, 1), OK);
        for (int i = 0; i < 2; i++) {
            assert_int_equal(loader_next(loader, &batch, NULL), OK);
            loader_return(loader, batch);
        }
        case_log_collect();
        assert_int_equal(loader_next(loader, &batch, NULL), BAD_DATA);
        assert_non_null(strstr(case_log(), "image 51 is bad"));
        loader_close(loader);
    }
}

static void nothing_usable_is_said(void **state)
{
    struct dataset dataset;
    struct counting counting = {.bad = 10};
    struct loader_options options = counted(&dataset, &counting, 160);
    int64_t subset[16];
    for (int i = 0; i < 16; i++) subset[i] = 10 * i + 1;
    options.subset = subset;
    options.count = 16;
    struct loader *loader = opened(&options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 0, 0), OK);
    case_log_collect();
    assert_int_equal(loader_next(loader, &batch, NULL), BAD_DATA);
    assert_non_null(strstr(case_log(), "100 replacements"));
    loader_close(loader);
}

static bool forgetful_read(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                           struct image *image, int *label, struct reason *reason)
{
    if (index == 40) memory_none("a test");
    *label = 0;
    return image_resize_buffer(image, 9, 8, 3, reason);
}

/* The memory of an image is missing on a thread of a library's call: that call fails, not the process. */
static void a_guest_without_memory_fails(void **state)
{
    static const struct format forgetful = {.name = "forgetful", .read = forgetful_read};
    static const struct guest guest;
    struct dataset dataset = {.format = &forgetful, .count = 64, .classes = 1, .h = 9, .w = 8, .c = 3};
    struct loader_options options = training(&dataset);
    struct batch *batch = NULL;
    options.shuffle = false;
    options.workers = 2;
    guest_set(&guest);
    struct loader *loader = opened(&options);
    assert_int_equal(loader_start(loader, 0, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK) {
        assert_non_null(batch);
        assert_true(batch->number < 2);
        loader_return(loader, batch);
    }
    loader_close(loader);
    assert_false(dataset.held);
    guest_set(NULL);
}

static void a_batch_larger_than_the_data_is_refused(void **state)
{
    struct dataset dataset;
    struct counting counting = {0};
    struct loader_options options = counted(&dataset, &counting, 15);
    struct loader *loader = NULL;
    case_log_collect();
    assert_int_equal(loader_open(&options, &loader), USAGE);
    assert_null(loader);
    options.count = 0;
    assert_int_equal(loader_open(&options, &loader), BAD_DATA);
}

static void several_batches_can_be_out(void **state)
{
    struct dataset dataset = synthetic(BATCHES * 16);
    struct loader_options options = training(&dataset);
    uint64_t want[BATCHES];
    options.workers = 2;
    options.prefetch = 3;
    struct loader *loader = opened(&options);
    read_epoch(loader, &options, 0, 0, want);
    assert_int_equal(loader_start(loader, 0, 0), OK);
    struct batch *out[3];
    for (int i = 0; i < 3; i++) assert_int_equal(loader_next(loader, &out[i], NULL), OK);
    assert_int_equal(loader_start(loader, 1, 0), OK);          /* those out stay valid */
    for (int i = 2; i >= 0; i--) {
        assert_int_equal(hash_of(&options, out[i]), want[i]);
        loader_return(loader, out[i]);
    }
    read_epoch(loader, &options, 0, 0, want);
    loader_close(loader);
    dataset_close(&dataset);
}

/* Opened, begun, perhaps read from, and closed, at every stage of filling: no thread stays, and no memory. */
static void stops_at_any_moment(void **state)
{
    struct dataset dataset = synthetic(BATCHES * 16);
    struct loader_options options = training(&dataset);
    long cycles = rounds(300, 10000), settled = 0, threads = process_status("Threads:");
    double start = process_seconds();
    options.classes = 7;
    for (long i = 0; i < cycles; i++) {
        options.workers = 1 + (int)(i % 5);
        options.prefetch = 1 + (int)(i % 3);
        options.mix.mixup = (double)(i % 2);
        struct loader *loader = opened(&options);
        struct batch *batch;
        if (i % 4 > 0) assert_int_equal(loader_start(loader, i, 0), OK);
        for (int k = 1; k < i % 4; k++) {
            assert_int_equal(loader_next(loader, &batch, NULL), OK);
            loader_return(loader, batch);
        }
        if (i % 7 == 0) assert_int_equal(loader_start(loader, i + 1, 3), OK);
        loader_close(loader);
        if (i == cycles / 4) settled = process_status("VmRSS:");
    }
    long resident = process_status("VmRSS:");
    figure("%ld loaders opened, started and closed in %.1f s; %ld KiB resident, %ld after a quarter of them",
           cycles, process_seconds() - start, resident, settled);
    /* The kernel may count a thread for a moment after it was joined. */
    for (int i = 0; i < 1000 && process_status("Threads:") != threads; i++) usleep(10000);
    assert_int_equal(process_status("Threads:"), threads);
    if (cycles >= 10000) assert_true(resident < settled + 1024);
    dataset_close(&dataset);
}

static void *count_allocate(void *context, size_t bytes)
{
    *(int *)context += 1;
    return malloc(bytes);
}

static void count_release(void *context, void *memory, size_t bytes)
{
    *(int *)context -= 1;
    memset(memory, 0, bytes);
    free(memory);
}

static void batch_memory_comes_from_the_caller(void **state)
{
    struct dataset dataset = synthetic(64);
    struct loader_options options = training(&dataset);
    int live = 0;
    options.allocate = count_allocate;
    options.release = count_release;
    options.memory_context = &live;
    struct loader *loader = opened(&options);
    assert_true(live > 0);
    loader_close(loader);
    assert_int_equal(live, 0);
    dataset_close(&dataset);
}

/* Ranks: each its share of every batch, all of them what a single one serves. */

#define NOBODY (-2)            /* the label of a place that no loader has filled */

/* The contents of an epoch, as [batches, batch] images of 3 numbers and labels. */
static void gather(const struct loader_options *options, float *images, int32_t *labels)
{
    struct loader *loader = opened(options);
    struct batch *batch;
    assert_int_equal(loader_start(loader, 3, 0), OK);
    while (loader_next(loader, &batch, NULL) == OK && batch) {
        int ranks = options->ranks ? options->ranks : 1;
        struct share share = sampler_share(options->batch, ranks, options->rank);
        assert_int_equal(batch->first, batch->number * options->batch + share.first);
        for (int i = 0; i < share.count; i++) {
            assert_int_equal(labels[batch->first + i], NOBODY);         /* nobody else's */
            labels[batch->first + i] = batch->labels[i];
            memcpy(images + 3 * (batch->first + i), (float *)batch->images + 3 * i, 3 * sizeof(float));
        }
        loader_return(loader, batch);
    }
    loader_close(loader);
}

static void ranks_cover_the_epoch(void **state)
{
    struct counting counting = {.bad = 13};
    for (int count = 12; count < 61; count += 7) {
        for (int training = 0; training < 2; training++) {
            struct dataset dataset;
            struct loader_options options = counted(&dataset, &counting, count);
            int32_t want[96], got[96];
            float images[96 * 3] = {0}, parts[96 * 3] = {0};
            for (int i = 0; i < 96; i++) want[i] = NOBODY;
            options.training = training;
            options.batch = 12;
            gather(&options, images, want);
            for (int ranks = 1; ranks <= 12; ranks += ranks < 5 ? 1 : 7) {
                for (int i = 0; i < 96; i++) got[i] = NOBODY;
                for (int rank = 0; rank < ranks; rank++) {
                    options.ranks = ranks;
                    options.rank = rank;
                    options.workers = 1 + rank % 3;
                    gather(&options, parts, got);
                }
                assert_memory_equal(got, want, sizeof want);
                assert_memory_equal(parts, images, sizeof images);
            }
            options.ranks = options.rank = 0;
            int batches = training ? count / 12 : (count + 11) / 12;
            for (int i = 0; i < 96; i++) assert_int_equal(want[i] != NOBODY, i < 12 * batches);
        }
    }
}

/* Each of the four micro-batches is mixed by itself, whoever has it. */
static void ranks_change_no_mixture(void **state)
{
    struct counting counting = {.bad = 13};
    struct dataset dataset;
    struct loader_options options = counted(&dataset, &counting, 40);
    int32_t labels[96];
    float images[96 * 3] = {0}, parts[96 * 3] = {0}, unmixed[96 * 3] = {0};
    options.training = true;
    options.batch = 12;
    options.micro_batches = 4;
    for (int i = 0; i < 96; i++) labels[i] = NOBODY;
    gather(&options, unmixed, labels);
    options.mix.mixup = 1;
    options.classes = dataset.classes;
    for (int ranks = 1; ranks <= 4; ranks *= 2) {
        for (int i = 0; i < 96; i++) labels[i] = NOBODY;
        options.ranks = ranks;
        for (options.rank = 0; options.rank < ranks; options.rank++)
            gather(&options, ranks == 1 ? images : parts, labels);
        if (ranks > 1) assert_memory_equal(parts, images, sizeof images);
    }
    assert_memory_not_equal(images, unmixed, sizeof images);
}

/* Batches are those of a new loader, of fewer images and of more; but not with more threads or batches. */
static void a_loader_goes_on_with_other_images(void **state)
{
    static const int64_t counts[] = {37, 5, 64, 16, 1};
    struct dataset dataset = synthetic(37);
    struct loader_options options = training(&dataset);
    uint64_t want[4], got[4];
    options.training = options.shuffle = options.augment.random_crop = false;
    options.augment.val_crop = true;
    options.workers = 3;
    struct loader *kept = opened(&options);
    for (int i = 0; i < 5; i++) {
        dataset_close(&dataset);
        dataset = synthetic(counts[i]);
        options.count = counts[i];
        struct loader *loader = opened(&options);
        assert_true(loader_renew(kept, &options));
        assert_int_equal(loader_batches(kept), (counts[i] + 15) / 16);
        read_epoch(loader, &options, 0, 0, want);
        read_epoch(kept, &options, 0, 0, got);
        assert_memory_equal(got, want, (size_t)loader_batches(kept) * sizeof *got);
        loader_close(loader);
    }
    options.workers++;
    assert_false(loader_renew(kept, &options));
    options.workers--;
    options.prefetch++;
    assert_false(loader_renew(kept, &options));
    loader_close(kept);
    dataset_close(&dataset);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(workers_and_prefetch_change_nothing),
        cmocka_unit_test(workers_hold_requests_but_no_crashes),
        cmocka_unit_test(workers_change_no_mixture),
        cmocka_unit_test(copies_are_augmented_anew),
        cmocka_unit_test(batches_come_again_in_every_view),
        cmocka_unit_test(images_are_mirrored_in_every_second_epoch),
        cmocka_unit_test(targets_go_with_labels),
        cmocka_unit_test(parts_of_files_make_the_same_batches),
        cmocka_unit_test(resumed_epochs_are_the_same),
        cmocka_unit_test(a_cache_changes_nothing),
        cmocka_unit_test(processes_share_what_is_kept),
        cmocka_unit_test(what_is_broken_elsewhere_is_not_kept),
        cmocka_unit_test(all_or_a_few_are_kept),
        cmocka_unit_test(training_sees_each_image_once),
        cmocka_unit_test(evaluation_is_in_file_order_and_complete),
        cmocka_unit_test(without_shuffling_training_is_in_order),
        cmocka_unit_test(bad_images_are_replaced_alike),
        cmocka_unit_test(bad_images_are_left_out_of_evaluation),
        cmocka_unit_test(bad_images_stop_a_run_at_their_batch),
        cmocka_unit_test(nothing_usable_is_said),
        cmocka_unit_test(a_guest_without_memory_fails),
        cmocka_unit_test(a_batch_larger_than_the_data_is_refused),
        cmocka_unit_test(several_batches_can_be_out),
        cmocka_unit_test(stops_at_any_moment),
        cmocka_unit_test(batch_memory_comes_from_the_caller),
        cmocka_unit_test(a_loader_goes_on_with_other_images),
        cmocka_unit_test(ranks_cover_the_epoch),
        cmocka_unit_test(ranks_change_no_mixture),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
