#include "names.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "base/memory.h"

/* FNV-1a (Fowler, Noll, Vo) of 64 bits, seeded with the key, with additional mixing. */
static uint32_t names_hash(uint64_t key, const char *name)
{
    uint64_t hash = key ^ 14695981039346656037u;
    for (; *name; name++) {
        hash = (hash ^ (unsigned char)*name) * 1099511628211u;
        hash ^= hash >> 29;
    }
    return (uint32_t)(hash >> 32);
}

/* The slot of the name, or the free one for it. */
static int names_slot(const struct names *names, const char *name)
{
    int slot = (int)(names_hash(names->key, name) & (uint32_t)(names->slot_count - 1));
    while (names->slots[slot] && strcmp(names->name[names->slots[slot] - 1], name) != 0)
        slot = (slot + 1) & (names->slot_count - 1);
    return slot;
}

static void names_grow(struct names *names)
{
    if (names->slot_count == 0 && getentropy(&names->key, sizeof names->key) != 0) names->key = 0;
    names->slot_count = names->slot_count ? 2 * names->slot_count : 16;
    free(names->slots);
    names->slots = memory_new((size_t)names->slot_count, sizeof *names->slots);
    for (int i = 0; i < names->count; i++) names->slots[names_slot(names, names->name[i])] = i + 1;
}

int names_find(const struct names *names, const char *name)
{
    return names->slot_count ? names->slots[names_slot(names, name)] - 1 : -1;
}

bool names_add(struct names *names, const char *name, int value)
{
    if (2 * names->count >= names->slot_count) names_grow(names);
    int slot = names_slot(names, name);
    if (names->slots[slot]) return false;
    int count = names->count;
    *array_push(names->value, count) = value;
    *array_push(names->name, names->count) = text_copy(name);
    names->slots[slot] = names->count;
    return true;
}

void names_free(struct names *names)
{
    for (int i = 0; i < names->count; i++) free(names->name[i]);
    free(names->name);
    free(names->value);
    free(names->slots);
    *names = (struct names){0};
}
