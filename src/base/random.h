/* random.h: counter-based random numbers (Philox4x32-10): every draw is a function of its names.
 *
 * Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3 (SC 2011). */
#ifndef BASE_RANDOM_H
#define BASE_RANDOM_H

#include <stdint.h>

/* What a number is for; each purpose is an independent stream. Values are part of what makes a
 * run repeatable: never renumber. */
enum purpose {
    PURPOSE_INIT = 1,     /* parameters: a = parameter's index in the graph, b = element */
    PURPOSE_SHUFFLE = 2,  /* order of an epoch: a = epoch */
    PURPOSE_AUGMENT = 3,  /* a = epoch, b = index of the image */
    PURPOSE_DROPOUT = 4,  /* a = step, b = layer; element in the draw index */
    PURPOSE_SPLIT = 5,    /* val_fraction */
    PURPOSE_SYNTHETIC = 6,
    PURPOSE_TEST = 7,
    PURPOSE_REPLACE = 8,  /* which image stands in for an unreadable one */
    PURPOSE_MIX = 9,      /* mixup, cutmix: a = epoch, b = batch */
    PURPOSE_DECODE = 10,  /* who decodes: a = epoch, b = index of the image */
};

/* A stream named by (seed, purpose, a, b); draws are numbered from 0 and can be had in any order. */
struct random {
    uint32_t key[2];
    uint32_t counter[2];   /* the two upper counter words; the lower two count draws */
    uint64_t next;         /* number of the next draw by random_next */
};

struct random random_open(uint64_t seed, enum purpose purpose, uint64_t a, uint64_t b);

/* Draw number `draw` of the stream: four independent 32-bit words. */
void random_words(const struct random *random, uint64_t draw, uint32_t words[4]);

/* Draws in order: each call takes one 32-bit word. */
uint32_t random_next(struct random *random);
double random_uniform(struct random *random);                  /* [0, 1), 32 bits */
uint32_t random_below(struct random *random, uint32_t limit);  /* [0, limit), without bias */
double random_normal(struct random *random);                   /* mean 0, deviation 1 (Box-Muller) */

#endif
