/* checkpoint_parts.h: the tensors of a checkpoint, each of them a part of the store; for checkpoint*.c. */
#pragma once

#include "exec/store.h"
#include "format/safetensors.h"

struct checkpoint_part {
    char *name;
    int param;
    enum store_part part;
};

struct checkpoint_parts {
    struct checkpoint_part *list;
    int count;
};

/* Every part of the store that a checkpoint of this run holds. */
struct checkpoint_parts checkpoint_parts_of(const struct store *store, const struct optimizer *optimizer);
void checkpoint_parts_free(struct checkpoint_parts *parts);

/* `part` must remain valid: the item's name is the part's. */
struct safetensors_item checkpoint_part_item(const struct store *store, const struct checkpoint_part *part);
