#include "data/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

/* The slot of a name, or the free one where it belongs. */
static uint32_t *find_slot(const struct name_index *index, char *const *names, const char *name)
{
    uint64_t at = hash_bytes(0, name, strlen(name));
    for (;; at++) {
        uint32_t *slot = &index->slots[at & (index->room - 1)];
        if (*slot == 0 || strcmp(names[*slot - 1], name) == 0) return slot;
    }
}

/* Three quarters are filled at most. */
void name_index_reserve(struct name_index *index, char *const *names, uint64_t count)
{
    uint64_t room = index->room ? index->room : 16;
    while (4 * count > 3 * room) room *= 2;
    if (room == index->room) return;
    struct name_index grown = {memory_new(room, sizeof(uint32_t)), room, index->count};
    for (uint64_t i = 0; i < index->count; i++) *find_slot(&grown, names, names[i]) = (uint32_t)i + 1;
    name_index_free(index);
    *index = grown;
}

uint32_t name_index_add(struct name_index *index, char *const *names, const char *name)
{
    name_index_reserve(index, names, index->count + 1);
    uint32_t *slot = find_slot(index, names, name);
    if (*slot == 0) *slot = (uint32_t)++index->count;
    return *slot - 1;
}

int64_t name_index_find(const struct name_index *index, char *const *names, const char *name)
{
    return index->room ? (int64_t)*find_slot(index, names, name) - 1 : -1;
}

void name_index_free(struct name_index *index)
{
    free(index->slots);
    *index = (struct name_index){0};
}
