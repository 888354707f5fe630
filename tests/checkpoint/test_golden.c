/* Files of every version of a format are read by this one, and mean what they meant; a newer version's are
 * refused.
 *
 * golden/VERSION holds a run that golden/run.ini has begun, and three images packed. They are never written
 * again: a new version of a format adds a folder. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/crc32c.h"
#include "base/memory.h"
#include "checkpoint/checkpoint.h"
#include "conf/settings.h"
#include "data/dataset/dataset.h"
#include "data/formats/packed.h"
#include "tests/support/caught.h"
#include "tests/support/data_case.h"
#include "tests/support/unit.h"
#include "train/metrics.h"

static struct bytes golden(const char *name)
{
    char *path = text_format(SOURCEDIR "/tests/golden/version-1/%s", name);
    struct bytes bytes = case_read(path);
    free(path);
    return bytes;
}

static void read_checkpoint(const char *name, struct safetensors *file)
{
    char *path = text_format(SOURCEDIR "/tests/golden/version-1/%s", name);
    struct reason reason = {0};
    if (!checkpoint_open(&directory_working, path, file, &reason)) fail_msg("%s", reason.text);
    free(path);
}

static void checkpoint_position(void **state)
{
    struct safetensors file;
    struct position position;
    struct optimizer_state optimizer;
    struct reason reason;
    read_checkpoint(CHECKPOINT_LAST, &file);
    assert_true(position_parse(&file, &position, &optimizer, &reason));
    const struct position wanted = {
        .epoch = 1, .batch = 3, .loss_sum = 0x1.b0e9705p+10, .images = 768, .correct = 132, .skipped_told = 1,
        .seconds = 0x1.6990677p-9, .wait_seconds = 0x1.1a1a216p-10, .best = 0x1.6d1a62681c861p-4,
        .best_epoch = 1, .seed = 7,
    };
    assert_memory_equal(&position, &wanted, sizeof wanted);
    assert_int_equal(optimizer.updates, 7);
    assert_int_equal(optimizer.step, 8);
    assert_int_equal(optimizer.skipped_steps, 1);
    assert_true(optimizer.grad_norm == 0x1.7e7bdap-2f);
    assert_true(optimizer.scaler.scale == 0x1p+23f);
    assert_int_equal(optimizer.scaler.good_steps, 7);
    safetensors_close(&file);
}

static void checkpoint_words(void **state)
{
    struct safetensors file;
    struct settings settings;
    char **names;
    struct reason reason;
    int count, h, w, channels;
    read_checkpoint(CHECKPOINT_LAST, &file);
    checkpoint_class_names(&file, &names, &count);
    assert_int_equal(count, 10);
    assert_string_equal(names[9], "9");
    assert_true(checkpoint_input(&file, &h, &w, &channels, &reason));
    assert_int_equal(h * 100 + w * 10 + channels, 881);
    assert_int_equal(settings_load_text("golden", safetensors_value(&file, "config"), &settings), OK);
    assert_int_equal(settings.run.seed, 7);
    assert_string_equal(settings.optimizer.name, "adam");
    assert_true(settings.augment.mixup == 0.2);
    assert_int_equal(settings.train.batch, 256);
    assert_int_equal(settings.checkpoint.every.unit, UNIT_STEPS);
    settings_free(&settings);
    text_list_free(names, (size_t)count);
    safetensors_close(&file);
}

static void first_values(const struct safetensors *file, const char *name, struct shape shape, float a,
                         float b)
{
    float values[512];
    struct reason reason;
    int entry = safetensors_find(file, name);
    assert_true(entry >= 0);
    assert_int_equal(file->entries[entry].dtype, F32);
    assert_true(shape_equal(file->entries[entry].shape, shape));
    assert_true(safetensors_read(file, entry, values, &reason));
    assert_true(values[0] == a && values[1] == b);
}

static void checkpoint_tensors(void **state)
{
    struct safetensors file;
    struct reason reason;
    int64_t batches;
    read_checkpoint(CHECKPOINT_LAST, &file);
    assert_int_equal(file.count, 26);
    first_values(&file, "conv.weight", shape_nhwc(3, 1, 3, 3), -0.05195537209510803f, -0.03538564592599869f);
    first_values(&file, "average/fc.bias", shape_vector(10), 0.039185620844364166f, 0.07604100555181503f);
    first_values(&file, "optimizer/exp_avg_sq/fc.weight", (struct shape){.rank = 2, .dim = {10, 48, 1, 1}},
                 4.128188493268681e-07f, 2.15002238235229e-08f);
    int entry = safetensors_find(&file, "bn.num_batches_tracked");
    assert_true(entry >= 0 && file.entries[entry].dtype == I64);
    assert_true(safetensors_read(&file, entry, &batches, &reason));
    assert_int_equal(batches, 7);
    safetensors_close(&file);
}

/* Copies a checkpoint with another version in it, as a later amptrain would write it. */

static enum status read_entry(void *file, int entry, void *data)
{
    struct reason reason;
    return safetensors_read(file, entry, data, &reason) ? OK : FAILED;
}

static void write_version(struct safetensors *file, char *version, const char *path)
{
    struct safetensors_item items[32];
    for (int i = 0; i < file->count; i++)
        items[i] = (struct safetensors_item){file->entries[i].name, file->entries[i].dtype,
                                             file->entries[i].shape};
    struct safetensors_pair pairs[64];
    int count = 0;
    for (int i = 0; i < file->metadata_count; i++) {
        pairs[count] = file->metadata[i];
        if (strcmp(pairs[count].key, "version") == 0) pairs[count].value = version;
        bool checksum = strstr(pairs[count].key, "crc32c") != NULL;
        count += !checksum;
    }
    struct safetensors_content content = {items, file->count, pairs, count, read_entry, file};
    assert_int_equal(safetensors_write(path, &content), OK);
}

