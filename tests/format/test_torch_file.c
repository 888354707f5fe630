/* Files of torch.save, and safetensors in several files: tensors come out as they went in, and whatever is
 * wrong or could run code is refused with its reason. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"
#include "format/pickle.h"
#include "format/weights_file.h"
#include "tests/support/refuse.h"
#include "tests/support/torch_case.h"
#include "tests/support/unit.h"

static char folder[] = "/tmp/test_torch_file.XXXXXX";
static char path[64];

static void write_bytes(const char *to, const void *bytes, size_t count)
{
    FILE *file = fopen(to, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, count, file), count);
    assert_int_equal(fclose(file), 0);
}

static const float floats[12] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

/* Storages: 0 of 12 fp32, 1 of 2 fp64, 2 of 1 int64, 3 of 4 fp16. */
static void add_storages(struct archive *archive)
{
    static const double doubles[2] = {0.1, -1e300};
    static const int64_t counter = -3;
    static const uint16_t halves[4] = {0x3c00, 0xc000, 0x7c00, 1};
    archive_add(archive, "net/data/0", floats, sizeof floats);
    archive_add(archive, "net/data/1", doubles, sizeof doubles);
    archive_add(archive, "net/data/2", &counter, sizeof counter);
    archive_add(archive, "net/data/3", halves, sizeof halves);
}

static void write_archive(const struct bytes *pickle)
{
    struct archive archive = {0};
    archive_add(&archive, "net/data.pkl", pickle->data, pickle->count);
    archive_add(&archive, "net/byteorder", "little", 6);
    add_storages(&archive);
    archive_end(&archive);
    write_bytes(path, archive.content.data, archive.content.count);
    archive_free(&archive);
}

static void begin(struct bytes *pickle) { pickle_code(pickle, "\x80\x02}"); }

static void write_tensors(const struct torch_tensor *tensors, int count)
{
    struct bytes pickle = {0};
    begin(&pickle);
    for (int i = 0; i < count; i++) pickle_tensor(&pickle, &tensors[i]);
    pickle_code(&pickle, ".");
    write_archive(&pickle);
    bytes_free(&pickle);
}

static void open_good(struct weights_file *file)
{
    struct reason reason;
    if (!weights_file_open(path, file, &reason)) fail_msg("%s", reason.text);
}

static void open_refused(const char *words, const char *what)
{
    struct weights_file file;
    struct reason reason = {0};
    if (weights_file_open(path, &file, &reason)) fail_msg("%s is accepted", what);
    if (!strstr(reason.text, words)) fail_msg("%s: '%s' does not have '%s'", what, reason.text, words);
}

/* ---- Good files ---- */

static void expect_values(const struct weights_file *file, const char *name, const char *shape,
                          const double *values, int count)
{
    struct reason reason;
    char text[SHAPE_TEXT], data[256];
    int entry = weights_file_find(file, name);
    assert_true(entry >= 0);
    const struct weights_entry *found = &file->entries[entry];
    assert_string_equal(shape_text(found->shape, text), shape);
    assert_int_equal(shape_count(found->shape), count);
    if (!weights_file_read(file, entry, data, &reason)) fail_msg("%s: %s", name, reason.text);
    for (int i = 0; i < count; i++)
        if (dtype_get(found->dtype, data, i) != values[i])
            fail_msg("%s[%d] is %g, not %g", name, i, dtype_get(found->dtype, data, i), values[i]);
}

