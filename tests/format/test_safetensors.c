/* The safetensors reader and writer: what is right goes through, whatever is wrong is refused. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/random.h"
#include "base/text.h"
#include "format/safetensors.h"
#include "format/weights_file.h"
#include "tests/support/caught.h"
#include "tests/support/refuse.h"
#include "tests/support/unit.h"

static char path[] = "/tmp/test_safetensors.XXXXXX";

static void write_file(const void *bytes, size_t count)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

/* A file of a header text and so many bytes of data. */
static void write_header(const char *header, uint64_t claimed, size_t data)
{
    size_t length = strlen(header);
    char *bytes = memory_new(8 + length + data, 1);
    for (int i = 0; i < 8; i++) bytes[i] = (char)(claimed >> (8 * i));
    memcpy(bytes + 8, header, length);
    write_file(bytes, 8 + length + data);
    free(bytes);
}

static void refused(const char *header, size_t data, const char *words)
{
    struct safetensors file = {0};
    struct reason reason = {0};
    write_header(header, strlen(header), data);
    assert_false(safetensors_open(path, &file, &reason));
    if (!strstr(reason.text, words)) fail_msg("%s: '%s' does not have '%s'", header, reason.text, words);
}

static void accepted(const char *header, size_t data, int count)
{
    struct safetensors file = {0};
    struct reason reason = {0};
    write_header(header, strlen(header), data);
    if (!safetensors_open(path, &file, &reason)) fail_msg("%s: %s", header, reason.text);
    assert_int_equal(file.count, count);
    safetensors_close(&file);
}

#define A "{\"a\":{\"dtype\":\"F32\",\"shape\":"

