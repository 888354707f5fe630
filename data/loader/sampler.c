#include "data/loader/sampler.h"

#include <assert.h>

#include "base/random.h"

/* Element i of the permutation of [0, count) that these random numbers name. */
static int64_t permute(struct random random, int64_t count, int64_t i)
{
    int bits = 2;
    while (bits < 62 && (int64_t)1 << bits < count) bits++;
    int low_bits = bits / 2, high_bits = bits - low_bits;
    uint64_t low_mask = ((uint64_t)1 << low_bits) - 1, high_mask = ((uint64_t)1 << high_bits) - 1;
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

int64_t sampler_permute(uint64_t seed, uint64_t epoch, int64_t count, int64_t i)
{
    return permute(random_open(seed, PURPOSE_SHUFFLE, epoch, 0), count, i);
}

struct draw sampler_balance(uint64_t seed, uint64_t epoch, const struct by_class *by, int64_t i)
{
    int64_t class = i % by->classes, turn = i / by->classes, first = by->begins[class];
    int64_t images = by->begins[class + 1] - first, pass = turn / images;
    struct random random = random_open(seed, PURPOSE_BALANCE, epoch, (uint64_t)pass << 20 | (uint64_t)class);
    return (struct draw){by->images[first + permute(random, images, turn % images)], pass};
}

struct draw sampler_repeat(int repeats, int batch, int64_t number, int place)
{
    int images = (batch + repeats - 1) / repeats;
    return (struct draw){number * images + place % images, place / images};
}

struct share sampler_share(int batch, int ranks, int rank)
{
    assert(ranks > 0 && rank >= 0 && rank < ranks);
    int first = (int)((int64_t)batch * rank / ranks), end = (int)((int64_t)batch * (rank + 1) / ranks);
    return (struct share){.first = first, .count = end - first};
}
