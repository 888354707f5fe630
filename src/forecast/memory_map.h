/* memory_map.h: the addresses and lifetimes of the tensors of a step, as a picture and as text. */
#pragma once

#include "base/directory.h"
#include "base/text.h"
#include "forecast/forecast.h"

/* Tensors are classified by enum value_kind, with recomputed values as a separate class. */
#define MAP_AGAIN (KIND_OTHER + 1)
#define MAP_KINDS (MAP_AGAIN + 1)
struct map_kind {
    const char *name;        /* "gradients of activations" */
    uint32_t colour;         /* 0xRRGGBB */
};
extern const struct map_kind map_kinds[MAP_KINDS];

/* A tensor in the arena. For tensors computed in place, a box ends where that of the next tensor begins, so
 * that no two boxes overlap. */
struct map_box {
    int value;               /* of the program */
    int kind;                /* row of map_kinds */
    int born, dead;          /* instructions, [born, dead) */
    int64_t offset, bytes;   /* in the arena; aligned */
};

struct memory_map {
    const struct forecast *forecast;
    struct map_box *boxes;   /* one for each tensor that the arena holds */
    int count;
    int64_t *alive;          /* [instructions, MAP_KINDS]: aligned bytes; the largest sum is the bound */
    struct map_box *peak;    /* tensors alive at plan.peak, largest first; their bytes sum to the bound */
    int peak_count;
};
struct memory_map memory_map_make(const struct forecast *forecast);
void memory_map_free(struct memory_map *map);

/* Writes it to a file in the folder. */
#define MEMORY_MAP_FILE "memory.svg"
#define MEMORY_MAP_WIDTH 1200        /* of the picture, in pixels */
#define MEMORY_MAP_HEIGHT 924
enum status memory_map_draw(const struct session *session, const struct memory_map *map, const char *name,
                            const struct directory *folder);

/* Prints the point of peak memory, the tensors alive there, and settings that would reduce the total. */
void memory_map_print(const struct session *session, const struct memory_map *map);
/* The first two as a JSON object: {"bytes", "instruction", "name", "layer", "tensors"}. */
void memory_map_json(const struct memory_map *map, struct text *out);
