/* Checkpoints: what goes in comes out to the bit; damage of every kind is found and named. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "base/random.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/weights.h"
#include "data/dataset/dataset.h"
#include "graph/model.h"
#include "tests/support/caught.h"
#include "tests/support/place.h"
#include "tests/support/refuse.h"
#include "tests/support/rounds.h"
#include "tests/support/unit.h"

static char folder[] = "/tmp/test_checkpoint.XXXXXX";
static struct directory directory;        /* the same, held open */

static const char tiny[] =
    "[input]\nchannels = 1\nsize = 4\n[layers]\nconv = conv input filters=2 kernel=3 pad=1 bias=no\n"
    "bn = batchnorm conv\nrelu = relu bn\navg = globalavgpool relu\nfc = linear avg units=$classes\n";

/* A store of the tiny network, with everything in it another number. */
struct fixture {
    struct graph graph;
    struct device *device;
    struct store store;
    struct settings settings;
    struct position position;
};

static const struct optimizer *adam(void)
{
    return optimizer_find("adam");
}

static struct graph make_graph(const char *text, int classes)
{
    struct graph graph;
    struct model_options options = {.classes = classes, .dropout = -1};
    assert_int_equal(model_load_text(&options, "tiny", text, &graph), OK);
    return graph;
}

static void fill_store(struct store *store, uint64_t seed)
{
    struct random random = random_open(seed, PURPOSE_TEST, 0, 0);
    for (int p = 0; p < store->graph->param_count; p++) {
        const struct op_param *spec = &store->graph->params[p].spec;
        size_t bytes = (size_t)shape_count(spec->shape) * dtype_bytes(spec->dtype);
        uint8_t *values = memory_new(bytes, 1);
        for (int part = STORE_MASTER; part <= STORE_SLOT2; part++) {
            if (!store_has(store, p, (enum store_part)part)) continue;
            for (size_t i = 0; i < bytes; i++) values[i] = (uint8_t)(random_next(&random) & 0x3f);
            assert_int_equal(store_write(store, p, (enum store_part)part, values), OK);
        }
        free(values);
    }
}

static void open_fixture_of(struct fixture *fixture, const char *model, uint64_t seed)
{
    *fixture = (struct fixture){0};
    fixture->graph = make_graph(model, 3);
    struct store_options options = {.low = F32, .optimizer = adam(), .ema = true};
    fixture->device = place_open(1);
    assert_int_equal(store_open(fixture->device, &fixture->graph, &options, &fixture->store), OK);
    assert_int_equal(settings_load(NULL, NULL, 0, &fixture->settings), OK);
    fixture->settings.data.task = TASK_CLASSIFY;      /* as a session resolves them */
    fixture->settings.train.loss = TRAIN_LOSS_CE;
    fill_store(&fixture->store, seed);
    fixture->position = (struct position){.epoch = 3,
                                          .batch = 17,
                                          .loss_sum = 0.1,
                                          .images = 99,
                                          .best = 1.0 / 3,
                                          .best_epoch = 2,
                                          .seconds = 1e-9,
                                          .seed = 77};
    struct optimizer_state state = {.scaler = {.scale = 1024, .good_steps = 5}, .updates = 40, .step = 42,
                                    .grad_norm = 0.3f, .skipped_steps = 2, .lr = 0.1f};
    assert_int_equal(store_write_state(&fixture->store, &state), OK);
}

static void open_fixture(struct fixture *fixture, uint64_t seed)
{
    open_fixture_of(fixture, tiny, seed);
}

static void close_fixture(struct fixture *fixture)
{
    store_close(&fixture->store);
    device_close(fixture->device);
    graph_free(&fixture->graph);
    settings_free(&fixture->settings);
}

static const char algorithms[] = "01234567 NVIDIA, conv 8x8=1.0 us\n89abcdef linear=2.5 us\n";

static struct checkpoint_source source_of(const struct fixture *fixture)
{
    static char *const names[] = {"one", "two \"2\"", "drei \xc3\xa4"};
    static const struct dataset_identity train = {.count = 100, .sequence = 1};
    static const struct dataset_identity val = {.count = 20, .sequence = 2};
    return (struct checkpoint_source){
        .store = &fixture->store, .optimizer = adam(), .settings = &fixture->settings, .class_names = names,
        .classes = 3, .train_images = 100, .val_images = 20, .identities = {&train, &val}, .h = 4, .w = 4,
        .channels = 1, .algorithms = algorithms, .threads = 3,
    };
}

static enum status save_as(const struct fixture *fixture, const char *const *also)
{
    struct checkpoint_source source = source_of(fixture);
    return checkpoint_save(&source, &fixture->position, &directory, also);
}

static enum status save(const struct fixture *fixture)
{
    return save_as(fixture, NULL);
}

static char *file_in(const char *name)
{
    return text_format("%s/%s", folder, name);
}

static void remove_all(void)
{
    static const char *const names[] = {CHECKPOINT_LAST, CHECKPOINT_PREVIOUS, CHECKPOINT_BEST,
                                        CHECKPOINT_UNUSABLE, "elsewhere", "third", "fourth"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char *path = file_in(names[i]);
        remove(path);
        free(path);
    }
}

static void assert_stores_equal(const struct store *a, const struct store *b)
{
    assert_int_equal(a->layout.bytes, b->layout.bytes);
    for (int p = 0; p < a->graph->param_count; p++) {
        const struct op_param *spec = &a->graph->params[p].spec;
        size_t bytes = (size_t)shape_count(spec->shape) * dtype_bytes(spec->dtype);
        uint8_t *x = memory_new(bytes, 1), *y = memory_new(bytes, 1);
        for (int part = STORE_MASTER; part <= STORE_SLOT2; part++) {
            if (!store_has(a, p, (enum store_part)part)) continue;
            assert_int_equal(store_read(a, p, (enum store_part)part, x), OK);
            assert_int_equal(store_read(b, p, (enum store_part)part, y), OK);
            assert_memory_equal(x, y, bytes);
        }
        free(x);
        free(y);
    }
}

/* The newest checkpoint is this state. */
static void assert_saved(const struct fixture *from)
{
    struct fixture to;
    struct safetensors file;
    struct position position;
    struct optimizer_state then, now;
    open_fixture(&to, 2);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    assert_int_equal(checkpoint_match(&file, &to.store, adam()), OK);
    assert_int_equal(checkpoint_match_settings(&file, &to.settings), OK);
    assert_int_equal(checkpoint_restore(&file, &to.store, adam(), &position), OK);
    assert_stores_equal(&from->store, &to.store);
    assert_memory_equal(&position, &from->position, sizeof position);
    assert_int_equal(store_read_state(&from->store, &then), OK);
    assert_int_equal(store_read_state(&to.store, &now), OK);
    assert_memory_equal(&then, &now, sizeof now);
    safetensors_close(&file);
    close_fixture(&to);
}

static void round_trip(void **state)
{
    struct fixture from;
    open_fixture(&from, 1);
    assert_false(checkpoint_exists(&directory));
    assert_int_equal(save(&from), OK);
    assert_true(checkpoint_exists(&directory));
    assert_saved(&from);
    close_fixture(&from);
    remove_all();
}

/* The state when it began, whatever becomes of it in the meantime, under all names. */
static void in_a_thread(void **state)
{
    static const char *const also[] = {CHECKPOINT_BEST, NULL};
    struct fixture fixture, then;
    open_fixture(&then, 1);
    open_fixture(&fixture, 1);
    struct checkpoint_source source = source_of(&fixture);
    for (int i = 0; i < 20; i++) {
        struct checkpoint_writing *writing = checkpoint_begin(&source, &fixture.position, &directory, also);
        assert_non_null(writing);
        fill_store(&fixture.store, 3);
        while (i % 2 == 0 && !checkpoint_over(writing)) continue;
        assert_int_equal(checkpoint_end(writing), OK);
        assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_LAST), i + 1);
        assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_BEST), i + 1);
        assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_PREVIOUS), i > 0 ? i : -1);
        assert_saved(&then);
        fill_store(&fixture.store, 1);
    }
    close_fixture(&fixture);
    close_fixture(&then);
    remove_all();
}

/* A device from which the first download takes so long that another run takes the folder meanwhile. */
static const struct fixture *other;
static bool taken;

static bool is_taken(const void *owner)
{
    assert_ptr_equal(owner, folder);
    return taken;
}

static enum status (*download)(struct device *, int, void *, const void *, size_t);

