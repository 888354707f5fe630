/* Checkpoints: what goes in comes out to the bit; damage of every kind is found and named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "caught.h"
#include "graph/model.h"
#include "place.h"
#include "train/checkpoint.h"
#include "train/durable.h"
#include "train/weights.h"

#include <cmocka.h>

static char folder[] = "/tmp/test_checkpoint.XXXXXX";

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

static void open_fixture(struct fixture *fixture, uint64_t seed)
{
    *fixture = (struct fixture){0};
    fixture->graph = make_graph(tiny, 3);
    struct store_options options = {.low = F32, .optimizer = adam(), .ema = true};
    fixture->device = place_open(1);
    assert_int_equal(store_open(fixture->device, &fixture->graph, &options, &fixture->store), OK);
    assert_int_equal(settings_load(NULL, NULL, 0, &fixture->settings), OK);
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

static void close_fixture(struct fixture *fixture)
{
    store_close(&fixture->store);
    device_close(fixture->device);
    graph_free(&fixture->graph);
    settings_free(&fixture->settings);
}

static const char engines[] = "01234567 NVIDIA, conv 8x8=1.0 us\n89abcdef linear=2.5 us\n";

static enum status save(const struct fixture *fixture)
{
    static char *const names[] = {"one", "two \"2\"", "drei \xc3\xa4"};
    struct checkpoint_source source = {&fixture->store, adam(), &fixture->settings, names, 3, 4, 4, 1,
                                       engines};
    return checkpoint_save(&source, &fixture->position, folder);
}

static char *file_in(const char *name)
{
    return durable_path(folder, name);
}

static void remove_all(void)
{
    static const char *const names[] = {CHECKPOINT_LAST, CHECKPOINT_PREVIOUS, CHECKPOINT_BEST};
    for (size_t i = 0; i < 3; i++) {
        char *path = file_in(names[i]);
        unlink(path);
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

static void round_trip(void **state)
{
    (void)state;
    struct fixture from, to;
    struct safetensors file;
    struct position position;
    struct optimizer_state then, now;
    open_fixture(&from, 1);
    open_fixture(&to, 2);
    assert_false(checkpoint_exists(folder));
    assert_int_equal(save(&from), OK);
    assert_true(checkpoint_exists(folder));
    assert_int_equal(checkpoint_open_newest(folder, &file), OK);
    assert_int_equal(checkpoint_match(&file, &to.store, adam()), OK);
    assert_int_equal(checkpoint_match_settings(&file, &to.settings), OK);
    assert_int_equal(checkpoint_restore(&file, &to.store, adam(), &position), OK);
    assert_stores_equal(&from.store, &to.store);
    assert_memory_equal(&position, &from.position, sizeof position);
    assert_int_equal(store_read_state(&from.store, &then), OK);
    assert_int_equal(store_read_state(&to.store, &now), OK);
    assert_memory_equal(&then, &now, sizeof now);
    safetensors_close(&file);
    close_fixture(&from);
    close_fixture(&to);
    remove_all();
}

static void names_and_sizes(void **state)
{
    (void)state;
    struct fixture fixture;
    struct safetensors file;
    char **names;
    int count, h, w, channels;
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(checkpoint_open_newest(folder, &file), OK);
    checkpoint_class_names(&file, &names, &count);
    assert_int_equal(count, 3);
    assert_string_equal(names[1], "two \"2\"");
    assert_string_equal(names[2], "drei \xc3\xa4");
    assert_true(checkpoint_input(&file, &h, &w, &channels));
    assert_int_equal(h * 100 + w * 10 + channels, 441);
    assert_string_equal(checkpoint_engines(&file), engines);
    checkpoint_free_names(names, count);
    safetensors_close(&file);
    close_fixture(&fixture);
    remove_all();
}

/* The previous one is there until it is overwritten by the next but one, and is what it was. */
static void previous(void **state)
{
    (void)state;
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
        assert_true(checkpoint_open(path, &file, &reason));
        assert_true(position_parse(&file, &position, &unused, &reason));
        assert_int_equal(position.batch, batch - 1);
        safetensors_close(&file);
    }
    close_fixture(&fixture);
    free(path);
    remove_all();
}

static char *read_file(const char *path, size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = memory_new(1 << 16, 1);
    *count = fread(bytes, 1, 1 << 16, file);
    assert_true(*count < 1 << 16);
    fclose(file);
    return bytes;
}

static void write_file(const char *path, const char *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    fclose(file);
}

static bool opens(const char *path)
{
    struct safetensors file;
    struct reason reason;
    if (!checkpoint_open(path, &file, &reason)) return false;
    safetensors_close(&file);
    return true;
}

