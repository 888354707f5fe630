/* Settings: defaults, files, overrides, refusals, and the round trip through config.ini. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "conf/ini.h"
#include "conf/settings.h"
#include "tests/support/caught.h"
#include "tests/support/unit.h"

static struct settings load_text(const char *text)
{
    struct settings settings = {0};
    assert_int_equal(settings_load_text("t.ini", text, &settings), OK);
    return settings;
}

static struct settings load_overrides(const char *one, const char *two)
{
    struct settings settings = {0};
    const char *const overrides[] = {one, two};
    assert_int_equal(settings_load(NULL, overrides, (one != NULL) + (two != NULL), &settings), OK);
    return settings;
}

static void expect_refused(const char *text, const char *words, int errors)
{
    struct settings settings = {.train.epochs = 77};
    struct caught caught;
    caught_begin(&caught);
    enum status status = settings_load_text("t.ini", text, &settings);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    assert_int_equal(settings.train.epochs, 77);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, errors);
    text_free(&caught.words);
}

static void expect_override_refused(const char *override, const char *words)
{
    struct settings settings;
    struct caught caught;
    caught_begin(&caught);
    enum status status = settings_load(NULL, &override, 1, &settings);
    caught_end(&caught);
    assert_int_equal(status, USAGE);
    assert_true(caught_has(&caught, words));
    assert_int_equal(caught.errors, 1);
    text_free(&caught.words);
}

static void defaults(void **state)
{
    struct settings settings = load_overrides(NULL, NULL);
    assert_int_equal(settings.train.batch, 128);
    assert_int_equal(settings.run.threads, 0);
    assert_null(settings.data.train);
    assert_string_equal(settings.amp.precision, "fp32");
    assert_true(settings.amp.loss_scale == -1);
    assert_true(settings.amp.init_scale == 65536);
    assert_true(settings.amp.growth == 2);
    assert_true(settings.amp.backoff == 0.5);
    assert_int_equal(settings.amp.growth_interval, 2000);
    assert_true(settings.amp.min_scale == 1);
    assert_true(settings.amp.max_scale == 16777216);
    assert_int_equal(settings.optimizer.betas.count, 2);
    assert_true(settings.optimizer.eps == -1);
    assert_false(settings.optimizer.decay_norm_bias);
    assert_int_equal(settings.checkpoint.every.unit, UNIT_EPOCHS);
    assert_int_equal(settings.checkpoint.best, BEST_AUTO);
    assert_int_equal(settings.loader.decode, DECODE_AUTO);
    settings_free(&settings);
    settings_free(&settings);
}

static void table_is_whole(void **state)
{
    const struct option_section *section = option_sections;
    for (const struct option *option = option_table; option->section; option++) {
        const struct field *field = &option->field;
        while (section->name && strcmp(section->name, option->section) != 0) section++;
        assert_non_null(section->name);
        assert_non_null(field->initial);
        assert_true(strlen(field->help) > 5 && field->help[strlen(field->help) - 1] == '.');
        assert_true((field->type == FIELD_CHOICE) == (field->choices != NULL));
        assert_true(field->min <= field->max);
        for (const struct option *other = option_table; other != option; other++)
            assert_false(strcmp(other->section, option->section) == 0 &&
                         strcmp(other->field.name, field->name) == 0);
    }
}

static void file_values(void **state)
{
    struct settings settings = load_text("[train]\nepochs = 90 ; comment\nbatch = auto\n"
                                         "[augment]\nmean = 0.485,0.456,0.406\n[data]\nval = a dir/x\n"
                                         "[memory]\nlimit = 8G\nstrategy=keep\n"
                                         "[checkpoint]\nevery = 100 steps\nbest = val_loss\n"
                                         "[run]\nmax_time = 11h\n");
    assert_int_equal(settings.train.epochs, 90);
    assert_int_equal(settings.train.batch, 0);
    assert_int_equal(settings.augment.mean.count, 3);
    assert_true(settings.augment.mean.value[2] == 0.406);
    assert_string_equal(settings.data.val, "a dir/x");
    assert_true(settings.memory.limit == (int64_t)8 << 30);
    assert_int_equal(settings.memory.strategy, STRATEGY_KEEP);
    assert_int_equal(settings.checkpoint.every.unit, UNIT_STEPS);
    assert_int_equal(settings.checkpoint.best, BEST_VAL_LOSS);
    assert_true(settings.run.max_time == 11 * 3600);
    settings_free(&settings);
}

/* data.classes is a path unless it is a number, auto or a list; empty, it is auto. */
static void words_are_no_paths(void **state)
{
    static const struct {
        const char *given, *whole;       /* "/runs/" stands for what a path becomes */
        int classes;
    } cases[] = {{"", "auto", 0}, {"12", "12", 12}, {"road,sky", "road,sky", 0}, {"auto", "auto", 0},
                 {"names.txt", "/runs/names.txt", 0}, {"0", "0", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *override = text_format("[data]\nclasses = %s\n", cases[i].given);
        char *line = text_format("\nclasses = %s\n", cases[i].whole);
        struct settings settings = load_text(override);
        struct text out = {0};
        assert_int_equal(settings_classes(&settings), cases[i].classes);
        settings_print_movable(&settings, "/runs/a.ini", &out);
        if (!strstr(out.data, line)) fail_msg("not%sin %s", line, out.data);
        text_free(&out);
        settings_free(&settings);
        free(override);
        free(line);
    }
}

static void overrides_win(void **state)
{
    char path[] = "/tmp/test_settings.XXXXXX";
    int descriptor = mkstemp(path);
    assert_true(descriptor >= 0 && write(descriptor, "[train]\nepochs=5\nbatch=7\n", 24) == 24);
    close(descriptor);
    const char *const overrides[] = {"train.epochs=6", "train.epochs= 8 ", "data.train=a=b.c"};
    struct settings settings;
    assert_int_equal(settings_load(path, overrides, 3, &settings), OK);
    unlink(path);
    assert_int_equal(settings.train.epochs, 8);
    assert_int_equal(settings.train.batch, 7);
    char *folder = realpath(".", NULL), *whole = text_format("%s/a=b.c", folder);
    assert_string_equal(settings.data.train, whole);
    free(whole);
    free(folder);
    assert_string_equal(settings_where(&settings, "train", "epochs"), "-s");
    char *where = text_format("%s:3", path);
    assert_string_equal(settings_where(&settings, "train", "batch"), where);
    free(where);
    settings_free(&settings);
}

static void unknown_names(void **state)
{
    expect_refused("[trian]\nepochs=1\nx=2\n",
                   "t.ini:1: there is no section [trian]; did you mean [train]?", 1);
    expect_refused("[zzz]\n", "t.ini:1: there is no section [zzz]\n", 1);
    expect_refused("[train]\n\nepoch = 1\n",
                   "t.ini:3: there is no key 'epoch' in [train]; did you mean 'epochs'?", 1);
    expect_refused("[train]\nlr = 1\n",
                   "t.ini:2: there is no key 'lr' in [train]; did you mean optimizer.lr?", 1);
    expect_refused("[train]\nqqqqq = 1\n", "t.ini:2: there is no key 'qqqqq' in [train]\n", 1);
    expect_refused("[Train]\nepochs = 1\n", "did you mean [train]?", 1);
}

static void bad_values(void **state)
{
    expect_refused("[train]\nepochs = 0\n", "t.ini:2: train.epochs: must be between 1 and 1000000, not 0", 1);
    expect_refused("[train]\nepochs =\n", "train.epochs: must be a whole number", 1);
    expect_refused("[train]\non_nan = stopp\n", "did you mean 'stop'?", 1);
    expect_refused("[optimizer]\nlr = fast\n", "optimizer.lr: must be a number or auto, not 'fast'", 1);
    expect_refused("[optimizer]\nbetas = 0.9\n", "must be 2 numbers, not 1", 1);
    expect_refused("[amp]\nloss_scale = 0\n", "must be between", 1);
}

static void every_mistake_is_reported(void **state)
{
    expect_refused("[train]\nepochs=0\nepoch=1\n[lader]\n[loader]\nworkers=x\n", "t.ini:6", 4);
}

/* Lines that are none, keys that are unknown, doubles and bad values, in the order of the lines. */
static void mistakes_come_in_line_order(void **state)
{
    struct settings settings;
    struct caught caught;
    caught_begin(&caught);
    assert_int_equal(settings_load_text("t.ini", "[train]\nepoch = 1\nnonsense\nbatch = 8\nbatch = x\n"
                                        "[optimizer\n[loader]\nworkers = many\nmore nonsense\n", &settings),
                     USAGE);
    caught_end(&caught);
    static const char *const words[] = {
        "t.ini:2: there is no key 'epoch'", "t.ini:3: not a [section]", "t.ini:5: train.batch: ",
        "t.ini:5: duplicate key 'batch'", "t.ini:6: ']' is missing",
        "t.ini:8: loader.workers: ", "t.ini:9: not a",
    };
    const char *at = caught.words.data;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const char *found = strstr(at, words[i]);
        if (!found) fail_msg("'%s' is missing, or in another place:\n%s", words[i], caught.words.data);
        at = found;
    }
    assert_int_equal(caught.errors, 7);
    text_free(&caught.words);
}