static enum status slow_download(struct device *device, int stream, void *host, const void *memory,
                                 size_t bytes)
{
    const struct fixture *saved = other;
    other = NULL;
    if (saved) {
        assert_int_equal(save_as(saved, (const char *const[]){CHECKPOINT_BEST, NULL}), OK);
        taken = true;
    }
    return download(device, stream, host, memory, bytes);
}

static void replaced_while_written(void **state)
{
    static const char *const also[] = {CHECKPOINT_BEST, NULL};
    struct fixture first, second;
    open_fixture(&first, 1);
    open_fixture(&second, 2);
    for (int there = 0; there < 2; there++) {
        if (there) assert_int_equal(save(&first), OK);
        struct device_backend slow = *first.device->backend, *usual = (void *)first.device->backend;
        download = slow.transfers.download;
        slow.transfers.download = slow_download;
        struct caught caught;
        directory.is_lost = is_taken;
        directory.owner = folder;
        taken = false;
        caught_begin(&caught);
        first.device->backend = &slow;
        other = &second;
        enum status status = save_as(&first, also);
        first.device->backend = usual;
        caught_end(&caught);
        directory.is_lost = NULL;
        assert_int_equal(status, FAILED);
        assert_true(caught_has(&caught, "another process has taken the folder; it is left unchanged"));
        assert_saved(&second);
        assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_BEST),
                         checkpoint_serial(&directory, CHECKPOINT_LAST));
        text_free(&caught.words);
        remove_all();
    }
    close_fixture(&first);
    close_fixture(&second);
}

/* The last one stays. */
static void in_a_thread_without_space(void **state)
{
    struct fixture fixture;
    struct rlimit before, none;
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    none = (struct rlimit){.rlim_cur = 0, .rlim_max = before.rlim_max};
    signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &none), 0);
    struct checkpoint_source source = source_of(&fixture);
    struct checkpoint_writing *writing = checkpoint_begin(&source, &fixture.position, &directory, NULL);
    assert_non_null(writing);
    assert_int_equal(checkpoint_end(writing), FAILED);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_LAST), 1);
    assert_saved(&fixture);
    close_fixture(&fixture);
    remove_all();
}

/* The epoch that is the best of so many whose evaluations have these values; 0: none. */
static int64_t best_of(const double *values, int count, bool lower, int64_t *without_gain)
{
    struct position position = {0};
    for (; position.epoch < count; position.epoch++)
        position_update_best(&position, values[position.epoch], lower);
    *without_gain = position.epochs_without_gain;
    return position.best_epoch;
}

static void best(void **state)
{
    static const double lost[] = {NAN, INFINITY, -INFINITY}, then[] = {2, 1, NAN, 3};
    int64_t without;
    assert_int_equal(best_of(lost, 3, true, &without), 0);
    assert_int_equal(best_of(lost, 3, false, &without), 0);
    assert_int_equal(without, 3);
    assert_int_equal(best_of(then, 4, true, &without), 2);
    assert_int_equal(without, 2);
    assert_int_equal(best_of(then, 4, false, &without), 4);
    for (int i = 0; i < 3; i++) {
        double values[] = {lost[i], 0.5, 0.5};
        for (int lower = 0; lower < 2; lower++) {
            assert_int_equal(best_of(values, 3, lower, &without), 2);
            assert_int_equal(without, 1);
        }
    }
}

/* The best of epochs drawn at random is the first of the finite ones that none of these beats. */
static void best_at_random(void **state)
{
    static const double kinds[] = {NAN, INFINITY, -INFINITY, 0, 1, -1, 1e300, -1e300, 0.5, 0.5};
    struct random random = random_open(7, PURPOSE_CHOICE, 0, 0);
    for (int i = 0; i < 20000; i++) {
        double values[12];
        int count = (int)random_below(&random, 12), first = -1;
        bool lower = random_below(&random, 2);
        for (int k = 0; k < count; k++) values[k] = kinds[random_below(&random, 10)];
        for (int k = count - 1; k >= 0; k--) {
            bool beaten = !isfinite(values[k]);
            for (int other = 0; other < count; other++)
                beaten |= isfinite(values[other]) && (lower ? values[other] < values[k] : values[other] > values[k]);
            if (!beaten) first = k;
        }
        int64_t without;
        assert_int_equal(best_of(values, count, lower, &without), first + 1);
        assert_int_equal(without, count - 1 - first);
    }
}

/* Older versions took what is not finite for the best if it was the first. */
static void best_that_was_lost(void **state)
{
    static const double lost[] = {NAN, -NAN, INFINITY, -INFINITY};
    struct fixture fixture;
    struct safetensors file;
    struct position position;
    struct optimizer_state unused;
    struct reason reason;
    for (int i = 0; i < 8; i++) {
        open_fixture(&fixture, 1);
        fixture.position.best = lost[i / 2];
        assert_int_equal(save(&fixture), OK);
        assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
        assert_true(position_parse(&file, &position, &unused, &reason));
        assert_true(position_update_best(&position, 0.25, i % 2));
        assert_true(position.best == 0.25 && position.best_epoch == 4 && position.epochs_without_gain == 0);
        safetensors_close(&file);
        close_fixture(&fixture);
        remove_all();
    }
}

