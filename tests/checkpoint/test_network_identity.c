/* Whose network weights are: each difference is found and told, and what a file holds is read or refused. And
 * which run a checkpoint belongs to. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "checkpoint/network_identity.h"
#include "format/safetensors.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

#define GRAPH(classes, layer)                                                                            \
    "[input]\nchannels = 3\nclasses = " classes "\n[layers]\nact = " layer " input\n"                        \
    "fc = linear act units=" classes "\n"

static char *names[] = {"cat", "dog"}, *swapped[] = {"dog", "cat"}, *others[] = {"cat", "cow"};

static const struct network_identity base = {
    .graph = (char *)GRAPH("2", "relu"), .class_names = names, .classes = 2, .channels = 3,
    .normalised = true,
    .mean = {.count = 3, .value = {0.5, 0.25, 0.5}},
};

static void differences(void **state)
{
    struct network_identity numbers = base, other[14];
    static const char *const told[] = {
        "layer 'act' is 'relu6 input', not 'relu input'",
        "the classes are in another order: class 0 is 'dog', not 'cat'",
        "class 1 is 'cow', not 'dog'",
        "there are 1 classes, not 2",
        "images have 1 channel, not 3",
        "images have 4 channels, not 3",
        "augment.mean is 0, not 0.5,0.25,0.5",
        "augment.mean is 0.5, not 0.5,0.25,0.5",
        "augment.std is 2, not 1",
        ("layer 'act' is 'relu6 input', not 'relu input'; class 1 is 'cow', not 'dog'; "
         "augment.std is 2, not 1"),
        "images have 1 channel, not 3; augment.mean is 0, not 0.5,0.25,0.5",
        "data.task is multilabel, not regress",
        "data.value_scale is 0,1, not 3,0.5",
        "data.value_scale is 3,1, not 3,0.5",
    };
    numbers.task = TASK_REGRESS;
    numbers.value_scale = (struct field_reals){.count = 2, .value = {3, 0.5}};
    for (int i = 0; i < 14; i++) other[i] = i < 11 ? base : numbers;
    other[11].task = TASK_MULTILABEL;
    other[12].value_scale.count = 0;
    other[13].value_scale.value[1] = 1;
    other[0].graph = other[9].graph = (char *)GRAPH("2", "relu6");
    other[1].class_names = swapped;
    other[2].class_names = other[9].class_names = others;
    other[3].classes = 1;
    other[4].channels = other[10].channels = 1;
    other[5].channels = 4;
    other[6].mean.count = other[10].mean.count = 0;
    other[7].mean = (struct field_reals){.count = 1, .value = {0.5}};
    other[8].std = other[9].std = (struct field_reals){.count = 1, .value = {2}};
    for (int i = 0; i < 14; i++) {
        struct text text = {0}, back = {0};
        const struct network_identity *one = i < 11 ? &base : &numbers;
        assert_false(network_identity_same(one, &other[i], GRAPH_SAME_WEIGHTS, &text));
        assert_string_equal(text.data, told[i]);
        assert_false(network_identity_same(&other[i], one, GRAPH_SAME_TRAINING, &back));
        text_free(&text);
        text_free(&back);
    }
}

static void equal(void **state)
{
    struct network_identity other[8];
    for (int i = 0; i < 8; i++) other[i] = base;
    other[1].graph = NULL;
    other[2].classes = 0;
    other[3].channels = 0;
    other[4].normalised = false;
    other[4].mean.count = 0;
    other[5].std = (struct field_reals){.count = 3, .value = {1, 1, 1}};
    other[6].task = TASK_REGRESS;                  /* base's is not known */
    other[7].value_scale.count = 2;                /* there are no numbers */
    for (int i = 0; i < 8; i++) {
        struct text text = {0};
        assert_true(network_identity_same(&base, &other[i], GRAPH_SAME_TRAINING, &text));
        assert_true(network_identity_same(&other[i], &base, GRAPH_SAME_WEIGHTS, &text));
        assert_null(text.data);
    }
}

static char folder[] = "/tmp/test_network_identity.XXXXXX";
static struct directory directory;

/* A file with metadata alone. */
static void write_pairs(const char *name, const struct safetensors_pair *pairs, int count)
{
    const struct safetensors_content content = {.metadata = pairs, .metadata_count = count};
    assert_int_equal(safetensors_write_in(&directory, name, &content), OK);
}

static enum status read_back(const struct safetensors_pair *pairs, int count,
                             struct network_identity *identity)
{
    struct safetensors file;
    struct reason reason;
    struct caught caught;
    write_pairs("file", pairs, count);
    assert_true(safetensors_open_in(&directory, "file", &file, &reason));
    caught_begin(&caught);
    enum status status = network_identity_read(&file, identity);
    caught_end(&caught);
    text_free(&caught.words);
    safetensors_close(&file);
    directory_remove(&directory, "file");
    return status;
}