static void options_that_contradict(void **state)
{
    expect_refused("[amp]\nmin_scale=100\nmax_scale=10\n", "t.ini:2: amp.min_scale is above", 1);
    expect_refused("[augment]\nmean=1,2,3\nstd=1\n", "t.ini:2: augment.mean has 3 numbers, augment.std 1", 1);
    expect_refused("[augment]\nscale=1,0.5\n", "the smaller number must come first", 1);
    expect_refused("[model]\narch=a\nfile=b\n", "t.ini:3: model.arch and model.file", 1);
}

static void overrides_refused(void **state)
{
    expect_override_refused("lr=1", "-s lr=1: must be SECTION.KEY=VALUE; did you mean optimizer.lr?");
    expect_override_refused("optimizer.lr", "must be SECTION.KEY=VALUE");
    expect_override_refused("", "must be SECTION.KEY=VALUE");
    expect_override_refused("=", "must be SECTION.KEY=VALUE");
    expect_override_refused(".=", "there is no section []");
    expect_override_refused("optimizer.lrr=1", "-s optimizer.lrr=1: there is no key 'lrr' in [optimizer]");
    expect_override_refused("optimiser.lr=1", "did you mean [optimizer]?");
    expect_override_refused("optimizer.lr=x", "-s optimizer.lr=x: must be a number");
    expect_override_refused("run.name=a\nb", "control character");
}