static void names_and_sizes(void **state)
{
    struct fixture fixture;
    struct safetensors file;
    char **names;
    struct reason reason;
    int count, h, w, channels;
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    checkpoint_class_names(&file, &names, &count);
    assert_int_equal(count, 3);
    assert_string_equal(names[1], "two \"2\"");
    assert_string_equal(names[2], "drei \xc3\xa4");
    assert_true(checkpoint_input(&file, &h, &w, &channels, &reason));
    assert_int_equal(h * 100 + w * 10 + channels, 441);
    assert_string_equal(checkpoint_algorithms(&file), algorithms);
    assert_int_equal(checkpoint_threads(&file), 3);
    checkpoint_recall_threads(&file, 2, &fixture.settings);
    assert_int_equal(fixture.settings.run.threads, 0);
    checkpoint_recall_threads(&file, 3, &fixture.settings);
    assert_int_equal(fixture.settings.run.threads, 3);
    text_list_free(names, (size_t)count);
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

/* Data and measure that are others than when the run began. */
static void another_run(void **state)
{
    static char *names[] = {"one", "two \"2\"", "drei \xc3\xa4"}, *others[] = {"one", "drei", "two"};
    struct fixture fixture;
    struct safetensors file;
    struct caught caught;
    bool same;
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    struct dataset_identity train = {.count = 100, .sequence = 1}, val = {.count = 20, .sequence = 2};
    struct checkpoint_source now = {.class_names = names, .classes = 3, .identities = {&train, NULL}};
    now.train_images = 100;
    now.val_images = 20;
    assert_int_equal(checkpoint_match_data(&file, &now), OK);
    now.identities[SPLIT_VAL] = &val;
    assert_int_equal(checkpoint_match_data(&file, &now), OK);
    assert_false(checkpoint_old_split(&file, &fixture.settings));
    assert_int_equal(checkpoint_match_best(&file, &fixture.settings, &same), OK);
    assert_true(same);
    fixture.settings.checkpoint.best = BEST_VAL_LOSS;
    assert_int_equal(checkpoint_match_best(&file, &fixture.settings, &same), OK);
    assert_false(same);
    caught_begin(&caught);
    now.val_images = 21;
    enum status images = checkpoint_match_data(&file, &now);
    now.val_images = 20;
    train.sequence++;
    enum status contents = checkpoint_match_data(&file, &now);
    train.sequence--;
    now.class_names = others;
    enum status classes = checkpoint_match_data(&file, &now);
    now.classes = 2;
    enum status fewer = checkpoint_match_data(&file, &now);
    caught_end(&caught);
    assert_int_equal(images, BAD_DATA);
    assert_int_equal(contents, BAD_DATA);
    assert_int_equal(classes, BAD_DATA);
    assert_int_equal(fewer, BAD_DATA);
    assert_true(caught_has(&caught, "there were 3 classes when the run started, but are 2 now"));
    assert_true(caught_has(&caught, "started with 20 images in data.val, but there are 21 now"));
    assert_true(caught_has(&caught, "the images of data.train differ from those of the run: differences that the "
                                    "recorded sample does not show; resuming needs the same data"));
    assert_true(caught_has(&caught, "class 1 was 'two \"2\"' when the run started, but is 'drei' now"));
    text_free(&caught.words);
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

/* Checkpoints of older versions do not know their images, which then were divided in another way. */
static enum status match_older(double val_fraction, bool shuffle, int64_t limit, struct caught *caught)
{
    struct fixture fixture;
    struct safetensors file;
    open_fixture(&fixture, 1);
    fixture.settings.data.val_fraction = val_fraction;
    fixture.settings.data.shuffle = shuffle;
    fixture.settings.data.limit = limit;
    struct checkpoint_source source = source_of(&fixture);
    source.identities[0] = source.identities[1] = NULL;
    assert_int_equal(checkpoint_save(&source, &fixture.position, &directory, NULL), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    caught_begin(caught);
    enum status status = checkpoint_match_data(&file, &source);
    caught_end(caught);
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
    return status;
}

/* A run that learns from a teacher goes on with the same weights of it. */
static void another_teacher(void **state)
{
    static const double thresholds[] = {0.5, 0.25, 0.125};
    struct fixture fixture;
    struct safetensors file;
    struct caught caught;
    open_fixture(&fixture, 1);
    struct checkpoint_source source = source_of(&fixture);
    source.graph = &fixture.graph;
    source.teacher = "01234567";
    source.thresholds = thresholds;
    assert_int_equal(checkpoint_save(&source, &fixture.position, &directory, NULL), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    double *read = checkpoint_thresholds(&file, 3);
    assert_memory_equal(read, thresholds, sizeof thresholds);
    free(read);
    assert_int_equal(checkpoint_match_network(&file, &source), OK);
    source.teacher = NULL;                   /* is not known any more */
    assert_int_equal(checkpoint_match_network(&file, &source), OK);
    source.teacher = "01234568";
    caught_begin(&caught);
    enum status status = checkpoint_match_network(&file, &source);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    assert_true(caught_has(&caught, "the teacher's weights (train.teacher) are others than when the run"));
    text_free(&caught.words);
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

/* Lines that a file has about its data alone. */
static void data_that_cannot_be_matched(void **state)
{
    static const struct {
        struct safetensors_pair pairs[4];
        int count;
        enum status status;
        const char *said;
    } rows[] = {
        {{{0}}, 0, BAD_CHECKPOINT, "does not identify its images"},
        {{{"images", "100"}}, 1, BAD_CHECKPOINT, "does not identify its images"},
        {{{"images", "100 20"}}, 1, BAD_CHECKPOINT, "has no configuration"},
        {{{"identity.val", "nothing"}, {"images", "100 20"}}, 2, BAD_CHECKPOINT, "'identity.val' "},
        {{{"identity.train", "nothing"}, {"images", "100 20"}}, 2, BAD_CHECKPOINT, "'identity.train' "},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct checkpoint_source now = {.train_images = 100, .val_images = 20};
        const struct safetensors_content content = {.metadata = rows[i].pairs,
                                                    .metadata_count = rows[i].count};
        struct safetensors file;
        struct reason reason;
        struct caught caught;
        assert_int_equal(safetensors_write_in(&directory, "elsewhere", &content), OK);
        assert_true(safetensors_open_in(&directory, "elsewhere", &file, &reason));
        caught_begin(&caught);
        enum status status = checkpoint_match_data(&file, &now);
        caught_end(&caught);
        assert_int_equal(status, rows[i].status);
        assert_true(caught_has(&caught, rows[i].said));
        text_free(&caught.words);
        safetensors_close(&file);
    }
    remove_all();
}

static void of_an_older_version(void **state)
{
    struct caught caught;
    assert_int_equal(match_older(0, true, 0, &caught), OK);
    assert_true(caught_has(&caught, "whether the images are still the same is not known"));
    text_free(&caught.words);
    assert_int_equal(match_older(0, false, 10, &caught), OK);
    text_free(&caught.words);
    assert_int_equal(match_older(0, true, 10, &caught), BAD_DATA);
    text_free(&caught.words);
    assert_int_equal(match_older(0.2, true, 0, &caught), BAD_DATA);
    assert_true(caught_has(&caught, "divided the images in another way"));
    text_free(&caught.words);
}

/* The previous one is there until it is overwritten by the next but one, and is what it was. */
static void previous(void **state)
{
    struct fixture fixture;
    struct safetensors file;
    struct reason reason;
    struct position position;
    struct optimizer_state unused;
    char *path = file_in(CHECKPOINT_PREVIOUS);
    open_fixture(&fixture, 1);
    for (int64_t batch = 0; batch < 4; batch++) {
        fixture.position.batch = batch;
        assert_int_equal(save(&fixture), OK);
        if (batch == 0) continue;
        assert_true(checkpoint_open(&directory_working, path, &file, &reason));
        assert_true(position_parse(&file, &position, &unused, &reason));
        assert_int_equal(position.batch, batch - 1);
        safetensors_close(&file);
    }
    close_fixture(&fixture);
    free(path);
    remove_all();
}

/* Damage. Files of some 200 KiB, so that most of it is tensors, as in life. */

static const char wide[] =
    "[input]\nchannels = 3\nsize = 8\n[layers]\nconv1 = conv input filters=32 kernel=3 pad=1\n"
    "conv2 = conv conv1 filters=32 kernel=3 pad=1\navg = globalavgpool conv2\n"
    "fc = linear avg units=$classes\n";

struct damage {
    struct fixture fixture;
    char *last, *previous;
    char *bytes;               /* of a good `last` */
    size_t count;
};

static char *read_file(const char *path, size_t *count)
{
    struct stat stat_;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &stat_), 0);
    *count = (size_t)stat_.st_size;
    char *bytes = memory_new(*count + 1, 1);
    assert_int_equal(fread(bytes, 1, *count, file), *count);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    remove(path);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

/* Two checkpoints, of batches 1 and 2. */
static void save_two(struct damage *damage)
{
    for (int64_t batch = 1; batch <= 2; batch++) {
        damage->fixture.position.batch = batch;
        assert_int_equal(save(&damage->fixture), OK);
    }
}

static void begin_damage_of(struct damage *damage, const char *model)
{
    open_fixture_of(&damage->fixture, model, 1);
    damage->last = file_in(CHECKPOINT_LAST);
    damage->previous = file_in(CHECKPOINT_PREVIOUS);
    save_two(damage);
    damage->bytes = read_file(damage->last, &damage->count);
}

static void begin_damage(struct damage *damage) { begin_damage_of(damage, wide); }

static void end_damage(struct damage *damage)
{
    free(damage->bytes);
    free(damage->previous);
    free(damage->last);
    close_fixture(&damage->fixture);
    remove_all();
}

static bool opens(const char *path)
{
    struct safetensors file;
    struct reason reason = {0};
    if (!checkpoint_open(&directory_working, path, &file, &reason)) {
        assert_true(reason.text[0] != '\0');
        return false;
    }
    safetensors_close(&file);
    return true;
}

static int64_t batch_of(const struct safetensors *file)
{
    struct position position;
    struct optimizer_state unused;
    struct reason reason;
    assert_true(position_parse(file, &position, &unused, &reason));
    return position.batch;
}

/* Whatever stands as the last one: it is named as `said`, the one of batch 1 is taken and stays what it
 * was, also when the next one is written. */
static void assert_previous_taken(struct damage *damage, const char *said)
{
    struct safetensors file;
    struct caught caught;
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_string_equal(file.path, damage->previous);
    assert_int_equal(batch_of(&file), 1);
    safetensors_close(&file);
    assert_true(caught_has(&caught, damage->last));
    assert_true(caught_has(&caught, said));
    assert_true(caught_has(&caught, "resuming from"));
    text_free(&caught.words);
    assert_int_equal(save(&damage->fixture), OK);
    assert_true(opens(damage->last));
    assert_true(checkpoint_open(&directory_working, damage->previous, &file, &(struct reason){0}));
    assert_int_equal(batch_of(&file), 1);
    safetensors_close(&file);
    remove_all();
    save_two(damage);
}

static void bits_flipped(void **state)
{
    struct damage damage;
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    long flips = rounds(1000, 10000);
    begin_damage(&damage);
    FILE *file = fopen(damage.last, "r+b");
    assert_non_null(file);
    setvbuf(file, NULL, _IONBF, 0);
    for (long round = 0; round < flips; round++) {
        /* Half of them in the header, which is small. */
        uint32_t bit = random_below(&random, (uint32_t)(8 * (round % 2 ? damage.count : 6000)));
        char byte = damage.bytes[bit / 8], changed = (char)(byte ^ 1 << bit % 8);
        assert_int_equal(pwrite(fileno(file), &changed, 1, bit / 8), 1);
        if (opens(damage.last)) fail_msg("bit %u of %zu bytes is not watched", bit, damage.count);
        assert_int_equal(pwrite(fileno(file), &byte, 1, bit / 8), 1);
    }
    fclose(file);
    assert_true(opens(damage.last));
    figure("%ld of %ld flipped bits found, in a checkpoint of %zu bytes", flips, flips, damage.count);
    end_damage(&damage);
}

/* Sectors that are those of another place, or nothing. */
static void sectors_lost(void **state)
{
    struct damage damage;
    struct random random = random_open(2, PURPOSE_TEST, 0, 0);
    long tries = rounds(200, 5000);
    begin_damage(&damage);
    char *bytes = memory_new(damage.count, 1);
    for (long round = 0; round < tries; round++) {
        uint32_t sectors = (uint32_t)(damage.count / 512);
        uint32_t to = random_below(&random, sectors), from = random_below(&random, sectors);
        memcpy(bytes, damage.bytes, damage.count);
        if (round % 2) memset(bytes + 512 * to, 0, 512);
        else memcpy(bytes + 512 * to, damage.bytes + 512 * from, 512);
        if (memcmp(bytes, damage.bytes, damage.count) == 0) continue;
        write_file(damage.last, bytes, damage.count);
        if (opens(damage.last)) fail_msg("sector %u in the place of %u is not noticed", from, to);
    }
    free(bytes);
    figure("%ld lost or misplaced sectors found", tries);
    end_damage(&damage);
}

static void cut_off(void **state)
{
    struct damage damage;
    begin_damage(&damage);
    int cuts = 0;
    for (size_t length = damage.count; length-- > 0; cuts++) {
        assert_int_equal(truncate(damage.last, (off_t)length), 0);
        assert_false(opens(damage.last));
        /* At every byte near both ends, at every KiB in between. */
        if (length > 1024 && length + 1024 < damage.count) length -= (length - 1) % 1024;
    }
    figure("%d of %d cuts found", cuts, cuts);
    end_damage(&damage);
}

/* A file in the last one's place, the message on it, and that the previous one is taken. */
static void damage_is_named(void **state)
{
    struct damage damage;
    begin_damage(&damage);

    damage.bytes[damage.count - 1] ^= 1;
    write_file(damage.last, damage.bytes, damage.count);
    damage.bytes[damage.count - 1] ^= 1;
    assert_previous_taken(&damage, "is damaged (checksum");

    write_file(damage.last, damage.bytes, damage.count / 2);
    assert_previous_taken(&damage, "lies outside of the file");

    write_file(damage.last, "", 0);
    assert_previous_taken(&damage, "is too short (0 bytes)");

    assert_int_equal(unlink(damage.last), 0);
    assert_previous_taken(&damage, "cannot be opened: No such file");

    assert_int_equal(unlink(damage.last), 0);
    assert_int_equal(mkdir(damage.last, 0777), 0);
    assert_previous_taken(&damage, "cannot be opened: Is a directory");

    assert_int_equal(unlink(damage.last), 0);
    assert_int_equal(mkfifo(damage.last, 0666), 0);
    assert_previous_taken(&damage, "cannot be opened: not a regular file");

    assert_int_equal(unlink(damage.last), 0);
    assert_int_equal(symlink("elsewhere", damage.last), 0);
    assert_previous_taken(&damage, "cannot be opened: No such file");

    assert_int_equal(unlink(damage.last), 0);
    assert_int_equal(symlink(CHECKPOINT_LAST, damage.last), 0);
    assert_previous_taken(&damage, "cannot be opened: Too many levels of symbolic links");
    end_damage(&damage);
}

/* A checkpoint that was moved and is linked to is as good as one in its place. */
static void linked(void **state)
{
    struct damage damage;
    struct safetensors file;
    begin_damage(&damage);
    char *elsewhere = file_in("elsewhere");
    assert_int_equal(rename(damage.last, elsewhere), 0);
    assert_int_equal(symlink("elsewhere", damage.last), 0);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    assert_int_equal(batch_of(&file), 2);
    safetensors_close(&file);
    damage.fixture.position.batch = 3;
    assert_int_equal(save(&damage.fixture), OK);
    assert_true(checkpoint_open(&directory_working, damage.previous, &file, &(struct reason){0}));
    assert_int_equal(batch_of(&file), 2);
    safetensors_close(&file);
    assert_true(opens(elsewhere));
    free(elsewhere);
    end_damage(&damage);
}

static void none_is_good(void **state)
{
    struct damage damage;
    struct safetensors file;
    struct caught caught;
    begin_damage(&damage);
    write_file(damage.last, damage.bytes, 100);
    write_file(damage.previous, damage.bytes, 200);
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "there is no valid checkpoint to resume from"));
    text_free(&caught.words);
    end_damage(&damage);
}

/* The one that was written last is taken, whatever it is called, and outlives the next one's writing. */
static void swapped(void **state)
{
    struct damage damage;
    struct safetensors file;
    struct caught caught;
    begin_damage(&damage);
    char *elsewhere = file_in("elsewhere");
    assert_int_equal(rename(damage.last, elsewhere), 0);
    assert_int_equal(rename(damage.previous, damage.last), 0);
    assert_int_equal(rename(elsewhere, damage.previous), 0);
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_true(caught_has(&caught, "was written before"));
    text_free(&caught.words);
    assert_int_equal(batch_of(&file), 2);
    safetensors_close(&file);
    damage.fixture.position.batch = 3;
    assert_int_equal(save(&damage.fixture), OK);
    assert_true(checkpoint_open(&directory_working, damage.previous, &file, &(struct reason){0}));
    assert_int_equal(batch_of(&file), 2);
    safetensors_close(&file);
    assert_true(checkpoint_open(&directory_working, damage.last, &file, &(struct reason){0}));
    assert_int_equal(batch_of(&file), 3);
    safetensors_close(&file);
    free(elsewhere);
    end_damage(&damage);
}

/* Other names come with a checkpoint, and do not lose their content when later ones are written. */
static void other_names(void **state)
{
    struct damage damage;
    struct safetensors file;
    begin_damage(&damage);
    char *best = file_in(CHECKPOINT_BEST), *temporary = text_format("%s.tmp", damage.last);
    static const char *const names[] = {CHECKPOINT_BEST, NULL};
    damage.fixture.position.batch = 3;
    assert_int_equal(save_as(&damage.fixture, names), OK);
    /* The folder is as a process leaves it that dies between the two names. */
    assert_int_equal(link(best, temporary), 0);
    damage.fixture.position.batch = 4;
    assert_int_equal(save(&damage.fixture), OK);
    assert_true(checkpoint_open(&directory_working, best, &file, &(struct reason){0}));
    assert_int_equal(batch_of(&file), 3);
    safetensors_close(&file);
    assert_int_equal(access(temporary, F_OK), -1);
    free(temporary);
    free(best);
    end_damage(&damage);
}

/* Folders stand for as many names as there are, or one in the place of the previous one. */
static void names_that_folders_have(void **state)
{
    static const char *const four[] = {CHECKPOINT_BEST, "elsewhere", "third", "fourth", NULL},
                      *const three[] = {CHECKPOINT_BEST, "elsewhere", "third", NULL};
    struct damage damage;
    struct caught caught;
    begin_damage_of(&damage, tiny);
    assert_int_equal(save_as(&damage.fixture, four), OK);
    for (int i = 0; four[i]; i++) assert_int_equal(checkpoint_serial(&directory, four[i]), 3);
    char *best = file_in(CHECKPOINT_BEST), *within = text_format("%s/within", damage.previous);
    assert_int_equal(unlink(best), 0);
    assert_int_equal(mkdir(best, 0777), 0);
    caught_begin(&caught);
    enum status saved = save_as(&damage.fixture, three);
    assert_int_equal(unlink(damage.previous), 0);
    assert_int_equal(mkdir(damage.previous, 0777), 0);
    assert_int_equal(mkdir(within, 0777), 0);
    enum status refused = save(&damage.fixture);
    caught_end(&caught);
    assert_int_equal(saved, OK);
    assert_true(caught_has(&caught, CHECKPOINT_BEST " was not written; the run continues"));
    assert_int_equal(checkpoint_serial(&directory, "third"), 4);
    assert_int_equal(refused, FAILED);
    assert_true(caught_has(&caught, CHECKPOINT_LAST ": cannot be renamed: "));
    assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_LAST), 4);
    text_free(&caught.words);
    assert_int_equal(rmdir(within), 0);
    free(within);
    free(best);
    end_damage(&damage);
}

