#include "data/image_jpeg_bits.h"

#include <string.h>

#include <jerror.h>

/* The interface between libjpeg-turbo's parts is not for programs, but it has been the same since there is a
 * libjpeg-turbo; other libjpegs have another. */
#if defined(LIBJPEG_TURBO_VERSION) && defined(__has_include)
#if __has_include(<jpegint.h>)
#define TAKES_OVER
#endif
#endif

#ifndef TAKES_OVER

void bits_take_over(j_decompress_ptr jpeg, int from, int count) { (void)jpeg, (void)from, (void)count; }

#else

#include <jpegint.h>

#include "base/machine.h"

/* Where the coefficients of the zigzag order lie. */
static const uint8_t natural[64] = {
    0,  1,  8,  16, 9,  2,  3,  10, 17, 24, 32, 25, 18, 11, 4,  5,
    12, 19, 26, 33, 40, 48, 41, 34, 27, 20, 13, 6,  7,  14, 21, 28,
    35, 42, 49, 56, 57, 50, 43, 36, 29, 22, 15, 23, 30, 37, 44, 51,
    58, 59, 52, 45, 38, 31, 39, 46, 53, 60, 61, 54, 47, 55, 62, 63,
};

/* Tables */

/* The value that `size` bits stand for: those that begin with 0 are negative. */
INLINE int extended(int bits, int size)
{
    return bits < 1 << (size - 1) ? bits - (1 << size) + 1 : bits;
}

INLINE uint32_t entry(int value, int run, int length)
{
    return (uint32_t)value << 16 | (uint32_t)run << 8 | (uint32_t)length;
}

INLINE int length_of(uint32_t entry) { return (int)(entry & 0xff); }
INLINE int run_of(uint32_t entry) { return (int)(entry >> 8 & 0xff); }

/* The zeros before a symbol's value; without one it is 16 zeros, or ends the block. */
INLINE int zeros_before(int symbol) { return symbol & 15 || symbol == 0xf0 ? symbol >> 4 : BITS_BEYOND; }

/* All patterns that begin with a code, which are next to each other. */
static void fill(uint32_t *one, int length, int symbol, bool ac)
{
    int spare = BITS_LOOK - length, size = ac ? symbol & 15 : symbol;
    if (size > spare) {
        for (int i = 0; i < 1 << spare; i++) one[i] = entry(length << 8 | symbol, BITS_BEYOND, 0);
        return;
    }
    for (int bits = 0; bits < 1 << size; bits++) {
        uint32_t same = entry(size ? extended(bits, size) : 0, ac ? zeros_before(symbol) : 0, length + size);
        for (int i = 0; i < 1 << (spare - size); i++) *one++ = same;
    }
}

/* Follows a pattern as far as coefficients are whole. */
static uint16_t follow(const uint32_t *one, uint32_t pattern)
{
    int length = 0, lead = 0;
    for (;;) {
        uint32_t next = one[pattern << length & (BITS_PATTERNS - 1)];
        bool whole = length_of(next) > 0 && length + length_of(next) <= BITS_LOOK;
        if (!whole || (run_of(next) < BITS_BEYOND && lead + run_of(next) >= 63)) break;
        length += length_of(next);
        if (run_of(next) == BITS_BEYOND) return (uint16_t)((lead + BITS_BEYOND) << 8 | length);
        lead += run_of(next) + 1;
    }
    return (uint16_t)((length ? lead : BITS_BEYOND - 1) << 8 | length);
}

/* libjpeg has refused what is no code by now. */
static void make_code(struct bits_code *code, const JHUFF_TBL *table, bool ac)
{
    int pattern = 0, place = 0;
    code->all = table->huffval;
    for (int length = 1; length <= 16; length++, pattern <<= 1) {
        code->offset[length] = place - pattern;
        for (int i = 0; i < table->bits[length]; i++, pattern++, place++)
            if (length <= BITS_LOOK)
                fill(code->one + (pattern << (BITS_LOOK - length)), length, table->huffval[place], ac);
        code->after[length] = pattern << (16 - length);
    }
    for (int i = code->after[BITS_LOOK] >> (16 - BITS_LOOK); i < BITS_PATTERNS; i++)
        code->one[i] = entry(0, BITS_BEYOND, 0);
    for (uint32_t i = 0; ac && i < BITS_PATTERNS; i++) code->many[i] = follow(code->one, i);
}

/* Bits */

/* Byte by byte, past the zeros that are stuffed behind 0xff; at a marker or the end, zeros are made up. */
static __attribute__((noinline)) void refill_slowly(struct bits *bits)
{
    struct bits_window *window = &bits->window;
    for (; window->count < 56; window->count += 8) {
        uint64_t byte = 0;
        const uint8_t *at = window->at;
        while (at < bits->end && *at == 0xff) at++;
        bool there = at < bits->end, plain = there && at == window->at;
        bool stuffed = there && !plain && *at == 0;
        if (plain || stuffed) {
            byte = plain ? *at : 0xff;
            window->at = at + 1;
        } else {
            bits->made_up += 8;
        }
        window->bits |= byte << (56 - window->count);
    }
}

