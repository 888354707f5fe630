#include "random.h"

#include <math.h>

#include "base/philox.h"

struct random random_open(uint64_t seed, enum purpose purpose, uint64_t a, uint64_t b)
{
    return philox_open(seed, purpose, a, b);
}

void random_words(const struct random *random, uint64_t draw, uint32_t words[4])
{
    philox_words(random, draw, words);
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

/* Lemire's multiplication, with rejection to avoid bias. */
double random_between(struct random *random, double low, double high)
{
    return low + (high - low) * random_uniform(random);
}

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