/* The previous one would be newer, but is damaged; and one that cannot be set aside, since something else has
 * that name: then nothing is changed. */
static void nothing_else_is_good(void **state)
{
    struct damage damage;
    struct safetensors file;
    struct caught caught;
    begin_damage_of(&damage, tiny);
    char *aside = file_in(CHECKPOINT_UNUSABLE), *within = text_format("%s/within", aside);
    assert_int_equal(rename(damage.previous, damage.last), 0);
    damage.bytes[damage.count - 1] ^= 1;
    write_file(damage.previous, damage.bytes, damage.count);
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_int_equal(batch_of(&file), 1);
    assert_true(caught_has(&caught, CHECKPOINT_LAST " was written before " CHECKPOINT_PREVIOUS));
    assert_true(caught_has(&caught, CHECKPOINT_PREVIOUS " tensor"));
    text_free(&caught.words);
    safetensors_close(&file);
    assert_int_equal(rename(damage.last, damage.previous), 0);
    write_file(damage.last, damage.bytes, damage.count);
    assert_int_equal(mkdir(aside, 0777), 0);
    assert_int_equal(mkdir(within, 0777), 0);
    caught_begin(&caught);
    status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    assert_false(opens(damage.last));
    assert_true(opens(damage.previous));
    text_free(&caught.words);
    assert_int_equal(rmdir(within), 0);
    free(within);
    free(aside);
    end_damage(&damage);
}

