#include "crc32c.h"

#include <string.h>

/* The remainder is linear in the byte's bits, so eight numbers, the remainders of the bytes 1, 2, 4
 * ... 128 by the reflected polynomial 0x82f63b78, give all 256. */
#define BIT(n, bit, remainder) (((n) & (bit)) ? (remainder) : 0u)
#define ONE(n)                                                                                \
    (BIT(n, 1, 0xf26b8303u) ^ BIT(n, 2, 0xe13b70f7u) ^ BIT(n, 4, 0xc79a971fu) ^               \
     BIT(n, 8, 0x8ad958cfu) ^ BIT(n, 16, 0x105ec76fu) ^ BIT(n, 32, 0x20bd8edeu) ^             \
     BIT(n, 64, 0x417b1dbcu) ^ BIT(n, 128, 0x82f63b78u))
#define FOUR(n) ONE(n), ONE((n) + 1), ONE((n) + 2), ONE((n) + 3)
#define SIXTEEN(n) FOUR(n), FOUR((n) + 4), FOUR((n) + 8), FOUR((n) + 12)
#define SIXTY_FOUR(n) SIXTEEN(n), SIXTEEN((n) + 16), SIXTEEN((n) + 32), SIXTEEN((n) + 48)

static const uint32_t remainders[256] = {
    SIXTY_FOUR(0), SIXTY_FOUR(64), SIXTY_FOUR(128), SIXTY_FOUR(192),
};

uint32_t crc32c_by_table(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    crc = ~crc;
    for (size_t i = 0; i < bytes; i++) crc = crc >> 8 ^ remainders[(crc ^ byte[i]) & 0xff];
    return ~crc;
}

#ifdef __x86_64__
#include <nmmintrin.h>

__attribute__((target("sse4.2")))
static uint32_t crc32c_by_instruction(uint32_t crc, const void *data, size_t bytes)
{
    const unsigned char *byte = data;
    uint64_t state = ~crc;
    for (; bytes >= 8; bytes -= 8, byte += 8) {
        uint64_t word;
        memcpy(&word, byte, 8);
        state = _mm_crc32_u64(state, word);
    }
    for (; bytes > 0; bytes--, byte++) state = _mm_crc32_u8((uint32_t)state, *byte);
    return ~(uint32_t)state;
}

uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    if (__builtin_cpu_supports("sse4.2")) return crc32c_by_instruction(crc, data, bytes);
    return crc32c_by_table(crc, data, bytes);
}
#else
uint32_t crc32c(uint32_t crc, const void *data, size_t bytes)
{
    return crc32c_by_table(crc, data, bytes);
}
#endif