static void tensors_of_every_kind(void **state)
{
    static const struct torch_tensor tensors[] = {
        {"whole", "FloatStorage", "0", 12, 0, 2, {3, 4}, {4, 1}},
        {"transposed", "FloatStorage", "0", 12, 0, 2, {4, 3}, {1, 4}},
        {"channels_last", "FloatStorage", "0", 12, 0, 4, {1, 3, 2, 2}, {12, 1, 6, 3}},
        {"part", "FloatStorage", "0", 12, 5, 2, {2, 2}, {4, 2}},
        {"repeated", "FloatStorage", "0", 12, 7, 2, {2, 3}, {0, 0}},
        {"scalar", "LongStorage", "2", 1, 0, 0, {0}, {0}},
        {"empty", "FloatStorage", "0", 12, 0, 2, {0, 4}, {4, 1}},
        {"double", "DoubleStorage", "1", 2, 0, 1, {2}, {1}},
        {"half", "HalfStorage", "3", 4, 1, 1, {3}, {1}},
        {"brain", "BFloat16Storage", "3", 4, 0, 1, {1}, {1}},
        {"n_averaged", "LongStorage", "2", 1, 0, 0, {0}, {0}},
    };
    struct weights_file file;
    write_tensors(tensors, 11);
    open_good(&file);
    assert_int_equal(file.count, 10);
    assert_null(file.torch.wrapper);
    expect_values(&file, "whole", "3x4", (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12);
    expect_values(&file, "transposed", "4x3", (double[]){0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11}, 12);
    expect_values(&file, "channels_last", "1x3x2x2", (double[]){0, 3, 6, 9, 1, 4, 7, 10, 2, 5, 8, 11}, 12);
    expect_values(&file, "part", "2x2", (double[]){5, 7, 9, 11}, 4);
    expect_values(&file, "repeated", "2x3", (double[]){7, 7, 7, 7, 7, 7}, 6);
    assert_int_equal(file.entries[weights_file_find(&file, "scalar")].shape.rank, 0);
    int64_t counter;
    struct reason reason;
    assert_true(weights_file_read(&file, weights_file_find(&file, "scalar"), &counter, &reason));
    assert_int_equal(counter, -3);
    expect_values(&file, "empty", "0x4", NULL, 0);
    expect_values(&file, "double", "2", (double[]){0.1, -1e300}, 2);
    expect_values(&file, "half", "3", (double[]){-2, INFINITY, 5.9604644775390625e-08}, 3);
    expect_values(&file, "brain", "1", (double[]){0.0078125}, 1);
    weights_file_close(&file);
}

static const struct torch_tensor simple = {"w", "FloatStorage", "0", 12, 0, 1, {12}, {1}};

/* A training checkpoint: numbers, text, lists, an argparse.Namespace, NumPy's scalars and an optimizer beside
 * the state_dict, which has attributes. */
static void plain_data_are_skipped(void **state)
{
    static const char *const keys[] = {"state_dict", "model", "model_ema", "state_dict_ema"};
    for (int i = 0; i < 4; i++) {
        struct bytes pickle = {0};
        begin(&pickle);
        pickle_text(&pickle, "epoch");
        pickle_code(&pickle, "K\3s(");
        pickle_text(&pickle, "args");
        pickle_code(&pickle, "cargparse\nNamespace\n)\x81}(");
        pickle_text(&pickle, "lr");
        pickle_code(&pickle, "G1234567\x01U\4list](K\1M\2\1J\1\1\1\1\x88Neub");
        pickle_text(&pickle, "metric");
        pickle_code(&pickle, "cnumpy.core.multiarray\nscalar\n(cnumpy\ndtype\n(U\2f8\x89\x88tRU\1xtRu");
        pickle_text(&pickle, keys[i]);
        pickle_code(&pickle, "ccollections\nOrderedDict\n)Rq\1");
        pickle_tensor(&pickle, &simple);
        pickle_code(&pickle, "h\1}");
        pickle_text(&pickle, "_metadata");
        pickle_code(&pickle, "ccollections\nOrderedDict\n)Rsb0s.");
        write_archive(&pickle);
        struct weights_file file;
        open_good(&file);
        assert_int_equal(file.count, 1);
        assert_string_equal(file.torch.wrapper, keys[i]);
        weights_file_close(&file);
        bytes_free(&pickle);
    }
}

/* ---- Pickles that would run code, and damaged ones ---- */

struct wrong {
    const char *what, *code;         /* between PROTO and the end of the file */
    int bytes;                       /* of the code; 0: it is a text */
    const char *words;
};

static const struct wrong pickles[] = {
    {"a shell command", "cos\nsystem\n(X\2\0\0\0lstR.", 22, "'os.system'"},
    {"one by its other name", "cposix\nsystem\n(U\2lstR.", 0, "'posix.system'"},
    {"names on the stack", "\x8c\2os\x8c\6system\x93(U\2lstR.", 0, "'os.system'"},
    {"names from the memo", "\x8c\2os\x94" "0\x8c\4exec\x94" "0h\0h\1\x93)R.", 22, "'os.exec'"},
    {"eval", "cbuiltins\neval\n(U\1" "1tR.", 0, "'builtins.eval'"},
    {"eval of Python 2", "c__builtin__\neval\n(U\1" "1tR.", 0, "'__builtin__.eval'"},
    {"an attribute of an allowed module", "ctorch._utils\nos.system\n(U\2lstR.", 0,
     "'torch._utils.os.system'"},
    {"a dotted name", "\x8c\5torch\x8c\x10_utils.os.system\x93)R.", 0, "'torch._utils.os.system'"},
    {"a class", "csubprocess\nPopen\n(U\2lst\x81.", 0, "'subprocess.Popen'"},
    {"a module's loader", "ctorch.hub\nload\n(U\1xtR.", 0, "'torch.hub.load'"},
    {"a nested pickle", "c_pickle\nloads\n(U\1.tR.", 0, "'_pickle.loads'"},
    {"a whole network", "ctorchvision.models.resnet\nResNet\n)\x81.", 0,
     "'torchvision.models.resnet.ResNet', which is neither a tensor nor plain data"},
    {"a path", "cpathlib\nPosixPath\n(U\1xtR.", 0, "'pathlib.PosixPath'"},
    {"the opcode INST", "(U\2lsios\nsystem\n.", 0, "opcode 0x69"},
    {"the opcode OBJ", "(cos\nsystem\nU\2lso.", 0, "'os.system'"},
    {"OBJ of an allowed name", "(cargparse\nNamespace\no.", 0, "opcode 0x6f"},
    {"NEWOBJ_EX", "cargparse\nNamespace\n)}\x92.", 0, "opcode 0x92"},
    {"an extension's number", "\x82\1)R.", 0, "opcode 0x82"},
    {"a persistent name in text", "Pos.system\n.", 0, "opcode 0x50"},
    {"protocol 0", "S'x'\n.", 0, "opcode 0x53"},
    {"a call of a text", "U\2os)R.", 0, "call of what is not a function"},
    {"a call of a tensor", "ctorch._utils\n_rebuild_tensor\n)R)R.", 0, "call of what is not a function"},
    {"a call without a tuple", "cargparse\nNamespace\nNR.", 0, "call of what is not a function"},
    {"a name without an end", "cos", 0, "a name without an end"},
    {"names that are numbers", "K\1K\2\x93.", 0, "a name that is not text"},
    {"a text of 4 GiB", "X\xff\xff\xff\xff.", 6, "truncated"},
    {"a text of 2^63 bytes", "\x8d\0\0\0\0\0\0\0\x80.", 10, "truncated"},
    {"a far place of the memo", "Nr\xff\xff\xff\xff.", 7, "more than 4194304 values"},
    {"an unknown place of the memo", "h\7.", 0, "unknown place of the memo"},
    {"no value", ".", 0, "too few values"},
    {"too few values", "N\x86.", 0, "too few values"},
    {"a mark without an end", "N(\x85.", 0, "too few values"},
    {"an end without a mark", "Nt.", 0, "no mark"},
    {"items of no dictionary", "(NNu.", 0, "no dictionary"},
    {"a key without a value", "}(Nu.", 0, "a key without a value"},
    {"an append to nothing", "Na.", 0, "too few values"},
    {"appends to nothing", "(e.", 0, "no list"},
    {"an odd dictionary", "(Nd.", 0, "a key without a value"},
    {"an item of two values", "NNs.", 0, "too few values"},
    {"a call of nothing", ")R.", 0, "too few values"},
    {"a call of nothing with nothing", "R.", 0, "too few values"},
    {"no name", "\x93.", 0, "too few values"},
    {"one name", "\x8c\1x\x93.", 0, "too few values"},
    {"a name that is a number", "\x8c\1xK\1\x93.", 0, "a name that is not text"},
    {"attributes of nothing", "Nb.", 0, "too few values"},
    {"no attributes of nothing", "b.", 0, "too few values"},
    {"a storage of nothing", "Q.", 0, "too few values"},
    {"a copy of nothing", "2.", 0, "too few values"},
    {"nothing to remember", "\x94.", 0, "too few values"},
    {"nothing to drop", "0.", 0, "too few values"},
    {"nothing to drop in a mark", "(00.", 0, "too few values"},
    {"a dictionary's class with arguments", "ccollections\nOrderedDict\n(K\1tR.", 0,
     "does not contain a state_dict"},
    {"no end", "}N", 0, "truncated"},
    {"a number", "K\1.", 0, "does not contain a state_dict"},
    {"no tensors", "}U\1xK\1s.", 0, "has no tensors"},
};

/* Calls of allowed names with wrong arguments: a tensor of 2 in a storage of 12. */
#define TENSOR "}U\1wctorch._utils\n_rebuild_tensor_v2\n("
#define STORAGE "(U\7storagectorch\nFloatStorage\nU\1" "0U\3cpuK\14tQ"
#define SHAPE "K\1(K\2t(K\1t"
#define ZERO_IN_NAME "}U\3w\0vctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SHAPE "tRs."
static const struct wrong calls[] = {
    {"a tensor of a number", TENSOR "K\1tRs.", 0, "tensor 'w' has no storage"},
    {"a tensor of nothing", TENSOR "tRs.", 0, "has no storage"},
    {"a storage of another word", TENSOR "(U\7Storagectorch\nFloatStorage\nU\1" "0U\3cpuK\14tQ" SHAPE "tRs.",
     0, "a damaged storage"},
    {"a storage of no type", TENSOR "(U\7storageU\1xU\1" "0U\3cpuK\14tQ" SHAPE "tRs.", 0,
     "a damaged storage"},
    {"a storage of a number", TENSOR "(U\7storagectorch\nFloatStorage\nK\1U\3cpuK\14tQ" SHAPE "tRs.", 0,
     "a damaged storage"},
    {"a storage of any size", TENSOR "(U\7storagectorch\nFloatStorage\nU\1" "0U\3cputQ" SHAPE "tRs.", 0,
     "a damaged storage"},
    {"a storage that is a text", TENSOR "U\1xQ" SHAPE "tRs.", 0, "a damaged storage"},
    {"no sizes", TENSOR STORAGE "K\1tRs.", 0, "a damaged shape"},
    {"no strides", TENSOR STORAGE "K\1(K\2ttRs.", 0, "a damaged shape"},
    {"more sizes than strides", TENSOR STORAGE "K\1(K\2K\2t(K\1ttRs.", 0, "a damaged shape"},
    {"an offset in text", TENSOR STORAGE "U\1" "1(K\2t(K\1ttRs.", 0, "a damaged shape"},
    {"a size in text", TENSOR STORAGE "K\1(U\1" "2t(K\1ttRs.", 0, "a damaged shape"},
    {"a parameter of nothing", "}U\1wctorch._utils\n_rebuild_parameter\n(NtRs.", 0, "a damaged parameter"},
    {"a name with a zero byte", ZERO_IN_NAME, sizeof ZERO_IN_NAME - 1, "has a tensor with a damaged name"},
    {"a name that is a number", "}K\1ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SHAPE "tRs.", 0,
     "has no tensors"},
    {"a wrapped number", "}U\5modelK\1s.", 0, "has no tensors"},
    {"a wrapped dictionary of nothing", "}U\5model}s.", 0, "has no tensors"},
    {"a tensor alone", "ctorch._utils\n_rebuild_tensor_v2\n(" STORAGE SHAPE "tR.", 0, "contains one tensor"},
};

static void refuse_each(const struct wrong *wrong, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        struct bytes pickle = {0};
        pickle_code(&pickle, "\x80\x02");
        int bytes = wrong[i].bytes ? wrong[i].bytes : (int)strlen(wrong[i].code);
        bytes_add(&pickle, wrong[i].code, (size_t)bytes);
        write_archive(&pickle);
        open_refused(wrong[i].words, wrong[i].what);
        bytes_free(&pickle);
    }
}