/* Refusals of the system and of the device. */

/* The newest one, which is written anew after each try: with the previous one, or with the best one alone. */
static void refuse_newest(struct damage *damage, const char *call, bool whole, bool previous)
{
    bool more = true;
    char *best = file_in(CHECKPOINT_BEST);
    for (int before = 0; more; before++) {
        struct safetensors file;
        struct caught caught;
        write_file(damage->last, damage->bytes, damage->count - !whole);
        if (!previous && access(damage->previous, F_OK) == 0)
            assert_int_equal(rename(damage->previous, best), 0);
        caught_begin(&caught);
        refuse(call, before);
        enum status status = checkpoint_open_newest(&directory, &file);
        more = refuse_struck();
        caught_end(&caught);
        if (status == OK) {
            assert_int_equal(batch_of(&file), whole ? 2 : 1);
            safetensors_close(&file);
        } else if (!more || (status != FAILED && previous)) {
            fail_msg("%s %d: %d, %s", call, before, status, caught.words.data);
        } else {
            assert_int_equal(access(damage->last, F_OK), 0);
            if (status == FAILED) assert_true(caught_has(&caught, "it may be valid: make it readable"));
        }
        text_free(&caught.words);
    }
    free(best);
}

static void reads_that_are_refused(void **state)
{
    static const char *const calls[] = {"pread", "fstat", "memory_try"};
    struct damage damage;
    begin_damage_of(&damage, tiny);
    for (int i = 0; i < 6; i++) refuse_newest(&damage, calls[i / 2], i % 2, true);
    for (int i = 0; i < 6; i++) refuse_newest(&damage, calls[i / 2], i % 2, false);
    end_damage(&damage);
}

/* Each call of a save fails in turn: a valid checkpoint remains, this one or the one before, and there is no
 * other file. Without links the previous one is made by a name alone. */
static void saves_that_are_refused(void **state)
{
    static const char *const calls[] = {"pwrite", "fsync", "close", "linkat", "renameat", "memory_try"};
    static const char *const also[] = {CHECKPOINT_BEST, NULL};
    struct fixture fixture;
    struct safetensors file;
    int64_t kept = 0;
    open_fixture(&fixture, 1);
    fixture.position.batch = 0;
    assert_int_equal(save(&fixture), OK);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            struct caught caught;
            fixture.position.batch++;
            caught_begin(&caught);
            refuse(calls[i], before);
            enum status status = save_as(&fixture, also);
            more = refuse_struck();
            enum status opened = checkpoint_open_newest(&directory, &file);
            caught_end(&caught);
            assert_int_equal(opened, OK);
            bool saved = batch_of(&file) == fixture.position.batch;
            if (!saved && (status == OK || batch_of(&file) != kept)) fail_msg("%s %d", calls[i], before);
            kept = batch_of(&file);
            safetensors_close(&file);
            assert_true(more || (status == OK && before > 0));
            text_free(&caught.words);
        }
    }
    close_fixture(&fixture);
    remove_all();                              /* then the folder is empty, as remove_folder sees */
}

static void no_identity_without_chance(void **state)
{
    char run[CHECKPOINT_RUN];
    struct caught caught;
    caught_begin(&caught);
    refuse("getentropy", 0);
    enum status status = checkpoint_new_run(run);
    caught_end(&caught);
    assert_true(refuse_struck());
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "no random number for the run's identity: Input/output error"));
    text_free(&caught.words);
}

/* A network's copies in half precision, which are made again from what is restored. */
static void open_halved(struct fixture *fixture)
{
    const struct store_options options = {.low = F16, .optimizer = adam()};
    open_fixture(fixture, 1);
    store_close(&fixture->store);
    assert_int_equal(store_open(fixture->device, &fixture->graph, &options, &fixture->store), OK);
    fill_store(&fixture->store, 1);
}

static void restoring_that_is_refused(void **state)
{
    static const char *const calls[] = {"pread", "memory_try"};
    struct fixture fixture;
    struct safetensors file;
    struct position position;
    open_halved(&fixture);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    for (int i = 0; i < 2; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            struct caught caught;
            position = (struct position){.epoch = -7};
            caught_begin(&caught);
            refuse(calls[i], before);
            enum status status = checkpoint_restore(&file, &fixture.store, adam(), &position);
            more = refuse_struck();
            caught_end(&caught);
            assert_int_equal(status == OK, !more);
            assert_int_equal(position.epoch, more ? -7 : 3);
            assert_int_equal(caught.errors, more);
            text_free(&caught.words);
        }
    }
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

static int copies;                       /* until one fails */

static enum status (*upload)(struct device *, int, void *, const void *, size_t);

static enum status counted_download(struct device *device, int stream, void *host, const void *memory,
                                    size_t bytes)
{
    return copies-- == 0 ? NO_DEVICE : download(device, stream, host, memory, bytes);
}

static enum status counted_upload(struct device *device, int stream, void *memory, const void *host,
                                  size_t bytes)
{
    return copies-- == 0 ? NO_DEVICE : upload(device, stream, memory, host, bytes);
}

enum doing { SAVING, BEGINNING, RESTORING };

static enum status do_it(enum doing doing, struct fixture *fixture, const struct safetensors *file)
{
    struct checkpoint_source source = source_of(fixture);
    struct position position;
    if (doing == SAVING) return save(fixture);
    if (doing == RESTORING) return checkpoint_restore(file, &fixture->store, adam(), &position);
    struct checkpoint_writing *writing = checkpoint_begin(&source, &fixture->position, &directory, NULL);
    return writing ? checkpoint_end(writing) : NO_DEVICE;
}