static void good_headers(void **state)
{
    accepted("{}", 0, 0);
    accepted("{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}   ", 8, 1);
    accepted(A "[2],\"data_offsets\":[0,8],\"more\":[{}]}}", 8, 1);
    accepted("{\"a\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8, 1);
    accepted("{\"a\":{\"dtype\":\"U8\",\"shape\":[0,4],\"data_offsets\":[0,0]}}", 0, 1);
    accepted("{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[4,8]"
             "},"
             "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
             8, 2);
}

static void bad_headers(void **state)
{
    refused("", 0, "header claims");
    refused("x{}", 0, "begin with");
    refused("{", 0, "header");
    refused("{}x", 0, "header");
    refused("[]", 0, "begin with");
    refused(A "[2],\"data_offsets\":[0,8]}} trailing", 8, "header");
    refused(A "[2],\"data_offsets\":[0,8]},\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,16]}}",
            16, "duplicate");
    refused(A "[2],\"data_offsets\":[0,4]}}", 4, "shape");
    refused(A "[2],\"data_offsets\":[8,0]}}", 8, "outside");
    refused(A "[2],\"data_offsets\":[0,8]}}", 4, "outside");
    refused(A "[2],\"data_offsets\":[0,8]}}", 12, "12 bytes of data");
    refused(A "[2],\"data_offsets\":[4,12]}}", 12, "a gap or an overlap");
    refused(A "[2],\"data_offsets\":[0,8]},\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}",
            12, "overlap");
    refused(A "[2],\"data_offsets\":[0]}}", 8, "data_offsets");
    refused(A "[2],\"data_offsets\":[0,8.0]}}", 8, "data_offsets");
    refused(A "[-2],\"data_offsets\":[0,8]}}", 8, "shape");
    refused(A "[2.0],\"data_offsets\":[0,8]}}", 8, "shape");
    refused(A "[1,1,1,1,2],\"data_offsets\":[0,8]}}", 8, "dimensions");
    refused(A "[4611686018427387904,4],\"data_offsets\":[0,0]}}", 0, "shape");
    refused(A "[99999999999999999999],\"data_offsets\":[0,0]}}", 0, "header");
    refused("{\"a\":{\"shape\":[2],\"data_offsets\":[0,8],\"x\":1}}", 8, "dtype");
    refused("{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[8],\"data_offsets\":[0,8]}}", 8, "F8_E4M3");
    refused("{\"a\":{\"dtype\":7,\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "dtype");
    refused(A "{},\"data_offsets\":[0,8]}}", 8, "no shape");
    refused(A "null,\"data_offsets\":[0,8]}}", 8, "no shape");
    refused(A "[2]}}", 8, "data_offsets");
    refused(A "[2],\"data_offsets\":[\"0\",8]}}", 8, "data_offsets");
    refused(A "[2],\"data_offsets\":[null,8]}}", 8, "data_offsets");
    refused(A "[2],\"data_offsets\":[-1,7]}}", 8, "outside");
    refused(A "[2],\"data_offsets\":[8,0]}}", 8, "outside");
    refused("{\"a\":null}", 0, "must have");
    refused("{\"a\":1}", 0, "must have");
    refused("{\"__metadata__\":{\"k\":1}}", 0, "not text");
    refused("{\"__metadata__\":[]}", 0, "not an object");
    refused("{\"__metadata__\":{\"header_crc32c\":\"00000000\"}}", 0, "checksum");
    refused("{\"__metadata__\":{\"header_crc32c\": \"00000000\"}}", 0, "(checksum none, not 00000000)");
}

/* Whose JSON would take far more memory than they are long. */
static void headers_of_brackets(void **state)
{
    struct text header = {0};
    text_add(&header, "{\"a, [\\\"{{\":[[]");
    for (int i = 0; i < 800000; i++) text_add(&header, ",[]");
    text_add(&header, "]}");
    refused(header.data, 0, "a header of more than 100000 tensors");
    text_free(&header);
}

static void bad_lengths(void **state)
{
    static const uint64_t claims[] = {0, 1, 3, 100000001, (uint64_t)1 << 60, UINT64_MAX};
    struct safetensors file = {0};
    struct reason reason;
    for (size_t i = 0; i < sizeof claims / sizeof *claims; i++) {
        write_header("{}", claims[i], 0);
        assert_false(safetensors_open(path, &file, &reason));
    }
    for (size_t bytes = 0; bytes < 8; bytes++) {
        write_file("\2\0\0\0\0\0\0", bytes);
        assert_false(safetensors_open(path, &file, &reason));
    }
    assert_false(safetensors_open("/nowhere/at/all", &file, &reason));
    assert_false(safetensors_open("/tmp", &file, &reason));
}

static void other_formats_are_named(void **state)
{
    static const char *const begins[] = {"PK\3\4 a zip archive", "\x80\2 a pickle, behind"};
    struct safetensors file = {0};
    struct reason reason;
    for (size_t i = 0; i < 2; i++) {
        write_file(begins[i], strlen(begins[i]));
        assert_false(safetensors_open(path, &file, &reason));
        assert_non_null(strstr(reason.text, "is a file of PyTorch"));
    }
    write_file("\x08\x07\x12\x07pytorch\x1a\5" "2.1.0:", 18);
    assert_false(safetensors_open(path, &file, &reason));
    assert_non_null(strstr(reason.text, "is ONNX, not safetensors"));
}

/* A header's length may begin as a pickle, a zip archive or an image does. */
static void headers_of_every_length(void **state)
{
    static const size_t begins[] = {0x0280, 0x0380, 0x0480, 0x0580, 0x10280, 0x8b1f, 0x4d42, 0x0aff};
    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        char *header = text_format("%-*s", (int)begins[i], A "[2],\"data_offsets\":[0,8]}}");
        struct weights_file file;
        struct reason reason = {0};
        accepted(header, 8, 1);
        if (!weights_file_open(path, &file, &reason)) fail_msg("%zu: %s", begins[i], reason.text);
        assert_int_equal(file.count, 1);
        weights_file_close(&file);
        free(header);
    }
}

static void nothing_is_found_in_an_empty_file(void **state)
{
    struct safetensors file = {0};
    struct reason reason;
    write_header("{}", 2, 0);
    assert_true(safetensors_open(path, &file, &reason));
    assert_int_equal(safetensors_find(&file, "weight"), -1);
    assert_null(safetensors_value(&file, "key"));
    assert_false(safetensors_complete(&file, &reason));
    safetensors_close(&file);
    safetensors_close(&(struct safetensors){0});
}

/* Written by us: tensors of every type, names that JSON must escape, metadata. */

static const struct safetensors_item items[] = {
    {"weight", F32, {.rank = 4, .dim = {2, 3, 1, 1}}}, {"half", F16, {.rank = 1, .dim = {5, 1, 1, 1}}},
    {"brain", BF16, {.rank = 2, .dim = {1, 3, 1, 1}}}, {"count", I64, {.rank = 0, .dim = {1, 1, 1, 1}}},
    {"a \"name\" \\", U8, {.rank = 1, .dim = {3, 1, 1, 1}}}, {"empty", F32, {.rank = 1, .dim = {0, 1, 1, 1}}},
};
#define ITEMS (int)(sizeof items / sizeof *items)

static enum status fill(void *context, int item, void *data)
{
    size_t bytes = (size_t)shape_count(items[item].shape) * dtype_bytes(items[item].dtype);
    for (size_t i = 0; i < bytes; i++) ((uint8_t *)data)[i] = (uint8_t)(item * 16 + (int)i);
    return OK;
}

static void write_ours(void)
{
    static const struct safetensors_pair metadata[] = {{"key", "value\nof two lines"}, {"other", ""}};
    struct safetensors_content content = {items, ITEMS, metadata, 2, fill, NULL};
    assert_int_equal(safetensors_write(path, &content), OK);
}

static char *read_all(size_t *count)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    char *bytes = memory_new(1 << 16, 1);
    *count = fread(bytes, 1, 1 << 16, file);
    fclose(file);
    return bytes;
}