static void wrong_pickles(void **state)
{
    refuse_each(pickles, sizeof pickles / sizeof *pickles);
    refuse_each(calls, sizeof calls / sizeof *calls);
}

/* Deep nesting and many values take neither the call stack nor much memory; test_pickle.c has all ways
 * to many values. */
static void endless_pickles(void **state)
{
    struct bytes pickle = {0};
    pickle_code(&pickle, "\x80\x02N");
    for (int k = 0; k < 5000000; k++) pickle_code(&pickle, "K\1");
    pickle_code(&pickle, ".");
    write_archive(&pickle);
    open_refused("more than 4194304 values", "many numbers");
    pickle.count = 0;
    pickle_code(&pickle, "\x80\x02)");
    for (int k = 0; k < 1000000; k++) pickle_code(&pickle, "\x85");
    pickle_code(&pickle, ".");
    write_archive(&pickle);
    open_refused("does not contain a state_dict", "nested tuples");
    bytes_free(&pickle);
}

/* ---- Tensors that are not in their storages ---- */

static const struct {
    struct torch_tensor tensor;
    const char *words;
} tensors[] = {
    {{"w", "FloatStorage", "0", 12, 1, 1, {12}, {1}}, "tensor 'w' lies outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 12, 0, {0}, {0}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 0, 2, {3, 4}, {5, 1}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, INT64_MAX, 1, {2}, {1}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 0, 2, {1LL << 62, 4}, {0, 0}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 0, 2, {2, 2}, {INT64_MAX, INT64_MAX}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 0, 1, {3}, {INT64_MAX}}, "outside of its storage"},
    {{"w", "FloatStorage", "0", 12, 0, 1, {1LL << 40}, {0}}, "1099511627776 elements, but its storage 12"},
    {{"w", "FloatStorage", "0", 12, -1, 1, {2}, {1}}, "a damaged shape"},
    {{"w", "FloatStorage", "0", 12, 0, 1, {-2}, {1}}, "a damaged shape"},
    {{"w", "FloatStorage", "0", 12, 11, 1, {12}, {-1}}, "a damaged shape"},
    {{"w", "FloatStorage", "0", 12, 0, 5, {1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}}, "5 dimensions"},
    {{"w", "FloatStorage", "0", 13, 0, 1, {13}, {1}}, "a storage of 48 bytes, too few for 13 elements"},
    {{"w", "FloatStorage", "0", INT64_MAX, 0, 1, {1}, {1}}, "too few for"},
    {{"w", "FloatStorage", "9", 12, 0, 1, {12}, {1}}, "a storage that is not in the file"},
    {{"w", "FloatStorage", "../data.pkl", 12, 0, 1, {12}, {1}}, "a storage that is not in the file"},
    {{"w", "ComplexFloatStorage", "0", 6, 0, 1, {6}, {1}}, "torch.ComplexFloatStorage, which is not"},
    {{"w", "os", "0", 6, 0, 1, {6}, {1}}, "'torch.os'"},
    {{"w", "Size", "0", 6, 0, 1, {6}, {1}}, "torch.Size, which is not supported"},
};

static void wrong_tensors(void **state)
{
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        write_tensors(&tensors[i].tensor, 1);
        open_refused(tensors[i].words, tensors[i].words);
    }
    const struct torch_tensor twice[] = {simple, simple};
    write_tensors(twice, 2);
    open_refused("has two tensors 'w'", "a name twice");
}