static void given_or_not(void **state)
{
    struct settings settings = load_text("[optimizer]\nlr=0.001\neps=auto\nmomentum=0\n"
                                         "[amp]\nloss_scale=auto\n[train]\nbatch=auto\n");
    assert_true(settings_given(&settings, "optimizer", "lr"));
    assert_true(settings_given(&settings, "optimizer", "momentum"));
    assert_false(settings_given(&settings, "optimizer", "eps"));
    assert_false(settings_given(&settings, "amp", "loss_scale"));
    assert_false(settings_given(&settings, "train", "epochs"));
    assert_true(settings_given(&settings, "train", "batch"));
    assert_string_equal(settings_where(&settings, "optimizer", "lr"), "t.ini:2");
    assert_string_equal(settings_where(&settings, "train", "epochs"), "default");
    settings_free(&settings);
}

static void derived_values(void **state)
{
    struct settings settings = load_text("[amp]\nprecision=fp16\n");
    settings_derive(&settings, "amp", "loss_scale", "dynamic");
    settings_derive(&settings, "run", "output", "somewhere");
    assert_true(settings.amp.loss_scale == 0);
    assert_false(settings_given(&settings, "amp", "loss_scale"));
    assert_string_equal(settings_where(&settings, "run", "output"), "derived");
    struct text text = {0};
    settings_print(&settings, true, &text);
    assert_non_null(strstr(text.data, "\nloss_scale = dynamic    ; derived\n"));
    assert_non_null(strstr(text.data, "\nprecision = fp16    ; t.ini:2\n"));
    assert_non_null(strstr(text.data, "\nname =    ; default\n"));
    text_free(&text);
    settings_free(&settings);
}

static void paths(void **state)
{
    static const char *const cases[][3] = {
        {"conf/a.ini", "data", "conf/data"}, {"conf/a.ini", "/data", "/data"}, {"a.ini", "data", "data"},
        {"/a.ini", "data", "/data"},         {NULL, "data", "data"},
        {"x/y/a.ini", "../d", "x/y/../d"},
    };
    struct settings settings = load_overrides(NULL, NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char *path = settings_path(&settings, cases[i][0], cases[i][1]);
        assert_string_equal(path, cases[i][2]);
        free(path);
    }
    assert_null(settings_path(&settings, "a.ini", NULL));
    settings_free(&settings);
}

/* Prints, loads, prints: the texts must be equal, with origins or without. */
static void expect_round_trip(const struct settings *settings)
{
    struct text once = {0}, twice = {0}, commented = {0}, none = {0};
    settings_print(settings, false, &once);
    settings_print(settings, true, &commented);
    struct settings again = load_text(once.data), from_comments = load_text(commented.data);
    settings_print(&again, false, &twice);
    assert_string_equal(once.data, twice.data);
    assert_false(settings_differ(settings, &again, &none));
    assert_false(settings_differ(settings, &from_comments, &none));
    settings_free(&again);
    settings_free(&from_comments);
    text_free(&once);
    text_free(&twice);
    text_free(&commented);
}

