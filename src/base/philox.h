/* philox.h: streams of counter-based random numbers and their draws, for every device (Philox4x32-10). */
#pragma once

#include <stdint.h>

#include "base/anywhere.h"

/* The purpose of a number; each is an independent stream. Values are part of the reproducibility of runs:
 * never renumber. */
enum purpose {
    PURPOSE_INIT = 1,     /* parameters: a = parameter's index in the graph, b = element */
    PURPOSE_SHUFFLE = 2,  /* order of an epoch: a = epoch */
    PURPOSE_AUGMENT = 3,  /* a = epoch, b = index of the image */
    PURPOSE_DROPOUT = 4,  /* a = step, b = layer; element in the draw index */
    PURPOSE_SYNTHETIC = 6,
    PURPOSE_TEST = 7,
    PURPOSE_REPLACE = 8,  /* the replacement of an unreadable image */
    PURPOSE_MIX = 9,      /* mixup, cutmix: a = epoch, b = batch */
    PURPOSE_DECODE = 10,  /* which decoder: a = epoch, b = index of the image */
    PURPOSE_BALANCE = 11, /* order of a class's images: a = epoch, b = pass over them << 20 | class */
    PURPOSE_FLIP = 12,    /* epochs in which it is mirrored: b = index of the image */
    PURPOSE_CHOICE = 13,  /* what a plan recomputes */
};

/* A stream identified by (seed, purpose, a, b); draws are numbered from 0 and can be computed in any
 * order. */
struct random {
    uint32_t key[2];
    uint32_t counter[2];   /* the two upper counter words; the lower two count draws */
    uint64_t next;         /* number of the next draw by random_next */
};

/* Ten rounds, constants of the paper's table 2. */
ANYWHERE void philox(const uint32_t key[2], const uint32_t counter[4], uint32_t out[4])
{
    uint32_t k0 = key[0], k1 = key[1];
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* random_open. The stream's identity is longer than the remaining counter words, so it is hashed by Philox
 * itself: one block under the seed gives the key, the next the upper counter words. */
ANYWHERE struct random philox_open(uint64_t seed, enum purpose purpose, uint64_t a, uint64_t b)
{
    uint32_t seed_key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t first[4] = {(uint32_t)a, (uint32_t)(a >> 32), (uint32_t)purpose, 0x616d7074u};
    uint32_t block[4];
    philox(seed_key, first, block);
    uint32_t second[4] = {(uint32_t)b, (uint32_t)(b >> 32), block[2], block[3]};
    uint32_t name[4];
    philox(block, second, name);
    struct random random = {.key = {name[0], name[1]}, .counter = {name[2], name[3]}, .next = 0};
    return random;
}

/* random_words. */
ANYWHERE void philox_words(const struct random *random, uint64_t draw, uint32_t words[4])
{
    uint32_t counter[4] = {(uint32_t)draw, (uint32_t)(draw >> 32), random->counter[0], random->counter[1]};
    philox(random->key, counter, words);
}
