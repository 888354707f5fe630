/* dataset_identity_parts.h: the table of a data set's identity; for dataset_identity*.c. */
#pragma once

#include "data/dataset_identity.h"

#define IDENTITY_TABLES 3       /* of the cells; an image is in one of each */

/* The cell of an image in a table. */
static inline int identity_place(uint64_t hash, int table)
{
    enum { EACH = IDENTITY_CELLS / IDENTITY_TABLES };
    return table * EACH + (int)((hash >> (32 + 8 * table)) % EACH);
}

uint32_t identity_class_hash(const char *name);

/* The hash of an image's members, which sets `check`. */
void identity_image_hash(struct identity_image *image, uint64_t *hash);

/* Adds an image to the cells of its hash, or to one cell; `by`: 1, -1 removes it. */
void identity_cells_add(struct identity_cell *cells, const struct identity_image *image, uint64_t hash,
                        int by);
void identity_cell_add(struct identity_cell *cell, const struct identity_image *image, int64_t by);