/* ---- Damaged archives ---- */

static void make_good(struct archive *archive)
{
    archive->list.count = archive->content.count = 0;
    archive->count = 0;
    struct bytes pickle = {0};
    begin(&pickle);
    pickle_tensor(&pickle, &simple);
    pickle_code(&pickle, ".");
    archive_add(archive, "net/data.pkl", pickle.data, pickle.count);
    add_storages(archive);
    archive_end(archive);
    bytes_free(&pickle);
}

/* The file is not what it was: it is refused, or its tensor has the same elements. */
static void check_changed(void)
{
    struct weights_file file;
    struct reason reason;
    float values[12];
    if (!weights_file_open(path, &file, &reason)) return;
    int entry = weights_file_find(&file, "w");
    if (entry >= 0 && shape_count(file.entries[entry].shape) == 12 &&
        weights_file_read(&file, entry, values, &reason))
        assert_memory_equal(values, floats, sizeof floats);
    weights_file_close(&file);
}

static const uint8_t changes[] = {4, 0x80, 0xff};

/* Every beginning of a file, and every file with another value of one of its bytes. */
static void half_files_of(bool large)
{
    struct archive archive = {.large = large};
    struct weights_file file;
    struct reason reason;
    make_good(&archive);
    for (size_t count = 0; count < archive.content.count; count++) {
        write_bytes(path, archive.content.data, count);
        if (weights_file_open(path, &file, &reason)) fail_msg("%zu bytes are accepted", count);
    }
    for (size_t i = 0; i < archive.content.count; i++) {
        for (int k = 0; k < 3; k++) {
            archive.content.data[i] ^= changes[k];
            write_bytes(path, archive.content.data, archive.content.count);
            check_changed();
            archive.content.data[i] ^= changes[k];
        }
    }
    archive_free(&archive);
}

