/* name_index.h: finds strings of a growing array by a hash table of their numbers. */
#pragma once

#include <stdint.h>

/* Zeroed: empty. It owns no strings: names[number] is what was added. */
struct name_index {
    uint32_t *slots;           /* numbers + 1; 0: free */
    uint64_t room;             /* a power of two */
    uint64_t count;
};

/* For so many names; fewer than 2^32. */
void name_index_reserve(struct name_index *index, char *const *names, uint64_t count);

/* The number of a name that is there; otherwise it gets the number `count`, under which the caller stores
 * it. */
uint32_t name_index_add(struct name_index *index, char *const *names, const char *name);
/* -1: it is not there. */
int64_t name_index_find(const struct name_index *index, char *const *names, const char *name);
void name_index_free(struct name_index *index);