static void round_trips(void **state)
{
    static const char *const texts[] = {
        "",
        "[optimizer]\nlr=0.30000000000000004\nbetas=0.8 0.95\neps=1e-10\n",
        "[run]\nmax_time=1.5h\nname=x=y # ; no\n[checkpoint]\nevery=90s\n[amp]\nloss_scale=dynamic\n",
        "[schedule]\nmilestones=30,60,80.5\n[memory]\nlimit=1000000007\n[data]\ntrain=a;b\n",
        "[data]\ntrain=\"a \\x3bb\"\nval=\" \\tc\\n\"\n[run]\nname=\";x \\x3by\"\n",
    };
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct settings settings = load_text(texts[i]);
        expect_round_trip(&settings);
        settings_free(&settings);
    }
}

/* A record of a run asks for what the run was asked for: what followed from other keys stands beside it. */
static void derived(void **state)
{
    struct settings settings = load_overrides("train.batch=auto", "augment.crop=8");
    struct text text = {0};
    settings_derive(&settings, "amp", "loss_scale", "1");
    settings_derive(&settings, "train", "batch", "96");
    settings_derive(&settings, "train", "batch", "64");
    settings_derive(&settings, "augment", "scale", "0.08,1");
    settings_print_movable(&settings, NULL, &text);
    assert_non_null(strstr(text.data, "\nloss_scale = auto    ; 1\n"));
    assert_non_null(strstr(text.data, "\nbatch = auto    ; 64\n"));
    assert_non_null(strstr(text.data, "\nscale =    ; 0.08,1\n"));
    assert_non_null(strstr(text.data, "\ncrop = 8\n"));
    struct settings again = load_text(text.data);
    assert_int_equal(again.train.batch, 0);
    assert_true(again.amp.loss_scale < 0);
    assert_int_equal(again.augment.scale.count, 0);
    settings_free(&again);
    settings_free(&settings);
    text_free(&text);
}

/* Values and origins of any length: no line is longer than inih reads, and all is read back. */
static void long_values(void **state)
{
    for (int length = 1; length < 4000; length += length < 450 ? 7 : 501) {
        char *path = memory_new((size_t)length + 1, 1);
        for (int i = 0; i < length; i++) path[i] = "/a =;:[#\xc3\xa9"[i % 10];
        char *train = text_format("data.train=%s", path), *freeze = text_format("train.freeze=x%sx", path);
        struct settings settings = load_overrides(train, freeze);
        char *where = text_format("%s:1", path);
        free(settings_swap_where(&settings, "data", "val", where));
        expect_round_trip(&settings);
        struct text text = {0};
        settings_print(&settings, false, &text);
        for (const char *at = text.data, *end; (end = strchr(at, '\n')); at = end + 1)
            assert_true(end - at <= INI_LINE_LIMIT);
        text_free(&text);
        settings_free(&settings);
        free(freeze);
        free(train);
        free(path);
    }
}

static void differences(void **state)
{
    struct text one = {0}, both = {0};
    struct settings old = load_overrides("optimizer.lr=0.1", NULL);
    struct settings now = load_overrides("optimizer.lr=0.2", "train.epochs=3");
    assert_true(settings_differ(&old, &now, &one));
    assert_string_equal(one.data, "optimizer.lr: 0.1, now 0.2");
    settings_free(&now);
    now = load_overrides("optimizer.lr=0.3", "train.freeze=x");
    assert_true(settings_differ(&old, &now, &both));
    assert_string_equal(both.data, "train.freeze: empty, now x\noptimizer.lr: 0.1, now 0.3");
    settings_free(&now);
    settings_free(&old);
    text_free(&one);
    text_free(&both);
}

static void paths_from_the_root(void **state)
{
    struct settings settings = load_overrides("data.train=pics", "data.val=/v");
    char *here = realpath(".", NULL), *wanted = text_format("\ntrain = %s/x/pics\nval = /v\n", here);
    struct text text = {0};
    settings_print_movable(&settings, "x/a.ini", &text);
    assert_non_null(strstr(text.data, wanted));
    assert_non_null(strstr(text.data, "\nfile =\n"));
    text_free(&text);
    free(wanted);
    free(here);
    settings_free(&settings);
}