static void half_files(void **state) { half_files_of(false); }

static void store_number(uint8_t *at, uint64_t value, int count)
{
    for (int i = 0; i < count; i++) at[i] = (uint8_t)(value >> (8 * i));
}

/* Archives as torch.save writes them beyond 4 GiB. */
static void large_files(void **state)
{
    struct archive archive = {.large = true};
    struct weights_file file;
    make_good(&archive);
    write_bytes(path, archive.content.data, archive.content.count);
    open_good(&file);
    expect_values(&file, "w", "12", (double[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}, 12);
    weights_file_close(&file);
    uint8_t *end = memmem(archive.content.data, archive.content.count, "PK\6\6", 4);
    uint8_t *locator = memmem(archive.content.data, archive.content.count, "PK\6\7", 4);
    uint8_t *field = memmem(archive.content.data, archive.content.count, "\1\0\x18\0", 4);
    const struct {
        uint8_t *at, value;
        const char *words;
    } wrong[] = {
        {end, 'Q', "a damaged end of its zip archive"},
        {locator + 15, 0x7f, "a damaged end of its zip archive"},
        {locator + 15, 0x80, "a damaged end of its zip archive"},
        {end + 39, 0x7f, "has more than 1000000 members"},
        {end + 47, 0x7f, "its list of members lies outside"},
        {end + 55, 0x80, "its list of members lies outside"},
        {end + 34, 1, "a damaged list of members"},
        {end - 1, 0x7f, "member 'net/data/3' lies outside of the file"},
        {field + 2, 8, "a damaged list of members"},             /* one number, where there should be three */
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        uint8_t before = *wrong[i].at;
        *wrong[i].at = wrong[i].value;
        write_bytes(path, archive.content.data, archive.content.count);
        open_refused(wrong[i].words, wrong[i].words);
        *wrong[i].at = before;
    }
    store_number(locator + 8, (uint64_t)(locator - archive.content.data), 8);
    write_bytes(path, archive.content.data, archive.content.count);
    open_refused("a damaged end of its zip archive", "an end that is cut off");
    archive_free(&archive);
    half_files_of(true);
}

/* Each opcode that is read; what they leave is dropped again. */
#define CODE(text) {text, sizeof text - 1}
static const struct {
    const char *code;
    size_t bytes;
} opcodes[] = {
    CODE("\x95" "12345678("), CODE("N\x88\x89G12345678J\1\1\1\1M\1\1K\1"),
    CODE("\x8a\0\x8a\1\xff\x8a\x09" "123456789\x8b\2\0\0\0ab"),
    CODE("U\1a\x8c\1aT\1\0\0\0aX\1\0\0\0a\x8d\1\0\0\0\0\0\0\0a"),
    CODE("C\1aB\1\0\0\0a\x8e\1\0\0\0\0\0\0\0a\x96\1\0\0\0\0\0\0\0a"),
    CODE("q\5h\5r\7\0\0\0j\7\0\0\0\x94N\x85NN\x86NNN\x87(NNt)"),
    CODE("}NNs}(NNu(NNd(NNdNNs](NNe]Na\x8f(N\x90(N\x91(Nl(N1N0(0N2"),
    CODE("cargparse\nNamespace\n)\x81}b\x8c\5numpy\x8c\5" "dtype\x93)RU\1aQ1"),
};

/* The archive around them is whole. */
static void half_pickles(void **state)
{
    struct bytes pickle = {0};
    begin(&pickle);
    for (size_t i = 0; i < sizeof opcodes / sizeof *opcodes; i++)
        bytes_add(&pickle, opcodes[i].code, opcodes[i].bytes);
    pickle_tensor(&pickle, &simple);
    pickle_code(&pickle, ".");
    write_archive(&pickle);
    struct weights_file file;
    open_good(&file);
    assert_int_equal(file.count, 1);
    weights_file_close(&file);
    for (struct bytes part = {pickle.data, 0, 0}; part.count < pickle.count; part.count++) {
        write_archive(&part);
        open_refused("damaged pickle", "a part of a pickle");
    }
    for (size_t i = 0; i < pickle.count; i++) {
        for (int k = 0; k < 3; k++) {
            pickle.data[i] ^= changes[k];
            write_archive(&pickle);
            check_changed();
            pickle.data[i] ^= changes[k];
        }
    }
    bytes_free(&pickle);
}

/* A file that becomes shorter while it is open. */
static void shortened_files(void **state)
{
    static const struct torch_tensor turned = {"w", "FloatStorage", "0", 12, 0, 2, {4, 3}, {1, 4}};
    const struct torch_tensor *const whole_and_turned[] = {&simple, &turned};
    struct weights_file file;
    struct reason reason;
    float values[12];
    for (int i = 0; i < 2; i++) {
        write_tensors(whole_and_turned[i], 1);
        open_good(&file);
        assert_int_equal(truncate(path, 40), 0);
        assert_false(weights_file_read(&file, 0, values, &reason));
        assert_string_equal(reason.text, "tensor 'w': ends too early");
        weights_file_close(&file);
    }
}

static void damaged_contents(void **state)
{
    struct archive archive = {0};
    struct weights_file file;
    struct reason reason;
    float values[12];
    make_good(&archive);
    uint8_t *storage = memmem(archive.content.data, archive.content.count, floats, sizeof floats);
    storage[17] ^= 1;
    write_bytes(path, archive.content.data, archive.content.count);
    open_good(&file);
    assert_false(weights_file_read(&file, 0, values, &reason));
    assert_non_null(strstr(reason.text, "member 'net/data/0' is damaged (CRC-32"));
    weights_file_close(&file);
    storage[17] ^= 1;
    uint8_t *pickle = memmem(archive.content.data, archive.content.count, "FloatStorage", 12);
    *pickle = 'f';
    write_bytes(path, archive.content.data, archive.content.count);
    open_refused("member 'net/data.pkl' is damaged (CRC-32", "a changed pickle");
    archive_free(&archive);
}

/* A byte of the list of members, by its place in the first record. */
static void refused_list(size_t at, uint8_t value, const char *words)
{
    struct archive archive = {0};
    make_good(&archive);
    uint8_t *list = memmem(archive.content.data, archive.content.count, "PK\1\2", 4);
    list[at] = value;
    write_bytes(path, archive.content.data, archive.content.count);
    open_refused(words, words);
    archive_free(&archive);
}

/* A number of the first record of the list, or of the header of the content. */
static void refused_number(bool list, size_t at, int64_t from_end, int count, const char *words)
{
    struct archive archive = {0};
    make_good(&archive);
    uint8_t *record = list ? memmem(archive.content.data, archive.content.count, "PK\1\2", 4)
                           : archive.content.data;
    store_number(record + at, archive.content.count - (uint64_t)from_end, count);
    write_bytes(path, archive.content.data, archive.content.count);
    open_refused(words, words);
    archive_free(&archive);
}

/* A member with more bytes than a pickle may have, which are a hole in the file. */
static void large_pickle(void)
{
    static const uint32_t bytes = PICKLE_BYTES_MAX + 1;
    struct archive archive = {0};
    archive_add(&archive, "a/data.pkl", "", 0);
    store_number(archive.list.data + 20, bytes, 4);
    store_number(archive.list.data + 24, bytes, 4);
    size_t start = archive.content.count;
    archive_end(&archive);
    size_t rest = archive.content.count - start;
    uint8_t *end = archive.content.data + archive.content.count - 6;
    store_number(end, start + bytes, 4);
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(archive.content.data, 1, start, file), start);
    assert_int_equal(fseek(file, (long)(start + bytes), SEEK_SET), 0);
    assert_int_equal(fwrite(archive.content.data + start, 1, rest, file), rest);
    assert_int_equal(fclose(file), 0);
    open_refused("has a pickle of 67108865 bytes; at most 67108864 can be read", "a large pickle");
    archive_free(&archive);
}

