/* names.h: a hash table from names to numbers that preserves insertion order. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct names {
    char **name;      /* [count], in order of arrival */
    int *value;
    int count;
    int *slots;       /* open addressing: index + 1, or 0 */
    int slot_count;   /* a power of two, or 0 */
    uint64_t key;     /* of the hashes, so that nobody can choose names that all collide */
};

/* False, without effect, if the name exists already. */
bool names_add(struct names *names, const char *name, int value);
/* The index of the name, or -1. */
int names_find(const struct names *names, const char *name);
void names_free(struct names *names);