static bool opens_whole(void)
{
    struct safetensors file = {0};
    struct reason reason;
    if (!safetensors_open(path, &file, &reason)) return false;
    bool good = safetensors_complete(&file, &reason);
    char data[64];
    for (int i = 0; good && i < file.count; i++) {
        good = file.entries[i].end - file.entries[i].begin <= (int64_t)sizeof data &&
               safetensors_read(&file, i, data, &reason);
    }
    safetensors_close(&file);
    return good;
}

static void round_trip(void **state)
{
    struct safetensors file = {0};
    struct reason reason;
    char read[64], wanted[64];
    write_ours();
    assert_true(safetensors_open(path, &file, &reason));
    assert_true(file.checksummed);
    assert_int_equal(file.data % 8, 0);
    assert_string_equal(safetensors_value(&file, "key"), "value\nof two lines");
    assert_null(safetensors_value(&file, "none"));
    assert_int_equal(safetensors_find(&file, "none"), -1);
    for (int i = 0; i < ITEMS; i++) {
        int entry = safetensors_find(&file, items[i].name);
        assert_true(entry >= 0);
        assert_int_equal(file.entries[entry].dtype, items[i].dtype);
        assert_true(shape_equal(file.entries[entry].shape, items[i].shape));
        size_t bytes = (size_t)(file.entries[entry].end - file.entries[entry].begin);
        fill(NULL, i, wanted);
        assert_true(safetensors_read(&file, entry, read, &reason));
        assert_memory_equal(read, wanted, bytes);
    }
    safetensors_close(&file);
}

/* Tensors are sorted by type, the largest first, then by name: as the format's own library writes. */
static void order_in_file(void **state)
{
    static const char *const order[] = {"count", "empty", "weight", "brain", "half", "a \"name\" \\"};
    struct safetensors file = {0};
    struct reason reason;
    write_ours();
    assert_true(safetensors_open(path, &file, &reason));
    int64_t end = 0;
    for (int i = 0; i < ITEMS; i++) {
        const struct safetensors_entry *entry = &file.entries[safetensors_find(&file, order[i])];
        assert_int_equal(entry->begin, end);
        end = entry->end;
    }
    safetensors_close(&file);
}

static void every_bit_is_watched(void **state)
{
    size_t count;
    write_ours();
    assert_true(opens_whole());
    char *bytes = read_all(&count);
    for (size_t bit = 0; bit < 8 * count; bit++) {
        bytes[bit / 8] ^= (char)(1 << bit % 8);
        write_file(bytes, count);
        if (opens_whole()) fail_msg("bit %zu of %zu bytes is not watched", bit, count);
        bytes[bit / 8] ^= (char)(1 << bit % 8);
    }
    free(bytes);
}

static void every_length_is_watched(void **state)
{
    size_t count;
    write_ours();
    char *bytes = read_all(&count);
    for (size_t length = 0; length < count; length++) {
        write_file(bytes, length);
        assert_false(opens_whole());
    }
    bytes[count] = 0;
    write_file(bytes, count + 1);
    assert_false(opens_whole());
    free(bytes);
}

/* Random damage to a file without checksums: any answer is right, a crash is not. */
static void random_damage(void **state)
{
    static const char header[] =
        "{\"__metadata__\":{\"k\":\"v\"},\"b\":{\"dtype\":\"F16\",\"shape\":[1,2],\"data_offsets\":[4,8]},"
        "\"a\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}";
    static const char likely[] = "0123456789[]{},:\"-.eE\\F";
    struct random random = random_open(1, PURPOSE_TEST, 2, 3);
    size_t length = strlen(header);
    for (int round = 0; round < 5000; round++) {
        char bytes[8 + sizeof header + 8] = {(char)length};
        memcpy(bytes + 8, header, length);
        for (uint32_t left = 1 + random_below(&random, 4); left > 0; left--)
            bytes[random_below(&random, (uint32_t)(8 + length))] =
                random_below(&random, 4) ? likely[random_below(&random, sizeof likely - 1)]
                                         : (char)random_below(&random, 256);
        write_file(bytes, 8 + length + 8);
        opens_whole();
    }
}