static void refused_archive(const char *const names[], const char *content, const char *words)
{
    struct archive archive = {0};
    for (int i = 0; names[i]; i++) archive_add(&archive, names[i], content, strlen(content));
    archive_end(&archive);
    write_bytes(path, archive.content.data, archive.content.count);
    open_refused(words, words);
    archive_free(&archive);
}

static void wrong_archives(void **state)
{
    refused_list(8, 1, "member 'net/data.pkl' is encrypted");
    refused_list(10, 8, "member 'net/data.pkl' is compressed");
    refused_list(44, 0x7f, "member 'net/data.pkl' lies outside of the file");
    refused_list(42, 1, "member 'net/data.pkl' has a damaged header");
    refused_list(24, 9, "a damaged list of members");
    refused_list(31, 0xff, "a damaged list of members");
    refused_list(46, 0, "a damaged list of members");
    refused_number(true, 42, 10, 4, "member 'net/data.pkl' lies outside of the file");
    refused_number(false, 26, 10, 2, "member 'net/data.pkl' lies outside of the file");
    large_pickle();
    refused_archive((const char *const[]){"word/document.xml", NULL}, "<a/>", "it has no data.pkl");
    refused_archive((const char *const[]){NULL}, "", "not a safetensors file");
    refused_archive((const char *const[]){"a/data.pkl", "a/data.pkl", NULL}, "}.", "two members 'a/data.p");
    refused_archive((const char *const[]){"a/data.pkl", "a/constants.pkl", NULL}, "}.", "TorchScript");
    refused_archive((const char *const[]){"a/data.pkl", "a/byteorder", NULL}, "big", "another byte order");
    refused_archive((const char *const[]){"a/data.pkl", "a/byteorder", NULL}, "middle", "damaged byte order");
    refused_archive((const char *const[]){"a/data.pkl", NULL}, "}.", "has no tensors");
}

