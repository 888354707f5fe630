/* name_index.h: finds strings of a growing array by a hash table of their numbers. */
#pragma once

#include <stdint.h>

/* Slots hold the hash, so that few strings are compared: each of many is a cache miss. */
struct name_slot {
    uint32_t entry;            /* number + 1; 0: free */
    uint32_t hash;
};

/* Zeroed: empty. It owns no strings: names[number] is what was added. */
struct name_index {
    struct name_slot *slots;
    uint64_t room;             /* a power of two */
    uint64_t count;
};

/* For so many names; fewer than 2^32. */
void name_index_reserve(struct name_index *index, uint64_t count);

/* The number of a name that is there; otherwise it gets the number `count`, under which the caller stores
 * it. */
uint32_t name_index_add(struct name_index *index, char *const *names, const char *name);
void name_index_free(struct name_index *index);
