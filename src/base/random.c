#include "random.h"

#include <math.h>

static inline uint32_t high_half(uint64_t product) { return (uint32_t)(product >> 32); }

/* Ten rounds, constants of the paper's table 2. */
static void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = high_half(p1) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = high_half(p0) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* The stream's name is longer than the counter words left for it, so it is hashed by Philox
 * itself: one block under the seed gives the key, the next the upper counter words. */
struct random random_open(uint64_t seed, enum purpose purpose, uint64_t a, uint64_t b)
{
    uint32_t seed_key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t first[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)purpose, 0x616d7074u};
    uint32_t block[4];
    philox(seed_key, first, block);
    uint32_t second[4] = {(uint32_t)b, (uint32_t)(b >> 32), block[2], block[3]};
    uint32_t name[4];
    philox(block, second, name);
    return (struct random){.key = {name[0], name[1]}, .counter = {name[2], name[3]}};
}

void random_words(const struct random *random, uint64_t draw, uint32_t words[4])
{
    uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), random->counter[0], random->counter[1]};
    philox(random->key, counter, words);
}

uint32_t random_next(struct random *random)
{
    uint32_t words[4];
    random_words(random, random->next >> 2, words);
    return words[random->next++ & 3];
}

double random_uniform(struct random *random)
{
    return random_next(random) * 0x1p-32;
}

/* Lemire's multiplication, redrawn where it would favour small results. */
uint32_t random_below(struct random *random, uint32_t limit)
{
    uint64_t product = (uint64_t)random_next(random) * limit;
    if ((uint32_t)product < limit) {
        uint32_t threshold = -limit % limit;
        while ((uint32_t)product < threshold) product = (uint64_t)random_next(random) * limit;
    }
    return (uint32_t)(product >> 32);
}

double random_normal(struct random *random)
{
    double radius = sqrt(-2 * log1p(-random_uniform(random)));
    double angle = 6.283185307179586477 * random_uniform(random);
    return radius * cos(angle);
}