static void what_files_hold(void **state)
{
    static const struct safetensors_pair all[] = {
        {"graph", GRAPH("2", "relu")}, {"classes", "[\"cat\",\"dog\"]"}, {"input", "8 8 3"},
        {"config", "[augment]\nmean = 0.5,0.25,0.5\n"},
    };
    static const struct safetensors_pair bad[] = {{"input", "8 x 3"}, {"config", "[augment\n"}};
    struct network_identity read;
    struct text text = {0};
    assert_int_equal(read_back(all, 4, &read), OK);
    assert_true(network_identity_same(&base, &read, GRAPH_SAME_TRAINING, &text));
    assert_true(read.normalised && read.classes == 2 && read.channels == 3);
    network_identity_free(&read);
    assert_int_equal(read_back(all, 0, &read), OK);
    assert_true(!read.normalised && !read.graph && read.classes == 0 && read.channels == 0);
    network_identity_free(&read);
    for (int i = 0; i < 2; i++) assert_int_equal(read_back(&bad[i], 1, &read), BAD_CHECKPOINT);
}

static void whose_run(void **state)
{
    char ids[2][CHECKPOINT_RUN];
    for (int i = 0; i < 2; i++) assert_int_equal(checkpoint_new_run(ids[i]), OK);
    assert_int_equal(strspn(ids[0], "0123456789abcdef"), CHECKPOINT_RUN - 1);
    assert_string_not_equal(ids[0], ids[1]);
    /* The checkpoint's and the folder's best one's; NULL: none, as older versions had it. */
    const struct {
        const char *own, *best;
        enum status status;
    } cases[] = {
        {ids[0], ids[0], OK}, {ids[0], ids[1], USAGE}, {NULL, ids[1], OK}, {ids[0], NULL, OK},
        {ids[0], "short", OK}, {NULL, NULL, OK},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct safetensors file;
        struct reason reason;
        struct caught caught;
        const struct safetensors_pair own = {"run", (char *)cases[i].own};
        const struct safetensors_pair best = {"run", (char *)cases[i].best};
        write_pairs(CHECKPOINT_LAST, &own, cases[i].own != NULL);
        write_pairs(CHECKPOINT_BEST, &best, cases[i].best != NULL);
        assert_true(safetensors_open_in(&directory, CHECKPOINT_LAST, &file, &reason));
        caught_begin(&caught);
        enum status status = checkpoint_match_run(&file, &directory);
        caught_end(&caught);
        assert_int_equal(status, cases[i].status);
        if (status != OK) assert_true(caught_has(&caught, CHECKPOINT_BEST ": belongs to another run than"));
        text_free(&caught.words);
        safetensors_close(&file);
    }
    directory_remove(&directory, CHECKPOINT_LAST);
    directory_remove(&directory, CHECKPOINT_BEST);
}

/* True if the best checkpoint of a folder is reported as later than the one from which a run goes on. */
static bool told_later(const struct safetensors_pair *own, const struct safetensors_pair *best)
{
    struct safetensors file;
    struct reason reason;
    struct caught caught;
    write_pairs(CHECKPOINT_LAST, own, own != NULL);
    write_pairs(CHECKPOINT_BEST, best, 1);
    assert_true(safetensors_open_in(&directory, CHECKPOINT_LAST, &file, &reason));
    caught_begin(&caught);
    enum status status = checkpoint_match_run(&file, &directory);
    caught_end(&caught);
    assert_int_equal(status, OK);
    bool told = caught_has(&caught, CHECKPOINT_BEST ": of epoch 3, which ");
    text_free(&caught.words);
    safetensors_close(&file);
    directory_remove(&directory, CHECKPOINT_LAST);
    directory_remove(&directory, CHECKPOINT_BEST);
    return told;
}

static void later_best(void **state)
{
    static const struct safetensors_pair two = {"position.best_epoch", "2"},
                                         three = {"position.best_epoch", "3"};
    assert_true(told_later(&two, &three));
    assert_true(told_later(NULL, &three));
    assert_false(told_later(&three, &three));
    assert_false(told_later(&three, &two));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(differences), cmocka_unit_test(equal), cmocka_unit_test(what_files_hold),
        cmocka_unit_test(whose_run), cmocka_unit_test(later_best),
    };
    if (!mkdtemp(folder) || directory_open(folder, &directory) != OK) return 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    directory_close(&directory);
    rmdir(folder);
    return failed;
}
