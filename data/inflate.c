#include "data/inflate.h"

#include <string.h>
#include <zlib.h>              /* adler32 */

#include "base/machine.h"

#define LENGTH_MAX 15          /* bits of a code */
#define LITERALS 288
#define DISTANCES 32
/* Bits that are looked up at once. Longer codes, which are rare, are found bit by bit. */
#define LOOK 10

#define SYMBOL_END 256

/* A code; the bits of its words come in from the lowest one up. */
struct code {
    uint16_t look[1 << LOOK];  /* symbol << 4 | length; 0: longer than that, or no code */
    uint16_t count[LENGTH_MAX + 1];
    uint16_t symbols[LITERALS];        /* in order of their words */
};

struct state {
    const uint8_t *at, *end;
    uint64_t bits;             /* what comes next, from the lowest bit up */
    int count;                 /* of them */
    int missing;               /* zeros after the end that went into them */
    uint8_t *out, *begin, *out_end;
    struct code literal, distance;
};

/* At least 56 bits. What is read beyond `count` is read again, to the same bits. */
INLINE void refill(struct state *state)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (state->end - state->at >= 8) {
        uint64_t eight;
        memcpy(&eight, state->at, 8);
        state->bits |= eight << state->count;
        state->at += (63 - state->count) >> 3;
        state->count |= 56;
        return;
    }
#endif
    for (; state->count < 56; state->count += 8) {
        if (state->at < state->end)
            state->bits |= (uint64_t)*state->at++ << state->count;
        else
            state->missing += 8;
    }
}

INLINE uint32_t take(struct state *state, int count)
{
    uint32_t value = (uint32_t)(state->bits & (((uint64_t)1 << count) - 1));
    state->bits >>= count;
    state->count -= count;
    return value;
}

/* Codes */

static uint32_t reversed(uint32_t word, int length)
{
    uint32_t other = 0;
    for (int i = 0; i < length; i++) other |= (word >> i & 1) << (length - 1 - i);
    return other;
}

/* Of the lengths of its words by symbol, 0: none. False: there are more words than bits can tell apart. */
static bool make_code(struct code *code, const uint8_t *lengths, int symbols)
{
    uint16_t place[LENGTH_MAX + 1] = {0};
    uint32_t word[LENGTH_MAX + 1] = {0};
    int left = 1;
    memset(code->count, 0, sizeof code->count);
    memset(code->look, 0, sizeof code->look);
    for (int i = 0; i < symbols; i++) code->count[lengths[i]]++;
    code->count[0] = 0;
    for (int length = 1; length <= LENGTH_MAX; length++) {
        left = 2 * left - code->count[length];
        if (left < 0) return false;
        word[length] = (word[length - 1] + code->count[length - 1]) << 1;
        place[length] = (uint16_t)(place[length - 1] + code->count[length - 1]);
    }
    for (int i = 0; i < symbols; i++) {
        int length = lengths[i];
        if (length == 0) continue;
        code->symbols[place[length]++] = (uint16_t)i;
        uint32_t first = word[length]++;
        if (length > LOOK) continue;
        for (uint32_t at = reversed(first, length); at < 1 << LOOK; at += 1u << length)
            code->look[at] = (uint16_t)(i << 4 | length);
    }
    return true;
}

/* A symbol << 4 | length of its word; 0: there is none. */
static __attribute__((noinline)) uint32_t find_long(const struct code *code, uint64_t bits)
{
    int word = 0, first = 0, place = 0;
    for (int length = 1; length <= LENGTH_MAX; length++, bits >>= 1) {
        word |= (int)(bits & 1);
        if (word - first < code->count[length])
            return (uint32_t)code->symbols[place + word - first] << 4 | (uint32_t)length;
        place += code->count[length];
        first = (first + code->count[length]) << 1;
        word <<= 1;
    }
    return 0;
}

INLINE uint32_t find(const struct code *code, uint64_t bits)
{
    uint32_t found = code->look[bits & ((1 << LOOK) - 1)];
    return found ? found : find_long(code, bits);
}

/* RFC 1951, 3.2.7: the lengths of both codes, themselves coded. */
static bool read_codes(struct state *state)
{
    static const uint8_t order[19] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[LITERALS + DISTANCES + 138] = {0}, first[19] = {0};
    refill(state);
    int literals = 257 + (int)take(state, 5), distances = 1 + (int)take(state, 5);
    int count = 4 + (int)take(state, 4);
    if (literals > 286 || distances > 30) return false;
    for (int i = 0; i < count; i++) {
        refill(state);
        first[order[i]] = (uint8_t)take(state, 3);
    }
    if (!make_code(&state->literal, first, 19)) return false;
    for (int i = 0; i < literals + distances;) {
        refill(state);
        uint32_t found = find(&state->literal, state->bits), symbol = found >> 4;
        if (found == 0 || (symbol == 16 && i == 0) || state->missing > state->count) return false;
        take(state, (int)(found & 15));
        uint8_t length = symbol < 16 ? (uint8_t)symbol : symbol == 16 ? lengths[i - 1] : 0;
        int times = symbol < 16 ? 1 : symbol == 16 ? 3 + (int)take(state, 2)
                    : symbol == 17 ? 3 + (int)take(state, 3) : 11 + (int)take(state, 7);
        memset(lengths + i, length, (size_t)times);
        i += times;
        if (i > literals + distances) return false;
    }
    return make_code(&state->literal, lengths, literals) &&
           make_code(&state->distance, lengths + literals, distances);
}

