/* memory_map_frame.c: draws the axes, legend and labels of the memory map. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "forecast/memory_map_parts.h"
#include "format/chart.h"

static const struct svg_font title_font = {.size = 22, .colour = INK, .bold = true};
static const struct svg_font small = {.size = 12, .colour = GREY};
static const struct svg_font axis_font = {.size = 12, .colour = GREY, .anchor = ANCHOR_END};
static const struct svg_font axis_title = {.size = 13, .colour = INK, .anchor = ANCHOR_MIDDLE};

static struct svg_font middle(struct svg_font font)
{
    font.anchor = ANCHOR_MIDDLE;
    return font;
}

/* The unit of an axis. */
static int64_t unit_of(int64_t most, const char **name)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int64_t unit = 1;
    size_t u = 0;
    for (; u + 1 < sizeof names / sizeof *names && most >= 2 * unit * 1024; u++) unit *= 1024;
    *name = names[u];
    return unit;
}

static void draw_bytes_axis(struct drawing *d, const struct panel *panel, const char *what, int count)
{
    const char *name;
    int64_t unit = unit_of(panel->most, &name);
    double most = (double)panel->most / (double)unit, step = chart_step(fmax(most, 1e-9), count);
    char text[64];
    for (double at = 0; at <= most * 1.0001; at += step) {
        double y = y_of(panel, at * (double)unit);
        const struct point line[] = {{LEFT - 5, y}, {LEFT, y}}, across[] = {{LEFT, y}, {WIDTH - RIGHT, y}};
        svg_polyline(&d->svg, line, 2, (struct svg_stroke){GREY, 1, 1});
        svg_polyline(&d->svg, across, 2, (struct svg_stroke){PALE, 0.8, 1});
        snprintf(text, sizeof text, "%g", at);
        svg_text(&d->svg, (struct point){LEFT - 9, y + 4}, axis_font, text);
    }
    snprintf(text, sizeof text, "%s, %s", what, name);
    struct svg_font upright = axis_title;
    upright.upright = true;
    svg_text(&d->svg, (struct point){30, panel->top + panel->height / 2}, upright, text);
}

static void draw_ground(struct drawing *d, const struct panel *panel)
{
    const struct rect ground = {LEFT, panel->top, WIDTH - LEFT - RIGHT, panel->height};
    svg_rect(&d->svg, ground, GROUND, (struct svg_stroke){0}, NULL);
}

static void draw_outline(struct drawing *d, const struct panel *panel)
{
    double bottom = panel->top + panel->height;
    const struct point corners[] = {{LEFT, panel->top}, {LEFT, bottom}, {WIDTH - RIGHT, bottom}};
    svg_polyline(&d->svg, corners, 3, (struct svg_stroke){INK, 1.2, 1});
}

static void draw_time_axis(struct drawing *d, double y)
{
    double step = fmax(1, chart_step(d->program->count, 12));
    char text[32];
    for (double at = 0; at <= d->program->count; at += step) {
        const struct point line[] = {{x_of(d, at), y}, {x_of(d, at), y + 5}};
        svg_polyline(&d->svg, line, 2, (struct svg_stroke){GREY, 1, 1});
        snprintf(text, sizeof text, "%g", at);
        svg_text(&d->svg, (struct point){x_of(d, at), y + 18}, middle(small), text);
    }
}

/* Length of a node's name up to its `depth`-th dot. */
static int part_length(const char *name, int depth)
{
    const char *at = name;
    for (; *at; at++)
        if (*at == '.' && --depth == 0) break;
    return (int)(at - name);
}

/* The node that each instruction works for. Sums and casts work for the one before them; -1: the update. */
static int *nodes_of(const struct program *program)
{
    int *nodes = memory_new((size_t)program->count + 1, sizeof *nodes), node = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool update = at->kind == INSTRUCTION_UPDATE || at->phase == PHASE_UPDATE;
        if (!update && at->node >= 0) node = at->node;
        nodes[i] = update ? -1 : node;
    }
    return nodes;
}

static bool same_part(const struct graph *graph, int a, int b, int depth)
{
    if (a == b || a < 0 || b < 0) return a == b;
    const char *one = graph->nodes[a].name, *two = graph->nodes[b].name;
    int length = part_length(one, depth);
    return length == part_length(two, depth) && strncmp(one, two, (size_t)length) == 0;
}

/* The smallest depth of names that gives at least six groups. */
static int useful_depth(const struct program *program, const int *nodes)
{
    for (int depth = 1; depth < 4; depth++) {
        int stretches = 1;
        for (int i = 1; i < program->first_backward; i++)
            if (!same_part(program->graph, nodes[i - 1], nodes[i], depth)) stretches++;
        if (stretches >= 6) return depth;
    }
    return 1;
}

static void draw_stretch(struct drawing *d, struct rect at, uint32_t ground, const char *name)
{
    const struct svg_font font = {.size = 10.5, .colour = INK, .anchor = ANCHOR_MIDDLE};
    svg_rect(&d->svg, at, ground, (struct svg_stroke){0}, name);
    /* "features.denseblock1", or "denseblock1" if that does not fit. */
    const char *dot = strrchr(name, '.');
    if (dot && svg_text_width(&font, name) + 4 >= at.w) name = dot + 1;
    if (svg_text_width(&font, name) + 4 < at.w)
        svg_text(&d->svg, (struct point){at.x + at.w / 2, at.y + 12}, font, name);
}

