/* random.h: counter-based random numbers (Philox4x32-10): every draw is a function of its arguments.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011). */
#pragma once

#include <stdint.h>

#include "base/philox.h"

struct random random_open(uint64_t seed, enum purpose purpose, uint64_t a, uint64_t b);

/* Draw number `draw` of the stream: four independent 32-bit words. */
void random_words(const struct random *random, uint64_t draw, uint32_t words[4]);

/* Draws in order: each call takes one 32-bit word. */
uint32_t random_next(struct random *random);
double random_uniform(struct random *random);                  /* [0, 1), 32 bits */
double random_between(struct random *random, double low, double high);
uint32_t random_below(struct random *random, uint32_t limit);  /* [0, limit), without bias */
double random_normal(struct random *random);                   /* mean 0, deviation 1 (Box-Muller) */