static void differences_that_may_be(void **state)
{
    struct text none = {0};
    static const char *const free_to_change[] = {
        "run.max_time=1h", "run.max_steps=5", "run.verify_every=9", "run.name=x", "run.output=x",
        "run.device=cuda:1", "run.threads=3", "run.report=no", "train.epochs=3", "train.early_stop=2",
        "log.every=7",
        "log.tensorboard=no", "checkpoint.every=2", "checkpoint.keep=3", "checkpoint.best=val_loss",
        "loader.workers=3", "loader.prefetch=2", "loader.decode=cpu", "loader.cache=none",
        "loader.cache_limit=1M", "loader.timeout=1m", "memory.limit=1G", "memory.strategy=recompute",
        "memory.report=yes", "data.train=x", "data.val=x", "data.palette=x", "data.root=x",
        "model.arch=x", "model.file=x",
        "model.weights=x", "model.weights_strict=no", "model.classes=7",
        "model.dropout=0.5", "model.drop_path=0.1", "model.norm_eps=1e-5", "model.image_size=64",
        "parallel.gpus=2", "parallel.timeout=9", "parallel.bucket=1M",
        "parallel.wire=storage",
        "parallel.stages=2", "parallel.microbatches=4", "parallel.schedule=gpipe", "parallel.streams=layers",
    };
    struct settings old = load_overrides(NULL, NULL);
    size_t count = sizeof free_to_change / sizeof *free_to_change;
    for (size_t i = 0; i < count; i++) {
        struct settings now = load_overrides(free_to_change[i], NULL);
        assert_false(settings_differ(&old, &now, &none));
        settings_free(&now);
    }
    for (const struct option *option = option_table; option->section; option++)
        count -= option->resumable;
    assert_int_equal(count, 0);
    settings_free(&old);
}

static void help_and_manual_have_every_key(void **state)
{
    struct text help = {0}, manual = {0};
    settings_help(&help);
    settings_manual(&manual);
    for (const struct option *option = option_table; option->section; option++) {
        char *in_help = text_format("\n  %s=", option->field.name);
        char *in_manual = text_format("\n.BI \"%s = \"", option->field.name);
        assert_non_null(strstr(help.data, in_help));
        assert_non_null(strstr(manual.data, in_manual));
        free(in_help);
        free(in_manual);
    }
    for (const struct option_section *section = option_sections; section->name; section++) {
        char *heading = text_format(".SS [%s]\n", section->name);
        assert_non_null(strstr(manual.data, heading));
        free(heading);
    }
    text_free(&help);
    text_free(&manual);
}

/* Random values for random keys: whatever is taken must survive the round trip. */
static void noise(void **state)
{
    static const char *const values[] = {
        "0", "1", "2.5", "-1", "auto", "dynamic", "yes", "x y", "1,2", "0.5,0.25", "1e-7",
        "3K", "10 steps", "2h", "", "none", "cpu", ";", "a;", "0.999", "64",
    };
    uint32_t random = 5;
    int count = 0, taken = 0;
    while (option_table[count].section) count++;
    for (int round = 0; round < 3000; round++) {
        random = random * 1664525 + 1013904223;
        const struct option *option = &option_table[(random >> 8) % (uint32_t)count];
        random = random * 1664525 + 1013904223;
        const char *value = values[(random >> 8) % (sizeof values / sizeof *values)];
        char *override = text_format("%s.%s=%s", option->section, option->field.name, value);
        struct settings settings;
        struct caught caught;
        caught_begin(&caught);
        enum status status = settings_load(NULL, (const char *const *)&override, 1, &settings);
        caught_end(&caught);
        text_free(&caught.words);
        free(override);
        assert_int_equal(status, caught.errors ? USAGE : OK);
        if (status != OK) continue;
        expect_round_trip(&settings);
        settings_free(&settings);
        taken++;
    }
    assert_true(taken > 300);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(defaults),
        cmocka_unit_test(table_is_whole),
        cmocka_unit_test(file_values),
        cmocka_unit_test(words_are_no_paths),
        cmocka_unit_test(overrides_win),
        cmocka_unit_test(unknown_names),
        cmocka_unit_test(bad_values),
        cmocka_unit_test(every_mistake_is_reported),
        cmocka_unit_test(mistakes_come_in_line_order),
        cmocka_unit_test(options_that_contradict),
        cmocka_unit_test(overrides_refused),
        cmocka_unit_test(given_or_not),
        cmocka_unit_test(derived_values),
        cmocka_unit_test(paths),
        cmocka_unit_test(round_trips),
        cmocka_unit_test(derived),
        cmocka_unit_test(differences),
        cmocka_unit_test(long_values),
        cmocka_unit_test(paths_from_the_root),
        cmocka_unit_test(differences_that_may_be),
        cmocka_unit_test(help_and_manual_have_every_key),
        cmocka_unit_test(noise),
    };
    return cmocka_run_group_tests_name("settings", tests, NULL, NULL);
}
