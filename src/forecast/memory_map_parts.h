/* memory_map_parts.h: declarations shared by the files that draw the memory map. */
#pragma once

#include <math.h>

#include "forecast/memory_map.h"
#include "format/svg.h"

#define WIDTH ((double)MEMORY_MAP_WIDTH)
#define HEIGHT ((double)MEMORY_MAP_HEIGHT)
#define LEFT 84.0
#define RIGHT 28.0
#define CURVE_TOP 124.0
#define CURVE_HEIGHT 170.0
#define ARENA_TOP 330.0
#define ARENA_HEIGHT 520.0
#define LAYERS_HEIGHT 16.0   /* the strip of layers below the arena */

#define INK 0x1f2933
#define GREY 0x616e7c
#define PALE 0xe4e7eb
#define GROUND 0xf7f9fb
#define PEAK 0xb4232f

struct drawing {
    const struct memory_map *map;
    const struct program *program;
    const struct plan *plan;
    struct svg svg;
    const char *title;
};

/* A panel: instructions on the horizontal axis, bytes on the vertical one. */
struct panel {
    double top, height;
    int64_t most;            /* bytes at the top */
};

static inline double x_of(const struct drawing *d, double instruction)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * instruction / fmax(1, d->program->count);
}

static inline double y_of(const struct panel *panel, double bytes)
{
    return panel->top + panel->height * (1 - bytes / (double)panel->most);
}

/* Kinds from the bottom of the curve up. */
static const int stack_order[MAP_KINDS] = {KIND_ACTIVATION, KIND_SAVED, MAP_AGAIN, KIND_GRADIENT,
                                           KIND_PARAM_GRADIENT, KIND_WORKSPACE, KIND_EXCHANGE,
                                           KIND_OTHER};

/* The frame around the curve and the boxes: title and legend, backgrounds and axes of the two panels, the
 * strip of layers below, and the lines between forward, backward and update. */
void frame_draw_head(struct drawing *drawing);
void frame_draw_axes(struct drawing *drawing, const struct panel *curve, const struct panel *arena);
void frame_draw_layers(struct drawing *drawing, double y);
void frame_draw_phases(struct drawing *drawing);
void frame_draw_outlines(struct drawing *drawing, const struct panel *curve, const struct panel *arena);