/* A dictionary with what is no tensor among them; and tensors that are none of a network. */
static void other_entries(void **state)
{
    static const struct torch_tensor counter = {"n_averaged", "LongStorage", "2", 1, 0, 0, {0}, {0}};
    struct weights_file file;
    struct torch_file torch;
    struct reason reason;
    struct bytes pickle = {0};
    begin(&pickle);
    pickle_tensor(&pickle, &simple);
    pickle_code(&pickle, "U\5epochK\3sK\3K\4s.");
    write_archive(&pickle);
    bytes_free(&pickle);
    open_good(&file);
    assert_int_equal(file.count, 1);
    weights_file_close(&file);
    write_tensors(&counter, 1);
    open_good(&file);
    assert_int_equal(file.count, 0);
    assert_int_equal(weights_file_find(&file, "n_averaged"), -1);
    weights_file_close(&file);
    unlink(path);
    assert_false(torch_file_open(path, &torch, &reason));
    assert_string_equal(reason.text, "cannot be opened: No such file or directory");
}

static void old_formats(void **state)
{
    char bytes[512] = "\x80\x02\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";
    write_bytes(path, bytes, sizeof bytes);
    open_refused("before version 1.6; torch.save(torch.load(", "a file of PyTorch 1.5");
    memset(bytes, 0, sizeof bytes);
    memcpy(bytes, "sys_info", 8);
    memcpy(bytes + 257, "ustar", 5);
    write_bytes(path, bytes, sizeof bytes);
    open_refused("before version 1.6", "a tar archive");
    write_bytes(path, "\x80\x03}q\0.", 6);
    open_refused("is a pickle, but not a file of torch.save", "a pickle");
    write_bytes(path, "PK\3\4", 4);
    open_refused("truncated", "the beginning of an archive");
    write_bytes(path, "PK\3\4PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 26);
    open_refused("it has no data.pkl", "an archive of nothing");
    for (int version = 0; version < 8; version++) {
        write_bytes(path, (char[]){(char)0x80, (char)version}, 2);
        open_refused(version >= 2 && version <= 5 ? "is a pickle, but not" : "", "a pickle of two bytes");
    }
    write_bytes(path, "\x80", 1);
    open_refused("", "a byte");
}

/* ---- Several files of safetensors ---- */

static enum status write_floats(void *context, int item, void *data)
{
    (void)context;
    memcpy(data, floats + 2 * item, 2 * sizeof(float));
    return OK;
}

static void write_part(const char *name, const char *first, const char *second)
{
    const struct safetensors_item items[] = {{first, F32, {.rank = 1, .dim = {2, 1, 1, 1}}},
                                             {second, F32, {.rank = 1, .dim = {2, 1, 1, 1}}}};
    const struct safetensors_content content = {items, 2, NULL, 0, write_floats, NULL};
    char *part = text_format("%s/%s", folder, name);
    assert_int_equal(safetensors_write(part, &content), OK);
    free(part);
}

static void refused_index(const char *index, const char *text, const char *words)
{
    struct weights_file file;
    struct reason reason = {0};
    write_bytes(index, text, strlen(text));
    if (weights_file_open(index, &file, &reason)) fail_msg("%s is accepted", text);
    if (!strstr(reason.text, words)) fail_msg("%s: '%s' does not have '%s'", text, reason.text, words);
}

static void files_with_an_index(void **state)
{
    static const char good[] = "{\"metadata\": {\"total_size\": 32}, \"weight_map\": {"
                               "\"b\": \"one.safetensors\", \"c\": \"two.safetensors\","
                               "\"a\": \"one.safetensors\", \"d\": \"two.safetensors\"}}";
    char *index = text_format("%s/model.safetensors.index.json", folder);
    struct weights_file file;
    struct reason reason;
    write_part("one.safetensors", "a", "b");
    write_part("two.safetensors", "c", "d");
    write_bytes(index, good, strlen(good));
    if (!weights_file_open(index, &file, &reason)) fail_msg("%s", reason.text);
    assert_int_equal(file.count, 4);
    assert_int_equal(file.part_count, 2);
    expect_values(&file, "a", "2", (double[]){0, 1}, 2);
    expect_values(&file, "d", "2", (double[]){2, 3}, 2);
    weights_file_close(&file);
    refused_index(index, "{", "a damaged index");
    refused_index(index, "{}", "no weight_map");
    refused_index(index, "{\"weight_map\":{\"a\":1}}", "no file for tensor 'a'");
    refused_index(index, "{\"weight_map\":{\"a\":\"../one.safetensors\"}}", "names '../one.safetensors'");
    refused_index(index, "{\"weight_map\":{\"a\":\"three.safetensors\"}}",
                  "'three.safetensors' cannot be opened");
    refused_index(index, "{\"weight_map\":{\"c\":\"one.safetensors\"}}", "has no tensor 'c'");
    refused_index(index, "{\"weight_map\":[]}", "no weight_map");
    refused_index(index, "{\"weight_map\":{\"a\":\"\"}}", "names '', which is no file");
    refused_index(index, "{\"weight_map\":{\"a\":\"model.safetensors.index.json\"}}",
                  "its part 'model.safetensors.index.json'");
    char *many = memory_new(300001, 1);
    memset(many, '[', 300000);
    refused_index(index, many, "is an index of too many tensors");
    free(many);
    write_bytes(index, good, strlen(good));
    char *before = getcwd(NULL, 0);
    assert_int_equal(chdir(folder), 0);
    bool relative = weights_file_open("model.safetensors.index.json", &file, &reason);
    assert_int_equal(chdir(before), 0);
    free(before);
    assert_true(relative);
    weights_file_close(&file);
    weights_file_close(&file);
    assert_int_equal(truncate(index, (32 << 20) + 1), 0);
    assert_false(weights_file_open(index, &file, &reason));
    assert_non_null(strstr(reason.text, "is too long to be an index"));
    unlink(index);
    assert_false(weights_file_open(index, &file, &reason));
    assert_non_null(strstr(reason.text, "cannot be opened: No such file"));
    free(index);
    for (int i = 0; i < 2; i++) {
        char *part = text_format("%s/%s.safetensors", folder, i ? "two" : "one");
        unlink(part);
        free(part);
    }
}

/* ---- What the system refuses ---- */

static bool reads_whole(const char *from)
{
    struct weights_file file;
    struct reason reason;
    char data[64];
    if (!weights_file_open(from, &file, &reason)) return false;
    bool good = true;
    for (int i = 0; good && i < file.count; i++) good = weights_file_read(&file, i, data, &reason);
    weights_file_close(&file);
    return good;
}

/* Each call of the system's fails in turn: then the file is refused, and nothing is lost. */
static void refuse_reads(const char *from)
{
    static const char *const calls[] = {"pread", "fstat", "memory_try"};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        bool more = true;
        for (int before = 0; more; before++) {
            refuse(calls[i], before);
            bool good = reads_whole(from);
            more = refuse_struck();
            if (good != !more || !(more || before > 0)) fail_msg("%s: %s %d", from, calls[i], before);
        }
    }
}