static void newer_checkpoint(void **state)
{
    char *folder = case_folder(), *last = text_format("%s/" CHECKPOINT_LAST, folder);
    struct safetensors file, copy;
    struct reason reason;
    struct caught caught;
    struct bytes bytes = golden(CHECKPOINT_LAST);
    case_write_bytes(folder, CHECKPOINT_PREVIOUS, bytes);
    read_checkpoint(CHECKPOINT_LAST, &file);
    write_version(&file, "1", last);
    assert_true(checkpoint_open(&directory_working, last, &copy, &reason));
    safetensors_close(&copy);
    static char *const none[] = {"0", "-1", "", "x", "1x"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        write_version(&file, none[i], last);
        assert_false(checkpoint_open(&directory_working, last, &copy, &reason));
        assert_non_null(strstr(reason.text, "has an invalid version"));
    }
    write_version(&file, "2", last);
    assert_false(checkpoint_open(&directory_working, last, &copy, &reason));
    assert_string_equal(reason.text, "has version 2; this amptrain reads versions up to 1");
    caught_begin(&caught);
    struct directory directory;
    assert_int_equal(directory_open(folder, &directory), OK);
    enum status status = checkpoint_open_newest(&directory, &copy);
    directory_close(&directory);
    caught_end(&caught);
    assert_int_equal(status, OK);
    assert_true(caught_has(&caught, "has version 2; this amptrain reads versions up to 1"));
    assert_true(caught_has(&caught, "checkpoint-previous.safetensors instead"));
    text_free(&caught.words);
    safetensors_close(&copy);
    safetensors_close(&file);
    free(last);
    case_remove(folder);
}

/* Metrics */

static int lines_of(const char *path)
{
    struct bytes bytes = case_read(path);
    int lines = 0;
    for (size_t i = 0; i < bytes.count; i++) lines += bytes.data[i] == '\n';
    free(bytes.data);
    return lines;
}

static void metrics(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/metrics.jsonl", folder);
    case_write_bytes(folder, "metrics.jsonl", golden("metrics.jsonl"));
    assert_int_equal(metrics_cut(&directory_working, path, 8, 1), OK);
    assert_int_equal(lines_of(path), 11);
    assert_int_equal(metrics_cut(&directory_working, path, 7, 1), OK);
    assert_int_equal(lines_of(path), 9);
    assert_int_equal(metrics_cut(&directory_working, path, 7, 0), OK);
    assert_int_equal(lines_of(path), 6);
    free(path);
    case_remove(folder);
}

static void newer_metrics(void **state)
{
    static const char lines[] = "{\"event\":\"start\",\"format\":1}\n{\"event\":\"step\",\"step\":1}\n"
                                "{\"event\":\"start\",\"format\":2}\n{\"event\":\"step\",\"step\":2}\n";
    char *folder = case_folder(), *path = text_format("%s/metrics.jsonl", folder);
    struct caught caught;
    case_write(folder, "metrics.jsonl", lines, strlen(lines));
    caught_begin(&caught);
    enum status status = metrics_cut(&directory_working, path, 1, 0);
    caught_end(&caught);
    assert_int_equal(status, BAD_CHECKPOINT);
    assert_true(caught_has(&caught, "has version 2; this amptrain continues versions up to 1"));
    text_free(&caught.words);
    assert_int_equal(lines_of(path), 4);
    free(path);
    case_remove(folder);
}

/* Packed data sets */

static enum status open_pack(const char *path, struct dataset *dataset)
{
    struct dataset_options options = {.path = path};
    case_log_collect();
    return dataset_open(format_find("packed"), &options, dataset);
}

static void pack(void **state)
{
    static const int labels[] = {0, 1, 2};
    static const uint32_t pixels[] = {0x2d2dc9c7, 0x218d5c0d, 0x8cc4685f};
    struct dataset dataset;
    struct image image = {0};
    struct reason reason;
    int label;
    assert_int_equal(open_pack(SOURCEDIR "/tests/golden/version-1/images.pack", &dataset), OK);
    assert_int_equal(dataset.count, 3);
    assert_int_equal(dataset.classes, 10);
    assert_string_equal(dataset.class_names[9], "9");
    for (int i = 0; i < 3; i++) {
        assert_true(dataset.format->read(&dataset, i, NULL, &image, &label, &reason));
        assert_int_equal(label, labels[i]);
        assert_int_equal(image.h * 100 + image.w * 10 + image.c, 881);
        assert_int_equal(crc32c(0, image.pixels, 64), pixels[i]);
    }
    image_free(&image);
    dataset_close(&dataset);
}

static void newer_pack(void **state)
{
    char *folder = case_folder(), *path = text_format("%s/x.pack", folder);
    struct bytes bytes = golden("images.pack");
    struct dataset dataset;
    bytes.data[7] = '4';
    case_write_bytes(folder, "x.pack", bytes);
    assert_int_equal(open_pack(path, &dataset), BAD_DATA);
    assert_non_null(strstr(case_log(), "has version 4; this amptrain reads versions 1 to 3"));
    free(path);
    case_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_position), cmocka_unit_test(checkpoint_words),
        cmocka_unit_test(checkpoint_tensors),  cmocka_unit_test(newer_checkpoint),
        cmocka_unit_test(metrics),             cmocka_unit_test(newer_metrics),
        cmocka_unit_test(pack),                cmocka_unit_test(newer_pack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