static void write_failures(void **state)
{
    struct safetensors_content content = {items, ITEMS, NULL, 0, fill, NULL};
    assert_int_equal(safetensors_write("/nowhere/at/all", &content), FAILED);
    assert_int_equal(safetensors_write("/dev/full", &content), FAILED);
}

static enum status fill_no_more(void *context, int item, void *data)
{
    return item == 3 ? BAD_DATA : fill(context, item, data);
}

static void contents_that_cannot_be_written(void **state)
{
    struct caught caught;
    struct safetensors_content unread = {items, ITEMS, NULL, 0, fill_no_more, NULL};
    struct safetensors_content many = {items, SAFETENSORS_TENSORS_MAX + 1, NULL, 0, fill, NULL};
    assert_int_equal(safetensors_write(path, &unread), BAD_DATA);
    caught_begin(&caught);
    enum status status = safetensors_write(path, &many);
    caught_end(&caught);
    assert_int_equal(status, FAILED);
    assert_true(caught_has(&caught, "100001 tensors are more than the maximum of 100000"));
    text_free(&caught.words);
}

/* Each call of the system's fails in turn, and is reported once. */
static void writes_that_are_refused(void **state)
{
    static const char *const calls[] = {"pwrite", "fsync", "close", "memory_try"};
    struct safetensors_content content = {items, ITEMS, NULL, 0, fill, NULL};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            struct caught caught;
            caught_begin(&caught);
            refuse(calls[i], before);
            enum status status = safetensors_write(path, &content);
            more = refuse_struck();
            caught_end(&caught);
            assert_true(status == (more ? FAILED : OK) || strcmp(calls[i], "close") == 0);
            assert_true(caught.errors == (status != OK) && (more || before > 0));
            text_free(&caught.words);
        }
    }
    assert_true(opens_whole());
}

static bool reads_whole(void)
{
    struct safetensors file;
    struct reason reason;
    char data[64];
    if (!safetensors_open(path, &file, &reason)) return false;
    bool good = true;
    for (int i = 0; good && i < file.count; i++)
        good = safetensors_verify(&file, i, &reason) && safetensors_read(&file, i, data, &reason);
    safetensors_close(&file);
    return good;
}

/* It becomes shorter while it is open. */
static void shortened(void **state)
{
    struct safetensors file;
    struct reason reason;
    char data[64];
    write_ours();
    assert_true(safetensors_open(path, &file, &reason));
    assert_int_equal(truncate(path, 20), 0);
    assert_false(safetensors_read(&file, 0, data, &reason));
    assert_non_null(strstr(reason.text, "ends too early"));
    safetensors_close(&file);
}

static void reads_that_are_refused(void **state)
{
    static const char *const calls[] = {"pread", "fstat", "memory_try"};
    write_ours();
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            refuse(calls[i], before);
            bool good = reads_whole();
            more = refuse_struck();
            assert_true(good == !more && (more || before > 0));
        }
    }
}

static int make_path(void **state)
{
    int file = mkstemp(path);
    if (file >= 0) close(file);
    return file < 0;
}

static int remove_path(void **state)
{
    return unlink(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(good_headers),
        cmocka_unit_test(bad_headers),
        cmocka_unit_test(headers_of_brackets),
        cmocka_unit_test(bad_lengths),
        cmocka_unit_test(round_trip),
        cmocka_unit_test(order_in_file),
        cmocka_unit_test(every_bit_is_watched),
        cmocka_unit_test(every_length_is_watched),
        cmocka_unit_test(random_damage),
        cmocka_unit_test(write_failures),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(headers_of_every_length),
        cmocka_unit_test(nothing_is_found_in_an_empty_file),
        cmocka_unit_test(contents_that_cannot_be_written),
        cmocka_unit_test(writes_that_are_refused),
        cmocka_unit_test(reads_that_are_refused),
        cmocka_unit_test(shortened),
    };
    return cmocka_run_group_tests(tests, make_path, remove_path);
}