/* 3.2.6: the codes that need not be told. */
static bool take_fixed_codes(struct state *state)
{
    uint8_t lengths[LITERALS];
    for (int i = 0; i < LITERALS; i++) lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    if (!make_code(&state->literal, lengths, LITERALS)) return false;
    memset(lengths, 5, DISTANCES);
    return make_code(&state->distance, lengths, DISTANCES);
}

/* Blocks */

/* A copy of what was made before; the window holds all of its bits. */
static bool copy_match(struct state *state, uint32_t symbol)
{
    static const uint16_t length_base[29] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                             31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
    static const uint8_t length_more[29] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2,
                                            2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
    static const uint16_t distance_base[30] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,
                                               33,  49,  65,  97,  129, 193,  257,  385,  513,  769,
                                               1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
    if (symbol > 285) return false;
    size_t length = length_base[symbol - 257] + take(state, length_more[symbol - 257]);
    uint32_t found = find(&state->distance, state->bits), code = found >> 4;
    if (found == 0 || code > 29) return false;
    take(state, (int)(found & 15));
    size_t distance = distance_base[code] + take(state, code < 4 ? 0 : (int)code / 2 - 1);
    if (distance > (size_t)(state->out - state->begin) || length > (size_t)(state->out_end - state->out))
        return false;
    const uint8_t *from = state->out - distance;
    if (distance >= length)
        memcpy(state->out, from, length);
    else
        for (size_t i = 0; i < length; i++) state->out[i] = from[i];
    state->out += length;
    return true;
}

/* Literals, until something else comes, or the end of either side is near. */
INLINE void copy_literals(struct state *state)
{
    while (state->out_end - state->out >= 4 && state->end - state->at >= 8) {
        uint64_t bits;
        int count, copied = 0;
        refill(state);
        bits = state->bits, count = state->count;
        for (; copied < 4; copied++) {
            uint32_t found = state->literal.look[bits & ((1 << LOOK) - 1)];
            if (found == 0 || found >> 4 > 255) break;
            state->out[copied] = (uint8_t)(found >> 4);
            bits >>= found & 15;
            count -= (int)(found & 15);
        }
        state->out += copied;
        state->bits = bits, state->count = count;
        if (copied < 4) return;
    }
}

EVERY_MACHINE static bool read_block(struct state *state)
{
    for (;;) {
        copy_literals(state);
        refill(state);
        uint32_t found = find(&state->literal, state->bits), symbol = found >> 4;
        if (found == 0 || state->missing > state->count) return false;
        if (symbol < SYMBOL_END && state->out == state->out_end) return false;
        take(state, (int)(found & 15));
        if (symbol < SYMBOL_END)
            *state->out++ = (uint8_t)symbol;
        else if (symbol == SYMBOL_END)
            return true;
        else if (!copy_match(state, symbol))
            return false;
    }
}

/* Gives back the whole bytes that are not used yet. */
static bool unread(struct state *state)
{
    take(state, state->count & 7);
    int bytes = (state->count - state->missing) / 8;
    if (state->missing > state->count) return false;
    state->at -= bytes;
    state->bits = 0;
    state->count = state->missing = 0;
    return true;
}

static bool read_stored(struct state *state)
{
    if (!unread(state) || state->end - state->at < 4) return false;
    size_t length = (size_t)(state->at[0] | state->at[1] << 8);
    bool good = (length ^ 0xffff) == (size_t)(state->at[2] | state->at[3] << 8);
    state->at += 4;
    if (!good || length > (size_t)(state->end - state->at) || length > (size_t)(state->out_end - state->out))
        return false;
    memcpy(state->out, state->at, length);
    state->out += length;
    state->at += length;
    return true;
}

static bool read_blocks(struct state *state)
{
    for (bool last = false; !last;) {
        refill(state);
        last = take(state, 1);
        bool good = false;
        switch (take(state, 2)) {
        case 0: good = read_stored(state); break;
        case 1: good = take_fixed_codes(state) && read_block(state); break;
        case 2: good = read_codes(state) && read_block(state); break;
        }
        if (!good) return false;
    }
    return unread(state);
}

bool inflate_whole(const uint8_t *stream, size_t bytes, uint8_t *out, size_t room)
{
    struct state state;
    bool plain = bytes >= 2 && (stream[0] & 15) == 8 && stream[0] >> 4 < 8 &&
                 (stream[0] << 8 | stream[1]) % 31 == 0 && !(stream[1] & 0x20);
    if (!plain) return false;
    state.at = stream + 2;
    state.end = stream + bytes;
    state.bits = 0;
    state.count = state.missing = 0;
    state.out = state.begin = out;
    state.out_end = out + room;
    if (!read_blocks(&state) || state.out != state.out_end || state.end - state.at < 4) return false;
    const uint8_t *sum = state.at;
    uint32_t wanted = (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3];
    return adler32_z(1, out, room) == wanted;
}
