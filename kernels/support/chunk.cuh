/* chunk.cuh: neighbouring elements that one thread moves at once, and the mapping of blocks to channels. */
#pragma once

#include "kernels/support/cuda.cuh"

/* Aligned to its size. */
template <class T, int width> struct alignas(width * sizeof(T)) chunk {
    T at[width];
};

/* Calls work(T(), width) with the widest chunk of a floating dtype that divides `channels`: 16 bytes or one
 * element. The width is an integral constant. */
template <int value> struct constant {
    static constexpr int number = value;
};
template <class Work> static inline enum status with_chunk(enum dtype dtype, int64_t channels, Work work)
{
    return with_type(dtype, [&](auto type) {
        constexpr int width = pack<decltype(type)>::count;
        return channels % width == 0 ? work(type, constant<width>()) : work(type, constant<1>());
    });
}

/* Words of 16, 8, 4 or 2 bytes, for code that only moves them: calls work(W()) with the widest that divides
 * `bytes`, which is even. */
template <class Work> static inline enum status with_word(size_t bytes, Work work)
{
    if (bytes % 16 == 0) return work(uint4());
    if (bytes % 8 == 0) return work(uint2());
    if (bytes % 4 == 0) return work(uint32_t());
    return work(uint16_t());
}

/* The smallest power of two of at least `count`, but at most `most`. */
static inline int power_up(int64_t count, int most)
{
    int power = 1;
    while (power < most && power < count) power *= 2;
    return power;
}
