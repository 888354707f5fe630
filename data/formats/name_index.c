#include "data/formats/name_index.h"

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "base/memory.h"

static uint32_t hash_of(const char *name) { return (uint32_t)hash_bytes(0, name, strlen(name)); }

/* The slot of a name, or the free one where it belongs. */
static struct name_slot *find_slot(const struct name_index *index, char *const *names, const char *name,
                                   uint32_t hash)
{
    for (uint64_t at = hash;; at++) {
        struct name_slot *slot = &index->slots[at & (index->room - 1)];
        if (slot->entry == 0) return slot;
        if (slot->hash == hash && strcmp(names[slot->entry - 1], name) == 0) return slot;
    }
}

static void move_slot(struct name_index *to, struct name_slot slot)
{
    uint64_t at = slot.hash;
    while (to->slots[at & (to->room - 1)].entry != 0) at++;
    to->slots[at & (to->room - 1)] = slot;
}

/* Three quarters are filled at most. */
void name_index_reserve(struct name_index *index, uint64_t count)
{
    uint64_t room = index->room ? index->room : 16;
    while (4 * count > 3 * room) room *= 2;
    if (room == index->room) return;
    struct name_index grown = {memory_new(room, sizeof(struct name_slot)), room, index->count};
    for (uint64_t i = 0; i < index->room; i++)
        if (index->slots[i].entry != 0) move_slot(&grown, index->slots[i]);
    name_index_free(index);
    *index = grown;
}

uint32_t name_index_add(struct name_index *index, char *const *names, const char *name)
{
    uint32_t hash = hash_of(name);
    name_index_reserve(index, index->count + 1);
    struct name_slot *slot = find_slot(index, names, name, hash);
    if (slot->entry == 0) *slot = (struct name_slot){(uint32_t)++index->count, hash};
    return slot->entry - 1;
}

void name_index_free(struct name_index *index)
{
    free(index->slots);
    *index = (struct name_index){0};
}
