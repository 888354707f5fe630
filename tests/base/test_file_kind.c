/* Kinds of files by their first bytes: each is found, and safetensors whatever the length of the header. */
#include <stdio.h>
#include <string.h>

#include "base/file_kind.h"
#include "tests/support/unit.h"

static struct file_kind kind_of(const char *bytes, size_t count)
{
    char head[FILE_KIND_BYTES] = {0};
    memcpy(head, bytes, count);
    return file_kind(head, sizeof head, 100000);
}

static const struct {
    const char *bytes;
    size_t count;
    enum kind_of_file kind;
    const char *name;
} files[] = {
    {"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", 16, FILE_PNG, "PNG"},
    {"\xff\xd8\xff\xe0\0\x10JFIF", 10, FILE_JPEG, "JPEG"},
    {"RIFF\x10\0\0\0WEBPVP8 ", 16, FILE_WEBP, "WebP"},
    {"RIFF\x10\0\0\0WAVEfmt ", 16, FILE_UNKNOWN, NULL},
    {"AMPPACK2", 8, FILE_PACKED, "a packed data set"},
    {"AMPPACK9", 8, FILE_PACKED, "a packed data set"},
    {"PK\3\4\0\0\0\0\0\0", 10, FILE_TORCH, "a zip archive"},
    {"\x80\2\x8a\x0a\x6c\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.", 15, FILE_TORCH_OLD,
     "in PyTorch's format of before version 1.6"},
    {"\x80\2}q\0(X\5\0\0\0", 11, FILE_PICKLE, "a pickle"},
    {"\x80\4\x95\x20\0\0\0\0\0\0\0}", 12, FILE_PICKLE, "a pickle"},
    {"GIF89a\1\0\1\0", 10, FILE_IMAGE, "GIF"},
    {"\0\0\0\x18" "ftypheic", 12, FILE_IMAGE, "HEIC"},
    {"II*\0\x08\0\0\0", 8, FILE_TIFF, "TIFF"},
    {"BM\x36\0\1\0\0\0\0\0\x36", 11, FILE_IMAGE, "BMP"},
    {"P6\n2 2\n255\n", 11, FILE_IMAGE, "PNM"},
    {"\x08\x07\x12\x07pytorch\x1a\5" "2.1.0:", 18, FILE_OTHER, "ONNX"},
    {"\x08\x0a\x3a\x10", 4, FILE_OTHER, "ONNX"},
    {"\x89HDF\r\n\x1a\n\0\0\0\0\0", 13, FILE_OTHER, "HDF5"},
    {"GGUF\3\0\0\0{\0\0\0\0\0\0\0", 16, FILE_OTHER, "GGUF"},
    {"\x93NUMPY\1\0v\0{'descr'", 18, FILE_OTHER, "NumPy's format"},
    {"\x1f\x8b\x08\0\0\0\0\0\0\3", 10, FILE_OTHER, "a gzip file"},
};

static void each_kind_is_found(void **state)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        struct file_kind kind = kind_of(files[i].bytes, files[i].count);
        if (kind.kind != files[i].kind) fail_msg("case %zu is %s, not %s", i, kind.name, files[i].name);
        if (files[i].name) assert_string_equal(kind.name, files[i].name);
    }
}

static void texts(void **state)
{
    static const char *const wanted[][2] = {
        {"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 3\n", "a Git LFS pointer"},
        {"\n <!DOCTYPE html><html><body>404 Not Found", "HTML or XML"},
        {"{\"weight_map\": {\"a\": \"b\"}}", "JSON"},
        {"just some words of a text\n", "text"},
    };
    for (size_t i = 0; i < 4; i++)
        assert_string_equal(file_kind(wanted[i][0], strlen(wanted[i][0]), 1000).name, wanted[i][1]);
    assert_int_equal(file_kind("", 0, 0).kind, FILE_UNKNOWN);
    assert_int_equal(file_kind("short", 5, 5).kind, FILE_UNKNOWN);
}

/* A tar archive is known by bytes in the midst of its first block, which others may have there. */
static void tar_archives(void **state)
{
    char block[FILE_KIND_BYTES] = "some/picture.png";
    memcpy(block + 257, "ustar", 6);
    assert_int_equal(file_kind(block, sizeof block, 10240).kind, FILE_TAR);
    assert_int_not_equal(file_kind(block, 261, 10240).kind, FILE_TAR);
    memcpy(block, "\x89PNG\r\n\x1a\n", 8);
    assert_int_equal(file_kind(block, sizeof block, 10240).kind, FILE_PNG);
}

static struct file_kind safetensors(uint64_t length, uint64_t size)
{
    char head[FILE_KIND_BYTES];
    memset(head, ' ', sizeof head);
    for (int i = 0; i < 8; i++) head[i] = (char)(length >> 8 * i);
    memcpy(head + 8, "{\"__metadata__\":{", 17);
    memcpy(head + 257, "ustar", 5);            /* of a name in it */
    return file_kind(head, size < sizeof head ? (size_t)size : sizeof head, size);
}

/* A header's length may end in the first bytes of anything. */
static void safetensors_of_every_length(void **state)
{
    static const uint64_t more[] = {0, 0x10000, 0xff0000, 0x4030000, 0x8ff0000, 0x38460000, 0x2a0000};
    for (size_t i = 0; i < sizeof more / sizeof *more; i++)
        for (uint64_t low = 0; low < 65536; low++) {
            uint64_t length = more[i] + low;
            if (length < 9) continue;
            assert_int_equal(safetensors(length, length + 8).kind, FILE_SAFETENSORS);
            assert_int_equal(safetensors(length, length + 1000000).kind, FILE_SAFETENSORS);
        }
    /* One that was cut off is still none of PyTorch's. */
    for (uint64_t low = 512; low < 65536; low++)
        assert_int_equal(safetensors(low, 500).kind, FILE_SAFETENSORS);
}

/* Nor is anything else taken for safetensors. */
static void nothing_else_is_safetensors(void **state)
{
    for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
        char head[FILE_KIND_BYTES] = {0};
        memcpy(head, files[i].bytes, files[i].count);
        for (uint64_t size = 1; size < UINT64_C(1) << 34; size *= 2)
            assert_int_not_equal(file_kind(head, sizeof head, size).kind, FILE_SAFETENSORS);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_kind_is_found),
        cmocka_unit_test(texts),
        cmocka_unit_test(tar_archives),
        cmocka_unit_test(safetensors_of_every_length),
        cmocka_unit_test(nothing_else_is_safetensors),
    };
    return cmocka_run_group_tests_name("file kind", tests, NULL, NULL);
}