static void reads_that_are_refused(void **state)
{
    static const struct torch_tensor both[] = {
        {"whole", "FloatStorage", "0", 12, 0, 1, {12}, {1}},
        {"turned", "DoubleStorage", "1", 2, 0, 2, {1, 2}, {1, 1}},
        {"part", "FloatStorage", "0", 12, 5, 2, {2, 2}, {4, 2}},
    };
    static const char map[] = "{\"weight_map\": {\"b\": \"file.pth\", \"a\": \"file.pth\"}}";
    char *index = text_format("%s/model.safetensors.index.json", folder);
    struct archive archive = {.large = true};
    write_tensors(both, 3);
    refuse_reads(path);
    make_good(&archive);
    write_bytes(path, archive.content.data, archive.content.count);
    refuse_reads(path);
    archive_free(&archive);
    write_part("file.pth", "a", "b");
    write_bytes(index, map, strlen(map));
    refuse_reads(index);
    unlink(index);
    free(index);
}

static int begin_folder(void **state)
{
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/file.pth", folder);
    return 0;
}

static int end_folder(void **state)
{
    unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_of_every_kind), cmocka_unit_test(plain_data_are_skipped),
        cmocka_unit_test(wrong_pickles),         cmocka_unit_test(endless_pickles),
        cmocka_unit_test(wrong_tensors),         cmocka_unit_test(half_files),
        cmocka_unit_test(large_files),           cmocka_unit_test(half_pickles),
        cmocka_unit_test(damaged_contents),      cmocka_unit_test(wrong_archives),
        cmocka_unit_test(old_formats),           cmocka_unit_test(files_with_an_index),
        cmocka_unit_test(shortened_files),       cmocka_unit_test(other_entries),
        cmocka_unit_test(reads_that_are_refused),
    };
    return cmocka_run_group_tests_name("torch_file", tests, begin_folder, end_folder);
}
