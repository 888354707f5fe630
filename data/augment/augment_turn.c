/* augment_turn.c: turns the bytes of a crop by bilinear interpolation (turning.h), fast where all four pixels
 * of a place are there. */
#include <string.h>

#include "base/machine.h"
#include "data/augment/augment.h"

#define FOUR double __attribute__((vector_size(32)))
#define FOUR_INTS int32_t __attribute__((vector_size(16)))
#define FOUR_BYTES uint8_t __attribute__((vector_size(4)))

/* Pixels of a row that are computed at once. */
#define TURN_BLOCK 64

/* The upper left one of the four pixels of each place, from the pixels' first row and column on, and the
 * shares of the lower ones and of those on the right. */
struct turn_block {
    double down[TURN_BLOCK], across[TURN_BLOCK];
    int32_t y[TURN_BLOCK], x[TURN_BLOCK];
};

static EVERY_MACHINE(void, turn_places, (const struct turning *turning, int y, int x,
                     struct turn_block *block), (turning, y, x, block))
{
    const struct turning own = *turning;
#pragma omp simd
    for (int i = 0; i < TURN_BLOCK; i++) {
        struct place place = turning_place(&own, y, x + i);
        double above = floor(place.y - 0.5), left = floor(place.x - 0.5);
        block->down[i] = place.y - 0.5 - above;
        block->across[i] = place.x - 0.5 - left;
        block->y[i] = (int32_t)above - own.seen.y;
        block->x[i] = (int32_t)left - own.seen.x;
    }
}

/* sum += weight * four bytes; */
INLINE void add_four(const uint8_t *from, double weight, FOUR *sum)
{
    FOUR_BYTES bytes;
    memcpy(&bytes, from, sizeof bytes);
    *sum += weight * __builtin_convertvector(__builtin_convertvector(bytes, FOUR_INTS), FOUR);
}

/* Up to four channels of a pixel; what is read beyond them is not used. */
INLINE void turn_four(const uint8_t *top, const uint8_t *bottom, int c, double down, double across,
                      uint8_t *out)
{
    FOUR sum = {0.5, 0.5, 0.5, 0.5};
    add_four(top, (1 - down) * (1 - across), &sum);
    add_four(top + c, (1 - down) * across, &sum);
    add_four(bottom, down * (1 - across), &sum);
    add_four(bottom + c, down * across, &sum);
    FOUR_BYTES bytes = __builtin_convertvector(__builtin_convertvector(sum, FOUR_INTS), FOUR_BYTES);
    memcpy(out, &bytes, (size_t)c);
}

INLINE void turn_pixels(const struct turning *turning, const struct turn_block *block, const uint8_t *pixels,
                        int c, int y, int x, int count, uint8_t *out)
{
    const struct box *seen = &turning->seen;
    int64_t end = (int64_t)seen->h * seen->w * c, row = (int64_t)seen->w * c;
    for (int i = 0; i < count; i++, out += c) {
        int top = block->y[i], left = block->x[i];
        int64_t at = top * row + (int64_t)left * c;
        if (c <= 4 && top >= 0 && top < seen->h - 1 && left >= 0 && left < seen->w - 1 &&
            at + row + c + 4 <= end) {
            turn_four(pixels + at, pixels + at + row, c, block->down[i], block->across[i], out);
        } else {
            struct turning_taps taps = turning_taps_at(turning, y, x + i);
            for (int k = 0; k < c; k++) out[k] = turning_byte(&taps, pixels, c, k);
        }
    }
}

static EVERY_MACHINE(void, turn_block, (const struct turning *turning, const struct turn_block *block,
                     const uint8_t *pixels, int c, int y, int x, int count, uint8_t *out),
                     (turning, block, pixels, c, y, x, count, out))
{
    if (c == 3) turn_pixels(turning, block, pixels, 3, y, x, count, out);
    else if (c == 1) turn_pixels(turning, block, pixels, 1, y, x, count, out);
    else turn_pixels(turning, block, pixels, c, y, x, count, out);
}

void augment_turn(const struct turning *turning, const uint8_t *pixels, int c, uint8_t *out)
{
    int h = turning->window.h, w = turning->window.w;
    struct turn_block block;
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x += TURN_BLOCK) {
            int count = w - x < TURN_BLOCK ? w - x : TURN_BLOCK;
            turn_places(turning, y, x, &block);
            turn_block(turning, &block, pixels, c, y, x, count, out);
            out += (size_t)count * (size_t)c;
        }
}