/* Each copy to the device or from it fails in turn: the last checkpoint stays. */
static void a_device_that_is_lost(void **state)
{
    struct fixture fixture;
    struct safetensors file;
    open_halved(&fixture);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    struct device_backend lost = *fixture.device->backend, *usual = (void *)fixture.device->backend;
    download = lost.transfers.download;
    upload = lost.transfers.upload;
    lost.transfers.download = counted_download;
    lost.transfers.upload = counted_upload;
    fixture.device->backend = &lost;
    for (enum doing doing = SAVING; doing <= RESTORING; doing++) {
        enum status status = FAILED;
        for (int before = 0; status != OK; before++) {
            struct caught caught;
            int64_t serial = checkpoint_serial(&directory, CHECKPOINT_LAST);
            caught_begin(&caught);
            copies = before;
            status = do_it(doing, &fixture, &file);
            caught_end(&caught);
            if (status != (copies < 0 ? NO_DEVICE : OK)) fail_msg("%d %d: %d", doing, before, status);
            assert_int_equal(checkpoint_serial(&directory, CHECKPOINT_LAST) - serial,
                             status == OK && doing != RESTORING);
            assert_true(status != OK || before > 0);
            text_free(&caught.words);
        }
    }
    fixture.device->backend = usual;
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

/* Files with checksums that are no checkpoints of this version. */
static void formats_that_cannot_be(void **state)
{
    static const struct {
        const char *format, *version, *serial, *words;
    } rows[] = {
        {CHECKPOINT_FORMAT, "1", "1", NULL}, {CHECKPOINT_FORMAT, "1", "x", "has an invalid serial number"},
        {CHECKPOINT_FORMAT, "1", "0", "has an invalid serial number"},
        {CHECKPOINT_FORMAT, "0", "1", "has an invalid version: '0'"},
        {CHECKPOINT_FORMAT, "1x", "1", "has an invalid version: '1x'"},
        {CHECKPOINT_FORMAT, "2", "1", "has version 2; this amptrain reads versions up to 1"},
        {"pt", "1", "1", "is not an amptrain checkpoint"},
    };
    struct safetensors none = {0};
    int64_t unknown = 7;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct safetensors_pair pairs[] = {{"format", (char *)rows[i].format},
                                                 {"version", (char *)rows[i].version},
                                                 {"serial", (char *)rows[i].serial}};
        const struct safetensors_content content = {.metadata = pairs, .metadata_count = 3};
        struct safetensors file;
        struct reason reason = {.text = ""};
        assert_int_equal(safetensors_write_in(&directory, CHECKPOINT_LAST, &content), OK);
        bool good = checkpoint_open(&directory, CHECKPOINT_LAST, &file, &reason);
        assert_int_equal(good, rows[i].words == NULL);
        if (good) safetensors_close(&file);
        else if (!strstr(reason.text, rows[i].words)) fail_msg("%s: %s", rows[i].words, reason.text);
        int64_t serial = checkpoint_serial(&directory, CHECKPOINT_LAST);
        assert_int_equal(serial, strcmp(rows[i].serial, "1") == 0 ? 1 : -1);
    }
    assert_true(checkpoint_read_serial(&none, &unknown));
    assert_int_equal(unknown, 0);
    remove_all();
}

/* A run without averages goes on with them: they begin with its weights. */
static void new_averages(void **state)
{
    struct fixture from, to;
    struct safetensors file;
    struct position position;
    float average[6], master[6];
    open_halved(&from);
    open_fixture(&to, 2);
    assert_int_equal(save(&from), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    assert_int_equal(checkpoint_match(&file, &to.store, adam()), OK);
    assert_int_equal(checkpoint_restore(&file, &to.store, adam(), &position), OK);
    int param = graph_find_param(&to.graph, "fc.weight");
    assert_int_equal(store_read(&to.store, param, STORE_AVERAGE, average), OK);
    assert_int_equal(store_read(&from.store, param, STORE_MASTER, master), OK);
    assert_memory_equal(average, master, sizeof master);
    safetensors_close(&file);
    close_fixture(&from);
    close_fixture(&to);
    remove_all();
}

static void another_model(void **state)
{
    struct fixture fixture;
    struct safetensors file;
    struct caught caught;
    struct store other = {0};
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    struct graph graph = make_graph(tiny, 4);
    struct store_options options = {.low = F32, .optimizer = adam(), .ema = true};
    assert_int_equal(store_open(fixture.device, &graph, &options, &other), OK);
    assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
    caught_begin(&caught);
    enum status status = checkpoint_match(&file, &other, adam());
    enum status optimizer = checkpoint_match(&file, &fixture.store, optimizer_find("sgd"));
    enum status none = checkpoint_match(&file, &fixture.store, NULL);
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    assert_int_equal(optimizer, BAD_CHECKPOINT);
    assert_int_equal(none, BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "fc.weight"));
    assert_true(caught_has(&caught, "is not part of this model or optimizer"));
    text_free(&caught.words);
    safetensors_close(&file);
    store_close(&other);
    graph_free(&graph);
    close_fixture(&fixture);
    remove_all();
}

/* Weights from checkpoints and others. */

static void weights_from_averages(void **state)
{
    struct fixture from, to;
    struct caught caught;
    float average[64], master[64];
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    open_fixture(&to, 2);
    assert_int_equal(save(&from), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, &(struct weights_options){0}, &to.store);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_true(caught_has(&caught, "averaged"));
    int param = graph_find_param(&to.graph, "fc.weight");
    assert_int_equal(store_read(&from.store, param, STORE_AVERAGE, average), OK);
    assert_int_equal(store_read(&to.store, param, STORE_MASTER, master), OK);
    assert_memory_equal(average, master, 6 * sizeof(float));
    text_free(&caught.words);
    free(path);
    close_fixture(&from);
    close_fixture(&to);
    remove_all();
}

static enum status read_master(void *context, int item, void *data)
{
    return store_read(context, item, STORE_MASTER, data);
}

/* Weights with torch.nn.DataParallel's names. */
static void weights_of_a_wrapper(void **state)
{
    struct fixture from, to;
    struct safetensors_item items[64];
    float there[64], here[64];
    char *path = file_in("wrapped.safetensors");
    open_fixture(&from, 1);
    open_fixture(&to, 2);
    int count = from.graph.param_count, param = graph_find_param(&to.graph, "fc.weight");
    assert_true(count <= 64);
    for (int i = 0; i < count; i++) {
        const struct parameter *parameter = &from.graph.params[i];
        items[i] = (struct safetensors_item){text_format("module.%s", parameter->name), parameter->spec.dtype,
                                             parameter->spec.shape};
    }
    const struct safetensors_content content = {items, count, NULL, 0, read_master, &from.store};
    assert_int_equal(safetensors_write(path, &content), OK);
    assert_int_equal(weights_load(path, &(struct weights_options){0}, &to.store), OK);
    assert_int_equal(store_read(&from.store, param, STORE_MASTER, there), OK);
    assert_int_equal(store_read(&to.store, param, STORE_MASTER, here), OK);
    assert_memory_equal(there, here, 6 * sizeof(float));
    for (int i = 0; i < count; i++) free((char *)items[i].name);
    unlink(path);
    free(path);
    close_fixture(&from);
    close_fixture(&to);
    remove_all();
}

static enum status load_caught(const char *path, bool fresh, struct store *store, struct caught *caught)
{
    caught_begin(caught);
    enum status status = weights_load(path, &(struct weights_options){.fine_tuned = fresh}, store);
    caught_end(caught);
    return status;
}

/* Three classes, the checkpoint's row of each (-1: none), and what is said. */
struct renamed {
    char *now[3];
    int from_row[3];
    const char *said;
};

static void check_rows(const struct renamed *renamed)
{
    const struct weights_options options = {.fine_tuned = true, .class_names = renamed->now, .classes = 3};
    const int *from_row = renamed->from_row;
    struct fixture from, to;
    struct caught caught;
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    open_fixture(&to, 2);
    assert_int_equal(save(&from), OK);
    static const char *const names[] = {"fc.weight", "fc.bias"};
    float before[2][8], after[8], source[8];
    for (int p = 0; p < 2; p++)
        assert_int_equal(
            store_read(&to.store, graph_find_param(&to.graph, names[p]), STORE_MASTER, before[p]), OK);
    caught_begin(&caught);
    assert_int_equal(weights_load(path, &options, &to.store), OK);
    caught_end(&caught);
    assert_true(caught_has(&caught, renamed->said));
    for (int p = 0; p < 2; p++) {
        int param = graph_find_param(&to.graph, names[p]), width = p == 0 ? 2 : 1;
        assert_int_equal(store_read(&from.store, param, STORE_AVERAGE, source), OK);
        assert_int_equal(store_read(&to.store, param, STORE_MASTER, after), OK);
        for (int i = 0; i < 3; i++)
            assert_memory_equal(after + i * width, from_row[i] < 0 ? before[p] + i * width
                                                                   : source + from_row[i] * width,
                                (size_t)width * sizeof(float));
    }
    text_free(&caught.words);
    free(path);
    close_fixture(&from);
    close_fixture(&to);
    remove_all();
}

/* The checkpoint's classes are those of save_as. Rows of the classifier go to the class of their name. */
static void rows_go_by_name(void **state)
{
    check_rows(&(struct renamed){{"drei \xc3\xa4", "four", "one"}, {2, -1, 0},
                                 "has 2 of the 3 classes, but not 'four'"});
    check_rows(&(struct renamed){{"two \"2\"", "drei \xc3\xa4", "one"}, {1, 2, 0},
                                 "has the same classes in a different order"});
}

