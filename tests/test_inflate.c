/* Inflating: what zlib deflates comes back, at every level and by every strategy, and damage does no harm. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include <zlib.h>

#include "base/memory.h"
#include "base/random.h"
#include "data/inflate.h"

#include <cmocka.h>

/* From all alike to noise, with repetitions near and far. */
static uint8_t *make_bytes(size_t count, struct random *random)
{
    uint8_t *bytes = memory_new(count, 1);
    uint32_t kinds = 1 + random_below(random, 256);
    for (size_t i = 0; i < count; i++) {
        size_t back = 1 + random_below(random, 1 << (1 + random_below(random, 15)));
        bool repeat = i > back && random_below(random, 3) == 0;
        size_t length = repeat ? 1 + random_below(random, 300) : 1;
        for (; length > 0 && i < count; length--, i++)
            bytes[i] = repeat ? bytes[i - back]
                              : (uint8_t)(random_below(random, kinds) * random_below(random, 3));
        i--;
    }
    return bytes;
}

/* A stream with nothing after it in memory, so that a byte too many is noticed. */
static uint8_t *deflated(const uint8_t *bytes, size_t count, int level, int strategy, size_t *length)
{
    z_stream stream = {0};
    assert_int_equal(deflateInit2(&stream, level, Z_DEFLATED, 15, 8, strategy), Z_OK);
    size_t room = deflateBound(&stream, (uLong)count);
    uint8_t *out = memory_new(room, 1);
    stream.next_in = (Bytef *)bytes, stream.avail_in = (uInt)count;
    stream.next_out = out, stream.avail_out = (uInt)room;
    assert_int_equal(deflate(&stream, Z_FINISH), Z_STREAM_END);
    *length = stream.total_out;
    deflateEnd(&stream);
    return memory_resize(out, *length, 1);
}

static void all_that_zlib_makes(void **state)
{
    (void)state;
    static const int strategies[] = {Z_DEFAULT_STRATEGY, Z_FILTERED, Z_HUFFMAN_ONLY, Z_RLE, Z_FIXED};
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < 150; i++) {
        size_t count = random_below(&random, i % 10 ? 4000 : 200000), length;
        uint8_t *bytes = make_bytes(count, &random), *out = memory_new(count, 1);
        uint8_t *stream = deflated(bytes, count, i % 10, strategies[i / 10 % 5], &length);
        assert_true(inflate_whole(stream, length, out, count));
        assert_memory_equal(out, bytes, count);
        if (count > 0) assert_false(inflate_whole(stream, length, out, count - 1));
        free(out);
        out = memory_new(count + 1, 1);
        assert_false(inflate_whole(stream, length, out, count + 1));
        for (size_t cut = 1; cut < 12 && cut <= length; cut++)
            assert_false(inflate_whole(stream, length - cut, out, count));
        free(stream);
        free(bytes);
        free(out);
    }
}

/* The longest words: frequencies that double from symbol to symbol. */
static void words_of_every_length(void **state)
{
    (void)state;
    size_t count = 0, length;
    uint8_t *bytes = memory_new(1 << 18, 1), *out = memory_new(1 << 18, 1);
    for (int symbol = 0; symbol < 18; symbol++)
        for (int i = 0; i < 1 << symbol && count < 1 << 18; i++) bytes[count++] = (uint8_t)(symbol * 13);
    for (size_t i = 0; i < count; i++) {
        size_t other = (i * 40503u + 7) % count;
        uint8_t byte = bytes[i];
        bytes[i] = bytes[other], bytes[other] = byte;
    }
    uint8_t *stream = deflated(bytes, count, 9, Z_HUFFMAN_ONLY, &length);
    assert_true(inflate_whole(stream, length, out, count));
    assert_memory_equal(out, bytes, count);
    free(stream);
    free(bytes);
    free(out);
}

static void damage_does_no_harm(void **state)
{
    (void)state;
    struct random random = random_open(2, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < 400; i++) {
        size_t count = 1 + random_below(&random, 3000), length;
        uint8_t *bytes = make_bytes(count, &random), *out = memory_new(count, 1);
        uint8_t *stream = deflated(bytes, count, 1 + i % 9, i % 5 ? Z_DEFAULT_STRATEGY : Z_FIXED, &length);
        for (int k = 0; k < 5; k++) stream[random_below(&random, (uint32_t)length)] ^= (uint8_t)(1 << k);
        if (inflate_whole(stream, length, out, count)) assert_memory_equal(out, bytes, count);
        free(stream);
        free(bytes);
        free(out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_that_zlib_makes),
        cmocka_unit_test(words_of_every_length),
        cmocka_unit_test(damage_does_no_harm),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