/* At least 56 bits. Eight bytes at once where none is 0xff: what is read beyond `count` is read again, to the
 * same bits. */
INLINE struct bits_window refilled(struct bits *bits, struct bits_window window)
{
    uint64_t eight = ~(uint64_t)0;
    if (window.at <= bits->last_eight) memcpy(&eight, window.at, 8);
    if (__builtin_expect(((~eight - 0x0101010101010101u) & eight & 0x8080808080808080u) != 0, 0)) {
        bits->window.at = window.at, bits->window.bits = window.bits, bits->window.count = window.count;
        refill_slowly(bits);
        window.at = bits->window.at, window.bits = bits->window.bits, window.count = bits->window.count;
        return window;
    }
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    eight = __builtin_bswap64(eight);
#endif
    window.bits |= eight >> window.count;
    window.at += (63 - window.count) >> 3;
    window.count |= 56;
    return window;
}

INLINE int peek(struct bits_window window, int count) { return (int)(window.bits >> (64 - count)); }

INLINE struct bits_window past(struct bits_window window, int count)
{
    window.bits <<= count & 63;
    window.count -= count;
    return window;
}

/* The symbol whose code is longer than a pattern, and how long that is. */
static __attribute__((noinline)) int
long_symbol(j_decompress_ptr jpeg, const struct bits_code *code, int sixteen, int *length)
{
    for (*length = BITS_LOOK + 1; *length <= 16 && sixteen >= code->after[*length]; ++*length) continue;
    if (*length <= 16) return code->all[(sixteen >> (16 - *length)) + code->offset[*length]];
    WARNMS(jpeg, JWRN_HUFF_BAD_CODE);
    return 0;
}

/* What of an entry was not in its pattern, from a window that was just refilled. Its length is not 0. */
INLINE uint32_t completed(j_decompress_ptr jpeg, const struct bits_code *code, struct bits_window window,
                          uint32_t seen, bool ac)
{
    int length = (int)(seen >> 24), symbol = (int)(seen >> 16 & 0xff);
    if (length == 0) symbol = long_symbol(jpeg, code, peek(window, 16), &length);
    int size = ac ? symbol & 15 : symbol;
    int value = size ? extended(peek(past(window, length), size), size) : 0;
    return entry(value, ac ? zeros_before(symbol) : 0, length + size);
}

/* Blocks */

/* What a coefficient of the DC changes by. */
INLINE struct bits_window read_dc(j_decompress_ptr jpeg, struct bits *bits, struct bits_window window,
                                  const struct bits_code *code, int *change)
{
    window = refilled(bits, window);
    uint32_t seen = code->one[peek(window, BITS_LOOK)];
    if (length_of(seen) == 0) seen = completed(jpeg, code, window, seen, false);
    *change = (int32_t)seen >> 16;
    return past(window, length_of(seen));
}

/* Fills a block of zeros from its second coefficient on. Four patterns at a time are in the window. */
INLINE struct bits_window keep_ac(j_decompress_ptr jpeg, struct bits *bits, struct bits_window window,
                                  const struct bits_code *code, JCOEF *block)
{
    for (int k = 1; k < 64;) {
        uint32_t seen = 0;
        int whole = 0;
        window = refilled(bits, window);
#pragma GCC unroll 4
        for (; whole < 4; whole++) {
            seen = code->one[peek(window, BITS_LOOK)];
            window = past(window, length_of(seen));
            k += run_of(seen);
            if (k > 63) break;
            block[natural[k]] = (JCOEF)(seen >> 16);
            if (++k > 63) return window;
        }
        if (whole == 4) continue;
        if (k >= BITS_BEYOND && length_of(seen) == 0) {
            k -= BITS_BEYOND;
            window = refilled(bits, window);
            seen = completed(jpeg, code, window, seen, true);
            window = past(window, length_of(seen));
            k += run_of(seen);
        }
        if (k >= BITS_BEYOND) return window;
        /* A run that leads out of the block ends at its end. */
        block[natural[k < 64 ? k : 63]] = (JCOEF)(seen >> 16);
        k++;
    }
    return window;
}

/* The same for a block that nobody wants. */
INLINE struct bits_window pass_ac(j_decompress_ptr jpeg, struct bits *bits, struct bits_window window,
                                  const struct bits_code *code)
{
    for (int k = 1; k < 64;) {
        int whole = 0, led = 0;
        uint32_t seen = 0;
        window = refilled(bits, window);
#pragma GCC unroll 4
        for (; whole < 4; whole++) {
            seen = code->many[peek(window, BITS_LOOK)];
            led = k + (int)(seen >> 8);
            if (led > 63) break;
            window = past(window, length_of(seen));
            k = led;
        }
        if (whole == 4) continue;
        bool ends = length_of(seen) > 0 && led >= BITS_BEYOND && led - BITS_BEYOND < 64;
        if (ends) return past(window, length_of(seen));
        window = refilled(bits, window);
        seen = code->one[peek(window, BITS_LOOK)];
        if (length_of(seen) == 0) seen = completed(jpeg, code, window, seen, true);
        window = past(window, length_of(seen));
        k += run_of(seen) + 1;
    }
    return window;
}