/* A checkpoint whose weights are loaded into another network; what is said about that. */
static void expect_load(const char *model, int classes, bool fresh, enum status wanted,
                        const char *const said[])
{
    struct fixture from;
    struct caught caught;
    struct store to = {0};
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    assert_int_equal(save(&from), OK);
    struct graph graph = make_graph(model, classes);
    struct store_options options = {.low = F32};
    assert_int_equal(store_open(from.device, &graph, &options, &to), OK);
    assert_int_equal(load_caught(path, fresh, &to, &caught), wanted);
    for (int i = 0; said[i]; i++) assert_true(caught_has(&caught, said[i]));
    text_free(&caught.words);
    store_close(&to);
    graph_free(&graph);
    free(path);
    close_fixture(&from);
    remove_all();
}

static void other_classes(void **state)
{
    expect_load(tiny, 5, false, BAD_CHECKPOINT,
                (const char *const[]){"fc.weight (3x2, not 5x2), fc.bias (3, not 5)", NULL});
    expect_load(tiny, 5, true, OK, (const char *const[]){"'fc' is initialised", NULL});
}

static void missing_and_unexpected(void **state)
{
    static const char other[] =
        "[input]\nchannels = 1\nsize = 4\n[layers]\nconv = conv input filters=2 kernel=3 pad=1\n"
        "relu = relu conv\navg = globalavgpool relu\nfc = linear avg units=$classes\n";
    expect_load(other, 3, true, BAD_CHECKPOINT,
                (const char *const[]){"missing tensors: conv.bias", "bn.running_mean", NULL});
}

/* Whoever writes a file can write anything into its header, checksums and all. */
static void positions_that_cannot_be(void **state)
{
    static const struct {
        const char *key, *value, *words;
    } cases[] = {
        {"position.epoch", "-1", "has an invalid position"},
        {"position.batch", "-1", "has an invalid position"},
        {"position.epoch", "9223372036854775807", "has an invalid position"},
        {"position.batch", "9223372036854775807", "has an invalid position"},
        {"position.bad_images", "1099511627777", "has an invalid position"},
        {"position.best_epoch", "-1", "has an invalid position"},
        {"position.epochs_without_gain", "9223372036854775807", "has an invalid position"},
        {"optimizer.skipped_steps", "-9223372036854775808", "has an invalid position"},
        {"scaler.good_steps", "-1", "has an invalid position"},
        {"optimizer.updates", "1000000", "has an invalid position"},
        {"scaler.good_steps", "4294967296", "has an invalid value for 'scaler.good_steps': '4294967296'"},
        {"optimizer.skipped", "-4294967296", "has an invalid value for 'optimizer.skipped'"},
        {"position.epoch", "1x", "has an invalid value for 'position.epoch': '1x'"},
        {"position.epoch", "99999999999999999999", "has an invalid value for 'position.epoch'"},
        {"position.epoch", NULL, "has no 'position.epoch'"},
        {"config", "[train]\nepochs = none\n", "its configuration is invalid"},
        {"config", NULL, "has no configuration"},
    };
    struct fixture fixture;
    struct position position;
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors file;
        struct caught caught;
        assert_int_equal(checkpoint_open_newest(&directory, &file), OK);
        for (int k = 0; k < file.metadata_count; k++) {
            struct safetensors_pair *pair = &file.metadata[k];
            if (strcmp(pair->key, cases[i].key) != 0) continue;
            free(pair->value);
            pair->value = cases[i].value ? text_copy(cases[i].value) : NULL;
        }
        caught_begin(&caught);
        enum status status = strcmp(cases[i].key, "config") == 0
                                 ? checkpoint_match_settings(&file, &fixture.settings)
                                 : checkpoint_restore(&file, &fixture.store, adam(), &position);
        caught_end(&caught);
        assert_int_equal(status, BAD_CHECKPOINT);
        if (!caught_has(&caught, cases[i].words)) fail_msg("'%s'", caught.words.data);
        text_free(&caught.words);
        safetensors_close(&file);
    }
    close_fixture(&fixture);
    remove_all();
}

static void none_at_all(void **state)
{
    struct safetensors file;
    struct caught caught;
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(&directory, &file);
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "there is no checkpoint to resume from"));
    text_free(&caught.words);
}

/* `count` times `piece`, between two brackets if it is a list. */
static char *repeated(const char *piece, int count, bool list)
{
    size_t length = strlen(piece);
    char *text = memory_new((length + 1) * (size_t)count + 3, 1), *to = text;
    if (list) *to++ = '[';
    for (int i = 0; i < count; i++) {
        if (list && i > 0) *to++ = ',';
        memcpy(to, piece, length);
        to += length;
    }
    if (list) *to = ']';
    return text;
}

/* A header of up to a hundred megabytes is read no further than a run can have written. */
static void more_than_a_run_can_have(void **state)
{
    static const struct {
        int algorithms, classes;
    } cases[] = {{1 << 16, CLASSES_MAX}, {(1 << 16) + 1, CLASSES_MAX + 1}};
    for (int i = 0; i < 2; i++) {
        struct safetensors_pair pairs[] = {
            {(char *)"classes", repeated("\"\"", cases[i].classes, true)},
            {(char *)"engines", repeated("sixteen letters\n", cases[i].algorithms, false)},
        };
        struct safetensors file = {.metadata = pairs, .metadata_count = 2};
        char **names;
        int count;
        checkpoint_class_names(&file, &names, &count);
        assert_int_equal(count, i == 0 ? CLASSES_MAX : 0);
        assert_int_equal(checkpoint_algorithms(&file) != NULL, i == 0);
        text_list_free(names, (size_t)count);
        free(pairs[0].value);
        free(pairs[1].value);
    }
}

/* Serials are counted up: one at the end of the numbers would overflow. */
static void serials_that_cannot_be(void **state)
{
    static const char *const bad[] = {"9223372036854775807", "1099511627777", "0", "-1", "1x", ""};
    struct safetensors_pair pair = {(char *)"serial", NULL};
    struct safetensors file = {.metadata = &pair, .metadata_count = 1};
    int64_t serial = 0;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pair.value = (char *)bad[i];
        assert_false(checkpoint_read_serial(&file, &serial));
    }
    pair.value = (char *)"1099511627776";
    assert_true(checkpoint_read_serial(&file, &serial));
    assert_int_equal(serial, (int64_t)1 << 40);
}

/* Sizes that no run writes are refused before anything is made of them. */
static void inputs_that_cannot_be(void **state)
{
    static const char *const texts[] = {
        "8 8 257", "8 8 100000000000000000000", "8 8 -1", "0 8 3", "65537 8 3", "8 8", "8 8 3 1", "8x8x3", "",
    };
    int h, w, channels;
    struct reason reason;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct safetensors_pair pair = {(char *)"input", (char *)texts[i]};
        struct safetensors file = {.metadata = &pair, .metadata_count = 1};
        assert_false(checkpoint_input(&file, &h, &w, &channels, &reason));
        assert_non_null(strstr(reason.text, "'input'"));
    }
    struct safetensors none = {0};
    assert_true(checkpoint_input(&none, &h, &w, &channels, &reason));
    assert_int_equal(h + w + channels, 0);
}

/* Numbers of threads and thresholds that no run writes are as none at all. */
static void numbers_that_cannot_be(void **state)
{
    static const struct {
        const char *text;
        int threads;
    } counts[] = {{"3", 3}, {"0", 0}, {"-1", 0}, {"100000000000000000000", 0}, {"many", 0}, {"", 0}};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        struct safetensors_pair pair = {(char *)"threads", (char *)counts[i].text};
        const struct safetensors file = {.metadata = &pair, .metadata_count = 1};
        assert_int_equal(checkpoint_threads(&file), counts[i].threads);
    }
    static const char *const bad[] = {"[0.5]", "[0.5,0.25,1]", "[0.5,\"0.25\"]", "[0.5,null]", "[0.5,[0.25]]",
                                      "[0.5,0.25", "0.5", "{}", ""};
    struct safetensors_pair pair = {(char *)"thresholds", (char *)"[0.5,0.25]"};
    const struct safetensors file = {.metadata = &pair, .metadata_count = 1}, none = {0};
    double *thresholds = checkpoint_thresholds(&file, 2);
    assert_non_null(thresholds);
    assert_true(thresholds[0] == 0.5 && thresholds[1] == 0.25);
    free(thresholds);
    assert_null(checkpoint_thresholds(&none, 2));
    pair.value = memory_new(CLASSES_MAX + 2, 1);
    memset(pair.value, ',', CLASSES_MAX + 1);
    assert_null(checkpoint_thresholds(&file, CLASSES_MAX + 1));
    assert_null(checkpoint_thresholds(&file, 0));
    free(pair.value);
    assert_int_equal(checkpoint_threads(&none), 0);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        pair.value = (char *)bad[i];
        assert_null(checkpoint_thresholds(&file, 2));
    }
}

