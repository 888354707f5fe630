#include "data/sampler.h"

#include <assert.h>

#include "base/random.h"

int64_t sampler_permute(uint64_t seed, uint64_t epoch, int64_t count, int64_t i)
{
    int bits = 2;
    while (bits < 62 && (int64_t)1 << bits < count) bits++;
    int low_bits = bits / 2, high_bits = bits - low_bits;
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1, high_mask = ((uint64_t)1 << high_bits) - 1;
    struct random random = random_open(seed, PURPOSE_SHUFFLE, epoch, 0);
    uint64_t value = (uint64_t)i;
    do {
        uint64_t low = value & low_mask, high = value >> low_bits;
        for (uint64_t round = 0; round < 6; round++) {
            uint32_t words[4];
            random_words(&random, round << 32 | (round % 2 ? high : low), words);
            if (round % 2)
                low ^= words[0] & low_mask;
            else
                high ^= words[0] & high_mask;
        }
        value = high << low_bits | low;
    } while (value >= (uint64_t)count);
    return (int64_t)value;
}

struct share sampler_share(int batch, int ranks, int rank)
{
    assert(ranks > 0 && rank >= 0 && rank < ranks);
    int first = (int)((int64_t)batch * rank / ranks), end = (int)((int64_t)batch * (rank + 1) / ranks);
    return (struct share){.first = first, .count = end - first};
}