/* `wanted` tells the compiler which of two loops to make. */
INLINE void read_blocks(j_decompress_ptr jpeg, struct bits *bits, JBLOCKROW *blocks, bool wanted)
{
    struct bits_window window = bits->window;
    for (int i = 0; i < jpeg->blocks_in_MCU; i++) {
        int part = jpeg->MCU_membership[i], change;
        const jpeg_component_info *component = jpeg->cur_comp_info[part];
        const struct bits_code *ac = &bits->ac[component->ac_tbl_no];
        window = read_dc(jpeg, bits, window, &bits->dc[component->dc_tbl_no], &change);
        if (__builtin_add_overflow(bits->last_dc[part], change, &bits->last_dc[part]))
            ERREXIT(jpeg, JERR_BAD_DCT_COEF);
        if (wanted) (*blocks[i])[0] = (JCOEF)bits->last_dc[part];
        window = wanted ? keep_ac(jpeg, bits, window, ac, *blocks[i]) : pass_ac(jpeg, bits, window, ac);
    }
    bits->window = window;
}

EVERY_MACHINE static void keep_blocks(j_decompress_ptr jpeg, struct bits *bits, JBLOCKROW *blocks)
{
    read_blocks(jpeg, bits, blocks, true);
}

EVERY_MACHINE static void pass_blocks(j_decompress_ptr jpeg, struct bits *bits)
{
    read_blocks(jpeg, bits, NULL, false);
}

/* libjpeg's decode_mcu: the blocks of the next MCU, zeroed before; NULL: they are not wanted. */
static boolean decode_mcu(j_decompress_ptr jpeg, JBLOCKROW *blocks)
{
    struct bits *bits = jpeg->client_data;
    bool wanted = blocks && bits->column >= bits->first && bits->column <= bits->last;
    if (++bits->column == jpeg->MCUs_per_row) bits->column = 0;
    if (wanted)
        keep_blocks(jpeg, bits, blocks);
    else
        pass_blocks(jpeg, bits);
    if (bits->made_up > bits->window.count) WARNMS(jpeg, JWRN_HIT_MARKER);
    jpeg->src->next_input_byte = bits->window.at;
    jpeg->src->bytes_in_buffer = (size_t)(bits->end - bits->window.at);
    return TRUE;
}

static bool is_ours(j_decompress_ptr jpeg)
{
    bool baseline = !jpeg->progressive_mode && !jpeg->arith_code && jpeg->data_precision == 8 &&
                    jpeg->Ss == 0 && jpeg->Se == 63 && jpeg->Ah == 0 && jpeg->Al == 0;
    if (!baseline || jpeg->restart_interval > 0 || jpeg_has_multiple_scans(jpeg)) return false;
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        const jpeg_component_info *component = jpeg->cur_comp_info[i];
        if (component->dc_tbl_no > 1 || component->ac_tbl_no > 1) return false;
        if (!jpeg->dc_huff_tbl_ptrs[component->dc_tbl_no] || !jpeg->ac_huff_tbl_ptrs[component->ac_tbl_no])
            return false;
    }
    return true;
}

static void make_codes(j_decompress_ptr jpeg, struct bits *bits)
{
    bool made[2][2] = {{false}};
    for (int i = 0; i < jpeg->comps_in_scan; i++) {
        int dc = jpeg->cur_comp_info[i]->dc_tbl_no, ac = jpeg->cur_comp_info[i]->ac_tbl_no;
        if (!made[0][dc]) make_code(&bits->dc[dc], jpeg->dc_huff_tbl_ptrs[dc], false);
        if (!made[1][ac]) make_code(&bits->ac[ac], jpeg->ac_huff_tbl_ptrs[ac], true);
        made[0][dc] = made[1][ac] = true;
    }
}

void bits_take_over(j_decompress_ptr jpeg, int from, int count)
{
    struct bits *bits = jpeg->client_data;
    if (!is_ours(jpeg)) return;
    JDIMENSION mcu = (JDIMENSION)(DCTSIZE * (jpeg->comps_in_scan > 1 ? jpeg->max_h_samp_factor : 1));
    bits->window.at = jpeg->src->next_input_byte;
    bits->end = bits->window.at + jpeg->src->bytes_in_buffer;
    bits->last_eight = bits->end - 8;
    bits->window.bits = 0;
    bits->window.count = bits->made_up = 0;
    bits->column = 0;
    memset(bits->last_dc, 0, sizeof bits->last_dc);
    make_codes(jpeg, bits);
    /* One column more on either side: what is next to the part can matter to chroma. */
    bits->first = (JDIMENSION)from / mcu > 0 ? (JDIMENSION)from / mcu - 1 : 0;
    bits->last = (JDIMENSION)(from + count - 1) / mcu + 1;
    jpeg->entropy->decode_mcu = decode_mcu;
}

#endif