#define FIFTY "/a/folder/of/fifty/bytes/whose/name/makes/lines/long"

/* A checkpoint's configuration alone; NULL: it has none. The text is freed with the pair's value. */
static struct safetensors file_with(const char *config, struct safetensors_pair *pair)
{
    struct text text = {0};
    text_escape(&text, config ? config : "");
    *pair = (struct safetensors_pair){(char *)"config", text.data};
    return (struct safetensors){.path = (char *)"it", .metadata = pair, .metadata_count = config != NULL};
}

/* Settings that may change when a run is resumed, but change its numbers, are said; others are refused. */
static void what_changes_numbers(void **state)
{
    static const struct {
        const char *then, *now;
        enum status status;
        const char *said;
    } rows[] = {
        {"", "", OK, ""},
        {"", "[parallel]\ngpus = 2\n", OK, "it: a step had 1 micro-batch and now has 2: from here on"},
        {"[parallel]\ngpus = 2\n", "[parallel]\ngpus = 3\n", OK, "it: a step had 2 micro-batches and now has 3"},
        {"[train]\naccumulate = 6\n", "[parallel]\ngpus = 3\n[train]\naccumulate = 2\n", OK,
         "it: 3 GPUs add the gradients of 6 micro-batches in a different order than 1"},
        {"[train]\naccumulate = 4\n", "[parallel]\ngpus = 2\n[train]\naccumulate = 2\n", OK, ""},
        {"[train]\naccumulate = 4\n", "[train]\naccumulate = 2\n", USAGE, "train.accumulate: 4, now 2"},
        {"[parallel]\ngpus = 2\n[train]\nsync_bn = yes\n", "[train]\nsync_bn = yes\naccumulate = 2\n", OK,
         "it: batch norm normalised a step's images in 1 part (train.sync_bn), and now does in 2"},
        {"[train]\nsync_bn = yes\naccumulate = 2\n", "[parallel]\ngpus = 2\n[train]\nsync_bn = yes\n", OK,
         "it: batch norm normalised a step's images in 2 parts (train.sync_bn), and now does in 1"},
        {"[parallel]\nwire = storage\n", "", OK, "it: parallel.wire was storage: from here on"},
        {"", "[parallel]\nwire = storage\n", OK, "it: parallel.wire was fp32: from here on"},
        {"", "[train]\nema = 0.9\n", OK, "it: has no averaged weights: they begin with its weights"},
        {"[train]\nema = 0.9\n", "", USAGE, "train.ema: 0.9, now 0"},
        {"[train]\nbatch = 32\n", "[train]\nbatch = 64\n", USAGE, "train.batch: 32, now 64"},
        {"[train]\nbatch = few\n", "", BAD_CHECKPOINT, "it: its configuration is invalid"},
        {NULL, "", BAD_CHECKPOINT, "it: has no configuration"},
        /* Older versions knew neither limits of lines nor inih. */
        {"[train]\nbatch = 32  ; " FIFTY FIFTY FIFTY FIFTY "/run.ini:7\nfreeze = \"a ;b\"\n",
         "[train]\nbatch = 32\nfreeze = \"a\\x20;b\"\n", OK, ""},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct safetensors_pair pair;
        struct safetensors file = file_with(rows[i].then, &pair);
        struct settings now;
        struct caught caught;
        assert_int_equal(settings_load_text("now", rows[i].now, &now), OK);
        now.train.loss = TRAIN_LOSS_CE;      /* as a session resolves them */
        now.data.task = TASK_CLASSIFY;
        caught_begin(&caught);
        enum status status = checkpoint_match_settings(&file, &now);
        caught_end(&caught);
        if (status != rows[i].status || !caught_has(&caught, rows[i].said))
            fail_msg("%s -> %s: %d, %s", rows[i].then, rows[i].now, status, caught.words.data);
        if (!*rows[i].said) assert_string_equal(caught.words.data, "");
        text_free(&caught.words);
        settings_free(&now);
        free(pair.value);
    }
}

/* Choices of the run itself are taken from its checkpoint, unless they are set now. */
static void choices_are_recalled(void **state)
{
    static const struct {
        const char *then, *now;
        int64_t batch, limit, micro_batches;
    } rows[] = {
        {"[train]\nbatch = 48\n[memory]\nlimit = 1G\n[parallel]\nmicrobatches = 2\n", "", 48, (int64_t)1 << 30, 2},
        {"[train]\nbatch = 48\n[memory]\nlimit = 1G\n", "[memory]\nlimit = 2G\n", 48, (int64_t)1 << 31, -1},
        {"[train]\nbatch = 48\n[parallel]\nmicrobatches = auto\n", "[train]\nbatch = auto\n", 48, -1, -1},
        {"[train]\nbatch = auto\n[memory]\nlimit = 1G\n", "[train]\nbatch = 16\n", 16, -1, -1},
        {"[train]\nbatch = few\n", "[train]\nbatch = 16\n", 16, -1, -1},
        {NULL, "[train]\nbatch = 16\n", 16, -1, -1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct safetensors_pair pair;
        struct safetensors file = file_with(rows[i].then, &pair);
        struct settings now, usual;
        struct caught caught;
        assert_int_equal(settings_load_text("now", rows[i].now, &now), OK);
        assert_int_equal(settings_load_text("usual", "", &usual), OK);
        caught_begin(&caught);
        checkpoint_recall_batch(&file, &now);
        checkpoint_recall_micro_batches(&file, &now);
        caught_end(&caught);
        assert_int_equal(now.train.batch, rows[i].batch);
        assert_int_equal(now.memory.limit, rows[i].limit < 0 ? (int64_t)usual.memory.limit : rows[i].limit);
        assert_int_equal(now.parallel.microbatches,
                         rows[i].micro_batches < 0 ? usual.parallel.microbatches : rows[i].micro_batches);
        text_free(&caught.words);
        settings_free(&now);
        settings_free(&usual);
        free(pair.value);
    }
}

static int make_folder(void **state)
{
    return mkdtemp(folder) == NULL || directory_open(folder, &directory) != OK;
}

static int remove_folder(void **state)
{
    directory_close(&directory);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(in_a_thread),
        cmocka_unit_test(in_a_thread_without_space),
        cmocka_unit_test(replaced_while_written),
        cmocka_unit_test(best),
        cmocka_unit_test(best_at_random),
        cmocka_unit_test(best_that_was_lost),
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(more_than_a_run_can_have),
        cmocka_unit_test(positions_that_cannot_be),
        cmocka_unit_test(serials_that_cannot_be),
        cmocka_unit_test(inputs_that_cannot_be), cmocka_unit_test(numbers_that_cannot_be),
        cmocka_unit_test(what_changes_numbers), cmocka_unit_test(choices_are_recalled),
        cmocka_unit_test(none_at_all),
        cmocka_unit_test(another_run), cmocka_unit_test(of_an_older_version),
        cmocka_unit_test(another_teacher), cmocka_unit_test(data_that_cannot_be_matched),
        cmocka_unit_test(names_that_folders_have), cmocka_unit_test(nothing_else_is_good),
        cmocka_unit_test(saves_that_are_refused), cmocka_unit_test(no_identity_without_chance),
        cmocka_unit_test(reads_that_are_refused), cmocka_unit_test(restoring_that_is_refused),
        cmocka_unit_test(a_device_that_is_lost), cmocka_unit_test(formats_that_cannot_be),
        cmocka_unit_test(new_averages),
        cmocka_unit_test(previous),
        cmocka_unit_test(bits_flipped),
        cmocka_unit_test(sectors_lost),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(linked),
        cmocka_unit_test(none_is_good),
        cmocka_unit_test(swapped),
        cmocka_unit_test(other_names),
        cmocka_unit_test(another_model),
        cmocka_unit_test(weights_from_averages),
        cmocka_unit_test(weights_of_a_wrapper),
        cmocka_unit_test(rows_go_by_name),
        cmocka_unit_test(other_classes),
        cmocka_unit_test(missing_and_unexpected),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
