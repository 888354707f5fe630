/* pool_maxima.cuh: the maximum of a window and its position, computed by one thread for neighbouring
 * channels. */
#pragma once

#include "kernels/pool/pool.cuh"

/* The maxima so far of neighbouring channels, and their numbers in the window. The first of equals stays; a
 * NaN takes over, the last of several. */
template <class T, class N, int width> struct maxima {
    using input = chunk<T, width>;
    float value[width];
    int number[width];

    __device__ void start(int first)
    {
#pragma unroll
        for (int e = 0; e < width; e++) value[e] = -INFINITY, number[e] = first;
    }
    __device__ static void outside(input &x)
    {
#pragma unroll
        for (int e = 0; e < width; e++) x.at[e] = from_float<T>(-INFINITY);
    }
    __device__ void take(const input &x, int at)
    {
#pragma unroll
        for (int e = 0; e < width; e++) {
            float here = to_float(x.at[e]);
            bool take = here > value[e] || here != here;
            value[e] = take ? here : value[e];
            number[e] = take ? at : number[e];
        }
    }
    __device__ void relu()
    {
#pragma unroll
        for (int e = 0; e < width; e++)
            if (value[e] <= 0) value[e] = 0, number[e] = POOL_NOWHERE;
    }
    __device__ bool sure() { return true; }
    __device__ void store(T *y, N *numbers) const
    {
        chunk<T, width> values;
        chunk<N, width> places;
#pragma unroll
        for (int e = 0; e < width; e++) values.at[e] = from_float<T>(value[e]), places.at[e] = (N)number[e];
        *(chunk<T, width> *)y = values;
        if (numbers) *(chunk<N, width> *)numbers = places;
    }
};

template <class T> struct pair_of;
template <> struct pair_of<__half> {
    using type = __half2;
    static constexpr uint32_t infinities = 0xfc00fc00u;    /* negative */
};
template <> struct pair_of<__nv_bfloat16> {
    using type = __nv_bfloat162;
    static constexpr uint32_t infinities = 0xff80ff80u;
};

/* Maxima of pairs of 16-bit numbers, a third of the instructions. A NaN gets in, but its place does not. */
template <class T> struct paired_maxima {
    using pair = typename pair_of<T>::type;
    static constexpr int pairs = pack<T>::count / 2;
    using input = chunk<uint32_t, pairs>;
    input value, number;

    __device__ static pair &as_pair(uint32_t &word) { return reinterpret_cast<pair &>(word); }
    __device__ static uint32_t as_word(pair two) { return reinterpret_cast<uint32_t &>(two); }

    __device__ static void outside(input &x)
    {
#pragma unroll
        for (int p = 0; p < pairs; p++) x.at[p] = pair_of<T>::infinities;
    }
    __device__ void start(int first)
    {
        outside(value);
#pragma unroll
        for (int p = 0; p < pairs; p++) number.at[p] = (uint32_t)first * 0x10001u;
    }
    __device__ void take(input x, int at)
    {
        uint32_t here = (uint32_t)at * 0x10001u;
#pragma unroll
        for (int p = 0; p < pairs; p++) {
            uint32_t greater = __hgt2_mask(as_pair(x.at[p]), as_pair(value.at[p]));
            value.at[p] = as_word(__hmax2_nan(as_pair(value.at[p]), as_pair(x.at[p])));
            number.at[p] = (greater & here) | (~greater & number.at[p]);
        }
    }
    __device__ void relu()
    {
#pragma unroll
        for (int p = 0; p < pairs; p++) {
            uint32_t zero = 0, none = __hle2_mask(as_pair(value.at[p]), as_pair(zero));
            value.at[p] &= ~none;
            number.at[p] = (number.at[p] & ~none) | (none & POOL_NOWHERE * 0x10001u);
        }
    }
    __device__ bool sure()
    {
        bool sure = true;
#pragma unroll
        for (int p = 0; p < pairs; p++) sure = sure && __hbeq2(as_pair(value.at[p]), as_pair(value.at[p]));
        return sure;
    }
    __device__ void store(T *y, uint8_t *numbers) const
    {
        *(input *)y = value;
        if (!numbers) return;
        chunk<uint32_t, pairs / 2> places;
#pragma unroll
        for (int p = 0; p < pairs / 2; p++)
            places.at[p] = __byte_perm(number.at[2 * p], number.at[2 * p + 1], 0x6420);
        *(chunk<uint32_t, pairs / 2> *)numbers = places;
    }
};

__device__ static inline bool within(int at, int count) { return (unsigned)at < (unsigned)count; }

/* The numbers of neighbouring channels; `none` are no windows' numbers. */
template <class N, int width> struct positions {
    int number[width];
    __device__ void none()
    {
#pragma unroll
        for (int e = 0; e < width; e++) number[e] = -1;
    }
    __device__ void load(const N *from)
    {
        chunk<N, width> got = *(const chunk<N, width> *)from;
#pragma unroll
        for (int e = 0; e < width; e++) number[e] = got.at[e];
    }
    __device__ bool is(int e, int mine) const { return number[e] == mine; }
};
template <int words> struct packed_positions {
    chunk<uint32_t, words> word;
    __device__ void none()
    {
#pragma unroll
        for (int k = 0; k < words; k++) word.at[k] = ~0u;
    }
    __device__ void load(const uint8_t *from) { word = *(const chunk<uint32_t, words> *)from; }
    __device__ bool is(int e, int mine) const
    {
        return ((word.at[e / 4] ^ mine * 0x01010101u) & 0xffu << 8 * (e % 4)) == 0;
    }
};
template <> struct positions<uint8_t, 4> : packed_positions<1> {};
template <> struct positions<uint8_t, 8> : packed_positions<2> {};
