/* Bytes in zlib's format, by the library that the build has, and by zlib (test_deflated_zlib). */
#include <stdlib.h>
#include <string.h>

#include "tests/support/unit.h"
#include <zlib.h>

#include "base/deflated.h"
#include "base/memory.h"

#define SIZE 20000

struct stream {
    uint8_t bytes[2 * SIZE], plain[SIZE];
    size_t count;
};

/* Words that repeat, and noise between them. `level`: zlib's. */
static void stream_make(int level, struct stream *stream)
{
    for (int i = 0; i < SIZE; i++)
        stream->plain[i] = (uint8_t)(i % 600 < 400 ? (unsigned)i % 100 : (unsigned)i * 2654435761u >> 13);
    uLongf count = sizeof stream->bytes;
    assert_int_equal(compress2(stream->bytes, &count, stream->plain, SIZE, level), Z_OK);
    stream->count = count;
}

/* Reads from and to memory of just these sizes, so that valgrind and sanitizers see what lies beyond. */
static bool read_exactly(const struct stream *stream, size_t count, size_t size, bool *equal)
{
    uint8_t *from = memory_new(count, 1), *to = memory_new(size, 1);
    memcpy(from, stream->bytes, count);
    bool good = deflated_read(from, count, to, size);
    if (equal) *equal = memcmp(to, stream->plain, size) == 0;
    free(from);
    free(to);
    return good;
}

static void whole_streams_are_read(void **state)
{
    struct stream stream;
    for (int level = 0; level <= 9; level++) {
        bool equal;
        stream_make(level, &stream);
        assert_true(read_exactly(&stream, stream.count, SIZE, &equal));
        assert_true(equal);
    }
}

static void other_sizes_are_refused(void **state)
{
    struct stream stream;
    for (int level = 0; level <= 9; level += 3) {
        stream_make(level, &stream);
        assert_false(read_exactly(&stream, stream.count, SIZE - 1, NULL));
        assert_false(read_exactly(&stream, stream.count, 1, NULL));
        uint8_t more[SIZE + 1];
        assert_false(deflated_read(stream.bytes, stream.count, more, sizeof more));
    }
}

static void beginnings_are_refused(void **state)
{
    struct stream stream;
    stream_make(6, &stream);
    for (size_t count = 0; count < stream.count; count += count < 50 || count + 50 > stream.count ? 1 : 37)
        assert_false(read_exactly(&stream, count, SIZE, NULL));
}

static void bytes_after_the_end_are_refused(void **state)
{
    struct stream stream;
    stream_make(6, &stream);
    stream.bytes[stream.count] = 0;
    assert_false(read_exactly(&stream, stream.count + 1, SIZE, NULL));
}

/* Each bit of the first 400 bytes, and of the checksum, is changed. */
static void damage_is_refused(void **state)
{
    struct stream stream;
    stream_make(6, &stream);
    for (size_t i = 0; i < stream.count; i = i == 400 ? stream.count - 4 : i + 1) {
        for (int bit = 0; bit < 8; bit++) {
            bool equal;
            stream.bytes[i] ^= (uint8_t)(1 << bit);
            if (read_exactly(&stream, stream.count, SIZE, &equal))
                fail_msg("byte %zu, bit %d: taken, %s", i, bit, equal ? "equal" : "different");
            stream.bytes[i] ^= (uint8_t)(1 << bit);
        }
    }
}

/* It would have to be known. */
static void preset_dictionaries_are_refused(void **state)
{
    struct stream stream;
    stream_make(6, &stream);
    z_stream with = {.next_in = stream.plain, .avail_in = SIZE, .next_out = stream.bytes,
                     .avail_out = sizeof stream.bytes};
    assert_int_equal(deflateInit(&with, 6), Z_OK);
    assert_int_equal(deflateSetDictionary(&with, stream.plain, 100), Z_OK);
    assert_int_equal(deflate(&with, Z_FINISH), Z_STREAM_END);
    assert_false(read_exactly(&stream, with.total_out, SIZE, NULL));
    deflateEnd(&with);
}

/* ISO 3309's own example of a checksum, and zlib's of longer ones. */
static void checksums(void **state)
{
    assert_int_equal(deflated_crc(0, (const uint8_t *)"123456789", 9), 0xcbf43926);
    struct stream stream;
    stream_make(6, &stream);
    for (size_t count = 0; count < SIZE; count += count < 300 ? 1 : 997) {
        uint32_t half = deflated_crc(0, stream.plain + 1, count / 2);
        assert_int_equal(deflated_crc(half, stream.plain + 1 + count / 2, count - count / 2),
                         crc32(0, stream.plain + 1, (uInt)count));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_streams_are_read),
        cmocka_unit_test(other_sizes_are_refused),
        cmocka_unit_test(beginnings_are_refused),
        cmocka_unit_test(bytes_after_the_end_are_refused),
        cmocka_unit_test(damage_is_refused),
        cmocka_unit_test(preset_dictionaries_are_refused),
        cmocka_unit_test(checksums),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