static void bits_flipped(void **state)
{
    (void)state;
    struct fixture fixture;
    size_t count;
    char *path = file_in(CHECKPOINT_LAST);
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    char *bytes = read_file(path, &count);
    assert_true(opens(path));
    for (int round = 0; round < 3000; round++) {
        uint32_t bit = random_below(&random, (uint32_t)(8 * count));
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(path, bytes, count);
        if (opens(path)) fail_msg("bit %u of %zu bytes is not watched", bit, count);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(bytes);
    free(path);
    close_fixture(&fixture);
    remove_all();
}

static void cut_off(void **state)
{
    (void)state;
    struct fixture fixture;
    size_t count;
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    char *bytes = read_file(path, &count);
    for (size_t length = 0; length < count; length += 61) {
        write_file(path, bytes, length);
        assert_false(opens(path));
    }
    free(bytes);
    free(path);
    close_fixture(&fixture);
    remove_all();
}

/* What a damaged tensor's message says, and that the previous checkpoint is taken. */
static void damage_is_named(void **state)
{
    (void)state;
    struct fixture fixture;
    struct safetensors file;
    struct caught caught;
    size_t count;
    char *last = file_in(CHECKPOINT_LAST), *previous = file_in(CHECKPOINT_PREVIOUS);
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    assert_int_equal(save(&fixture), OK);
    char *bytes = read_file(last, &count);
    bytes[count - 1] ^= 1;
    write_file(last, bytes, count);
    caught_begin(&caught);
    enum status status = checkpoint_open_newest(folder, &file);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_string_equal(file.path, previous);
    assert_true(caught_has(&caught, "is damaged"));
    assert_true(caught_has(&caught, "resuming from"));
    safetensors_close(&file);
    text_free(&caught.words);
    write_file(previous, bytes, count);
    caught_begin(&caught);
    status = checkpoint_open_newest(folder, &file);
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    text_free(&caught.words);
    free(bytes);
    free(last);
    free(previous);
    close_fixture(&fixture);
    remove_all();
}

static void another_model(void **state)
{
    (void)state;
    struct fixture fixture;
    struct safetensors file;
    struct caught caught;
    struct store other = {0};
    open_fixture(&fixture, 1);
    assert_int_equal(save(&fixture), OK);
    struct graph graph = make_graph(tiny, 4);
    struct store_options options = {.low = F32, .optimizer = adam(), .ema = true};
    assert_int_equal(store_open(fixture.device, &graph, &options, &other), OK);
    assert_int_equal(checkpoint_open_newest(folder, &file), OK);
    caught_begin(&caught);
    enum status status = checkpoint_match(&file, &other, adam());
    enum status optimizer = checkpoint_match(&file, &fixture.store, optimizer_find("sgd"));
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    assert_int_equal(optimizer, BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "fc.weight"));
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
    (void)state;
    struct fixture from, to;
    struct caught caught;
    float average[64], master[64];
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    open_fixture(&to, 2);
    assert_int_equal(save(&from), OK);
    caught_begin(&caught);
    enum status status = weights_load(path, false, &to.store);
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

static enum status load_caught(const char *path, bool fresh, struct store *store, struct caught *caught)
{
    caught_begin(caught);
    enum status status = weights_load(path, fresh, store);
    caught_end(caught);
    return status;
}

static void other_classes(void **state)
{
    (void)state;
    struct fixture from;
    struct caught caught;
    struct store to = {0};
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    assert_int_equal(save(&from), OK);
    struct graph graph = make_graph(tiny, 5);
    struct store_options options = {.low = F32};
    assert_int_equal(store_open(from.device, &graph, &options, &to), OK);
    assert_int_equal(load_caught(path, false, &to, &caught), BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "fc.weight, fc.bias"));
    text_free(&caught.words);
    assert_int_equal(load_caught(path, true, &to, &caught), OK);
    assert_true(caught_has(&caught, "'fc' starts fresh"));
    text_free(&caught.words);
    store_close(&to);
    graph_free(&graph);
    free(path);
    close_fixture(&from);
    remove_all();
}

static void missing_and_unexpected(void **state)
{
    (void)state;
    static const char other[] =
        "[input]\nchannels = 1\nsize = 4\n[layers]\nconv = conv input filters=2 kernel=3 pad=1\n"
        "relu = relu conv\navg = globalavgpool relu\nfc = linear avg units=$classes\n";
    struct fixture from;
    struct caught caught;
    struct store to = {0};
    char *path = file_in(CHECKPOINT_LAST);
    open_fixture(&from, 1);
    assert_int_equal(save(&from), OK);
    struct graph graph = make_graph(other, 3);
    struct store_options options = {.low = F32};
    assert_int_equal(store_open(from.device, &graph, &options, &to), OK);
    assert_int_equal(load_caught(path, true, &to, &caught), BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "1 tensors are missing: conv.bias"));
    assert_true(caught_has(&caught, "bn.running_mean"));
    text_free(&caught.words);
    store_close(&to);
    graph_free(&graph);
    free(path);
    close_fixture(&from);
    remove_all();
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state)
{
    (void)state;
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(round_trip),
        cmocka_unit_test(names_and_sizes),
        cmocka_unit_test(previous),
        cmocka_unit_test(bits_flipped),
        cmocka_unit_test(cut_off),
        cmocka_unit_test(damage_is_named),
        cmocka_unit_test(another_model),
        cmocka_unit_test(weights_from_averages),
        cmocka_unit_test(other_classes),
        cmocka_unit_test(missing_and_unexpected),
    };
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
