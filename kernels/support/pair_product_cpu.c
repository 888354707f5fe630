#include "kernels/support/pair_product.h"

#include <stddef.h>

#include "kernels/support/onednn.h"

#if defined(__x86_64__)
#include <immintrin.h>

#define PACKING "avx512f,avx512bw,avx512vl"
#define INLINE_PACKING __attribute__((target(PACKING), always_inline)) static inline

/* Element i of both lines, for each i: the low and the high half of a lane. */
INLINE_PACKING __m512i pair(const struct pair_lines *from, int line, __mmask16 mask)
{
    const uint16_t *low = from->lines[line], *high = from->lines[line + 1];
    __m256i zero = _mm256_setzero_si256();
    __m256i a = low ? _mm256_maskz_loadu_epi16(mask, low + from->first) : zero;
    __m256i b = high ? _mm256_maskz_loadu_epi16(mask, high + from->first) : zero;
    return _mm512_or_si512(_mm512_cvtepu16_epi32(a), _mm512_slli_epi32(_mm512_cvtepu16_epi32(b), 16));
}

static __mmask16 mask_of(const struct pair_lines *from)
{
    if (from->count <= 0) return 0;
    return (__mmask16)(from->count < PAIR_HALF ? (1u << from->count) - 1 : 0xffff);
}

__attribute__((target(PACKING))) static void interleave(const struct pair_lines *from, uint16_t *to)
{
    __mmask16 mask = mask_of(from);
    for (int i = 0; i < PAIR_HALF; i++, to += 2 * PAIR_HALF)
        _mm512_storeu_si512(to, pair(from, 2 * i, mask));
}

/* The 16x16 lanes of m, transposed: in blocks of 1, 2, 4 and 8 lanes. */
INLINE_PACKING void lanes_transpose(__m512i m[PAIR_HALF])
{
    __m512i t[PAIR_HALF];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
    }
    for (int i = 0; i < 16; i += 4)
        for (int j = 0; j < 2; j++) {
            m[i + 2 * j] = _mm512_unpacklo_epi64(t[i + j], t[i + j + 2]);
            m[i + 2 * j + 1] = _mm512_unpackhi_epi64(t[i + j], t[i + j + 2]);
        }
    for (int i = 0; i < 16; i += 8)
        for (int j = 0; j < 4; j++) {
            t[i + j] = _mm512_shuffle_i32x4(m[i + j], m[i + j + 4], 0x88);
            t[i + j + 4] = _mm512_shuffle_i32x4(m[i + j], m[i + j + 4], 0xdd);
        }
    for (int j = 0; j < 8; j++) {
        m[j] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0x88);
        m[j + 8] = _mm512_shuffle_i32x4(t[j], t[j + 8], 0xdd);
    }
}

__attribute__((target(PACKING))) static void transpose(const struct pair_lines *from, uint16_t *to,
                                                       int64_t row)
{
    __mmask16 mask = mask_of(from);
    __m512i lanes[PAIR_HALF];
    for (int i = 0; i < PAIR_HALF; i++) lanes[i] = pair(from, 2 * i, mask);
    lanes_transpose(lanes);
    for (int i = 0; i < PAIR_HALF; i++) _mm512_storeu_si512(to + i * row, lanes[i]);
}

/* y in tiles 0 to 3, a in 4 and 5, b in 6 and 7: 16 rows of 64 bytes each. */

#define TILES __attribute__((target("amx-tile,amx-bf16")))
TILES static void tiles_begin(void)
{
    static const struct {
        uint8_t palette, start_row, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } config = {
        .palette = 1,
        .bytes = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&config);
}

TILES static void tiles_end(void)
{
    _tile_release();
}

TILES static void tiles_multiply(const struct pair_product *p)
{
    enum { PITCH = PAIR_BLOCK * sizeof(float), ROW_BYTES = 2 * PAIR_HALF * sizeof(uint16_t) };
    float *below = p->y + PAIR_HALF * PAIR_BLOCK;
    if (p->add) {
        _tile_loadd(0, p->y, PITCH);
        _tile_loadd(1, p->y + PAIR_HALF, PITCH);
        _tile_loadd(2, below, PITCH);
        _tile_loadd(3, below + PAIR_HALF, PITCH);
    } else {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
    }
    const uint16_t *a = p->a, *b = p->b;
    for (int64_t d = 0; d < p->depth; d += PAIR_DEPTH, a += PAIR_DEPTH, b += PAIR_DEPTH * PAIR_HALF) {
        _tile_loadd(4, a, p->row * 2);
        _tile_loadd(6, b, ROW_BYTES);
        _tile_dpbf16ps(0, 4, 6);
        _tile_loadd(7, b + p->half, ROW_BYTES);
        _tile_dpbf16ps(1, 4, 7);
        _tile_loadd(5, a + PAIR_HALF * p->row, p->row * 2);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    _tile_stored(0, p->y, PITCH);
    _tile_stored(1, p->y + PAIR_HALF, PITCH);
    _tile_stored(2, below, PITCH);
    _tile_stored(3, below + PAIR_HALF, PITCH);
}

static const struct pair_code tiles = {tiles_begin, tiles_end, tiles_multiply, transpose, interleave};
#endif

const struct pair_code *pair_code_here(void)
{
#if defined(__x86_64__)
    if (onednn_has_amx()) return &tiles;
#endif
    return NULL;
}