void frame_draw_layers(struct drawing *d, double y)
{
    static const uint32_t grounds[] = {0xe9edf2, 0xd8dfe7};
    int *nodes = nodes_of(d->program), depth = useful_depth(d->program, nodes), shade = 0;
    svg_group(&d->svg, "layers");
    for (int from = 0, to; from < d->program->count; from = to) {
        for (to = from + 1; to < d->program->count;) {
            if (!same_part(d->program->graph, nodes[from], nodes[to], depth)) break;
            to++;
        }
        const char *whole = nodes[from] < 0 ? "update" : d->program->graph->nodes[nodes[from]].name;
        char *name = text_format("%.*s", part_length(whole, depth), whole);
        const struct rect at = {x_of(d, from), y, x_of(d, to) - x_of(d, from), LAYERS_HEIGHT};
        draw_stretch(d, at, grounds[shade ^= 1], name);
        free(name);
    }
    free(nodes);
}

static void draw_title(struct drawing *d)
{
    const struct budget *bytes = &d->map->forecast->bytes;
    int64_t bound = d->map->forecast->compiled.plan.live_bytes_bound;
    char arena[TEXT_BYTES], store[TEXT_BYTES], batch[TEXT_BYTES], total[TEXT_BYTES];
    double above = 100.0 * (double)(bytes->arena - bound) / fmax(1, (double)bound);
    char *text = text_format("arena %s (%.2f %% above the live-bytes bound)  +  store %s  +  batches %s  "
                             "=  %s",
                             text_bytes((uint64_t)bytes->arena, arena), above,
                             text_bytes((uint64_t)bytes->store, store),
                             text_bytes((uint64_t)bytes->input, batch),
                             text_bytes((uint64_t)bytes->total, total));
    svg_group(&d->svg, "head");
    svg_text(&d->svg, (struct point){LEFT, 38}, title_font, d->title);
    svg_text(&d->svg, (struct point){LEFT, 60}, small, text);
    free(text);
}

static void draw_legend(struct drawing *d)
{
    struct svg_font font = {.size = 12, .colour = INK};
    double x = LEFT, y = 90;
    svg_group(&d->svg, "legend");
    for (int k = 0; k < MAP_KINDS; k++) {
        bool there = false;
        for (int b = 0; b < d->map->count && !there; b++) there = d->map->boxes[b].kind == stack_order[k];
        if (!there) continue;
        const struct map_kind *kind = &map_kinds[stack_order[k]];
        svg_rect(&d->svg, (struct rect){x, y - 10, 12, 12}, kind->colour, (struct svg_stroke){0}, NULL);
        svg_text(&d->svg, (struct point){x + 18, y}, font, kind->name);
        x += 18 + svg_text_width(&font, kind->name) + 22;
    }
}

enum part { PART_FORWARD, PART_BACKWARD, PART_UPDATE };

/* The part of the step of an instruction, given that of the preceding one. Each micro-batch has a forward and
 * a backward part; recomputation belongs to backward. */
static enum part part_of(const struct program *program, int i, enum part before)
{
    const struct instruction *at = &program->instructions[i];
    if (at->kind == INSTRUCTION_UPDATE || before == PART_UPDATE) return PART_UPDATE;
    if (i > 0 && at->micro_batch != program->instructions[i - 1].micro_batch) before = PART_FORWARD;
    switch (at->phase) {
    case PHASE_BACKWARD:
    case PHASE_BACKWARD_DATA:
    case PHASE_BACKWARD_PARAMS:
    case PHASE_RECOMPUTE: return PART_BACKWARD;
    case PHASE_UPDATE: return PART_UPDATE;
    case PHASE_FORWARD:
    case PHASE_COUNT: break;
    }
    return before;
}

static void draw_part(struct drawing *d, enum part part, double x0, double x1)
{
    static const char *const names[] = {"forward", "backward", "update"};
    const struct svg_font font = {.size = 12, .colour = GREY, .anchor = ANCHOR_MIDDLE};
    const struct point line[] = {{x0, CURVE_TOP}, {x0, ARENA_TOP + ARENA_HEIGHT}};
    if (x0 > LEFT) svg_polyline(&d->svg, line, 2, (struct svg_stroke){GREY, 1, 0.5});
    if (svg_text_width(&font, names[part]) + 8 < x1 - x0)
        svg_text(&d->svg, (struct point){(x0 + x1) / 2, ARENA_TOP - 10}, font, names[part]);
}

void frame_draw_phases(struct drawing *d)
{
    enum part part = PART_FORWARD;
    int from = 0;
    svg_group(&d->svg, "phases");
    for (int i = 0; i < d->program->count; i++) {
        enum part next = part_of(d->program, i, part);
        if (next != part) {
            draw_part(d, part, x_of(d, from), x_of(d, i));
            from = i;
        }
        part = next;
    }
    draw_part(d, part, x_of(d, from), x_of(d, d->program->count));
}

void frame_draw_head(struct drawing *d)
{
    draw_title(d);
    draw_legend(d);
}

void frame_draw_axes(struct drawing *d, const struct panel *curve, const struct panel *arena)
{
    double bottom = arena->top + arena->height + LAYERS_HEIGHT;
    svg_group(&d->svg, "axes");
    draw_ground(d, curve);
    draw_ground(d, arena);
    draw_bytes_axis(d, curve, "alive", 4);
    draw_bytes_axis(d, arena, "address", 8);
    draw_time_axis(d, bottom + 4);
    svg_text(&d->svg, (struct point){(LEFT + WIDTH - RIGHT) / 2, bottom + 42}, axis_title,
                 "time, instructions of a training step");
}

void frame_draw_outlines(struct drawing *d, const struct panel *curve, const struct panel *arena)
{
    svg_group(&d->svg, "outlines");
    draw_outline(d, curve);
    draw_outline(d, arena);
}
