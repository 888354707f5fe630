/* memory_map_draw.c: the memory map as a picture: above, the bytes alive by kind; below, the arena: time
 * across, address up, one box a tensor. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/memory.h"
#include "canvas.h"
#include "memory_map.h"
#include "train/durable.h"
#include "train/folder.h"

#define WIDTH 1440.0
#define HEIGHT 936.0
#define LEFT 84.0
#define RIGHT 28.0
#define CURVE_TOP 124.0
#define CURVE_HEIGHT 170.0
#define ARENA_TOP 330.0
#define ARENA_HEIGHT 520.0
#define LAYERS_HEIGHT 16.0   /* the strip of layers below the arena */
#define PNG_SCALE 1.5

#define INK 0x1f2933
#define GREY 0x616e7c
#define PALE 0xe4e7eb
#define GROUND 0xf7f9fb
#define PEAK 0xb4232f

static const struct lettering title_letters = {.size = 22, .colour = INK, .bold = true};
static const struct lettering small = {.size = 12, .colour = GREY};
static const struct lettering axis_letters = {.size = 12, .colour = GREY, .anchor = ANCHOR_END};
static const struct lettering axis_title = {.size = 13, .colour = INK, .anchor = ANCHOR_MIDDLE};

struct drawing {
    const struct memory_map *map;
    const struct program *program;
    const struct plan *plan;
    struct canvas canvas;
};

/* A panel: instructions across, bytes up. */
struct panel {
    double top, height;
    int64_t most;            /* bytes at the top */
};

static double x_of(const struct drawing *d, double instruction)
{
    return LEFT + (WIDTH - LEFT - RIGHT) * instruction / fmax(1, d->program->count);
}

static double y_of(const struct panel *panel, double bytes)
{
    return panel->top + panel->height * (1 - bytes / (double)panel->most);
}

static struct lettering middle(struct lettering lettering)
{
    lettering.anchor = ANCHOR_MIDDLE;
    return lettering;
}

/* The unit that an axis counts in. */
static int64_t unit_of(int64_t most, const char **name)
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int64_t unit = 1;
    size_t u = 0;
    for (; u + 1 < sizeof names / sizeof *names && most >= 2 * unit * 1024; u++) unit *= 1024;
    *name = names[u];
    return unit;
}

/* 1, 2 or 5 times a power of ten units, `count` of which suffice. */
static double step_of(double most, int count)
{
    double step = pow(10, floor(log10(fmax(most, 1e-9) / count)));
    static const double times[] = {1, 2, 5, 10};
    for (int t = 0; t < 4; t++)
        if (step * times[t] * count >= most) return step * times[t];
    return 10 * step;
}

static void draw_bytes_axis(struct drawing *d, const struct panel *panel, const char *what, int count)
{
    const char *name;
    int64_t unit = unit_of(panel->most, &name);
    double most = (double)panel->most / (double)unit, step = step_of(most, count);
    char text[64];
    for (double at = 0; at <= most * 1.0001; at += step) {
        double y = y_of(panel, at * (double)unit);
        const struct point line[] = {{LEFT - 5, y}, {LEFT, y}}, across[] = {{LEFT, y}, {WIDTH - RIGHT, y}};
        canvas_line(&d->canvas, line, 2, 1, GREY);
        canvas_line(&d->canvas, across, 2, 0.8, PALE);
        snprintf(text, sizeof text, "%g", at);
        canvas_words(&d->canvas, (struct point){LEFT - 9, y + 4}, axis_letters, text);
    }
    snprintf(text, sizeof text, "%s, %s", what, name);
    struct lettering upright = axis_title;
    upright.upright = true;
    canvas_words(&d->canvas, (struct point){30, panel->top + panel->height / 2}, upright, text);
}

static void draw_frame(struct drawing *d, const struct panel *panel)
{
    canvas_box(&d->canvas, (struct point){LEFT, panel->top}, WIDTH - LEFT - RIGHT, panel->height, GROUND);
}

static void draw_outline(struct drawing *d, const struct panel *panel)
{
    double bottom = panel->top + panel->height;
    const struct point corners[] = {{LEFT, panel->top}, {LEFT, bottom}, {WIDTH - RIGHT, bottom}};
    canvas_line(&d->canvas, corners, 3, 1.2, INK);
}

static void draw_time_axis(struct drawing *d, double y)
{
    double step = fmax(1, step_of(d->program->count, 12));
    char text[32];
    for (double at = 0; at <= d->program->count; at += step) {
        const struct point line[] = {{x_of(d, at), y}, {x_of(d, at), y + 5}};
        canvas_line(&d->canvas, line, 2, 1, GREY);
        snprintf(text, sizeof text, "%g", at);
        canvas_words(&d->canvas, (struct point){x_of(d, at), y + 18}, middle(small), text);
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

/* By instruction: the node that it works for. Sums and casts work for the one before them; -1: the update. */
static int *nodes_of(const struct program *program)
{
    int *nodes = memory_new((size_t)program->count + 1, sizeof *nodes), node = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        bool update = !at->op || at->phase == PHASE_UPDATE;
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

/* The fewest parts of a name that tell half a dozen stretches apart. */
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

static void draw_stretch(struct drawing *d, double y, double x0, double x1, uint32_t ground, const char *name)
{
    const struct lettering letters = {.size = 10.5, .colour = INK, .anchor = ANCHOR_MIDDLE};
    canvas_box(&d->canvas, (struct point){x0, y}, x1 - x0, LAYERS_HEIGHT, ground)->text = text_copy(name);
    if (canvas_width(&letters, name) + 4 < x1 - x0)
        canvas_words(&d->canvas, (struct point){(x0 + x1) / 2, y + 12}, letters, name);
}

static void draw_layers(struct drawing *d, double y)
{
    static const uint32_t grounds[] = {0xe9edf2, 0xd8dfe7};
    int *nodes = nodes_of(d->program), depth = useful_depth(d->program, nodes), shade = 0;
    canvas_group(&d->canvas, "layers");
    for (int from = 0, to; from < d->program->count; from = to) {
        for (to = from + 1; to < d->program->count;) {
            if (!same_part(d->program->graph, nodes[from], nodes[to], depth)) break;
            to++;
        }
        const char *whole = nodes[from] < 0 ? "update" : d->program->graph->nodes[nodes[from]].name;
        char name[64];
        snprintf(name, sizeof name, "%.*s", part_length(whole, depth), whole);
        draw_stretch(d, y, x_of(d, from), x_of(d, to), grounds[shade ^= 1], name);
    }
    free(nodes);
}

/* From the bottom up. */
static const int stack_order[MAP_KINDS] = {KIND_ACTIVATION, KIND_SAVED, MAP_AGAIN, KIND_GRADIENT,
                                           KIND_PARAM_GRADIENT, KIND_WORKSPACE, KIND_OTHER};

/* Bytes alive of the lowest `layers` kinds. */
static double stacked(const struct drawing *d, int instruction, int layers)
{
    double bytes = 0;
    for (int k = 0; k < layers; k++)
        bytes += (double)d->map->alive[(size_t)instruction * MAP_KINDS + (size_t)stack_order[k]];
    return bytes;
}

/* What lies lower is drawn over what lies higher, which therefore reaches to the ground. */
static void draw_curve(struct drawing *d, const struct panel *panel)
{
    int count = d->program->count, used = 0;
    struct point *points = memory_new(2 * (size_t)count + 2, sizeof *points);
    canvas_group(&d->canvas, "curve");
    for (int layers = MAP_KINDS; layers > 0; layers--) {
        used = 0;
        points[used++] = (struct point){x_of(d, 0), y_of(panel, 0)};
        for (int i = 0; i < count; i++) {
            double y = y_of(panel, stacked(d, i, layers));
            points[used++] = (struct point){x_of(d, i), y};
            points[used++] = (struct point){x_of(d, i + 1), y};
        }
        points[used++] = (struct point){x_of(d, count), y_of(panel, 0)};
        canvas_area(&d->canvas, points, used, map_kinds[stack_order[layers - 1]].colour);
    }
    free(points);
}

/* White on dark colours. */
static uint32_t ink_on(uint32_t colour)
{
    double light = 0.3 * (colour >> 16) + 0.59 * (colour >> 8 & 255) + 0.11 * (colour & 255);
    return light > 165 ? INK : 0xffffff;
}

static uint32_t darker(uint32_t colour)
{
    uint32_t dark = 0;
    for (int shift = 0; shift < 24; shift += 8) dark |= (colour >> shift & 255) * 7 / 10 << shift;
    return dark;
}

static char *box_hint(const struct drawing *d, const struct map_box *box)
{
    const struct value *value = &d->program->values[box->value];
    char bytes[TEXT_BYTES], at[TEXT_BYTES], shape[SHAPE_TEXT];
    const char *first = d->program->instructions[box->born].name;
    const char *last = d->program->instructions[box->dead - 1].name;
    return text_format("%s: %s, %s, %s\n%s at %s (%" PRId64 " bytes at %" PRId64 ")\n"
                       "from %d, %s\nup to %d, %s",
                       value->name, map_kinds[box->kind].name, shape_text(value->shape, shape),
                       dtype_table[value->dtype].name, text_bytes((uint64_t)box->bytes, bytes),
                       text_bytes((uint64_t)box->offset, at), box->bytes, box->offset, box->born, first,
                       box->dead - 1, last);
}

/* Its name, where there is room for it. */
static void draw_name(struct drawing *d, const struct map_box *box, struct point corner, double w, double h)
{
    struct lettering letters = {.size = 10.5, .colour = ink_on(map_kinds[box->kind].colour),
                                .anchor = ANCHOR_MIDDLE};
    const char *name = d->program->values[box->value].name;
    double length = canvas_width(&letters, name) + 8;
    letters.upright = length > w;
    if (letters.upright ? w < 13 || length > h : h < 13) return;
    struct point at = {corner.x + w / 2, corner.y + h / 2};
    *(letters.upright ? &at.x : &at.y) += 0.35 * letters.size;
    canvas_words(&d->canvas, at, letters, name);
}

static struct point box_corner(const struct drawing *d, const struct panel *panel, const struct map_box *box)
{
    return (struct point){x_of(d, box->born), y_of(panel, (double)(box->offset + box->bytes))};
}

static void draw_boxes(struct drawing *d, const struct panel *panel)
{
    canvas_group(&d->canvas, "tensors");
    for (int b = 0; b < d->map->count; b++) {
        const struct map_box *box = &d->map->boxes[b];
        struct point corner = box_corner(d, panel, box);
        double w = x_of(d, box->dead) - corner.x, h = y_of(panel, (double)box->offset) - corner.y;
        struct figure *figure = canvas_box(&d->canvas, corner, w, h, map_kinds[box->kind].colour);
        figure->text = box_hint(d, box);
        figure->edge = darker(figure->colour);
        figure->width = w > 3 && h > 3 ? 0.7 : 0;
    }
}

static void draw_names(struct drawing *d, const struct panel *panel)
{
    canvas_group(&d->canvas, "names");
    for (int b = 0; b < d->map->count; b++) {
        const struct map_box *box = &d->map->boxes[b];
        struct point corner = box_corner(d, panel, box);
        draw_name(d, box, corner, x_of(d, box->dead) - corner.x, y_of(panel, (double)box->offset) - corner.y);
    }
}

static void draw_head(struct drawing *d)
{
    const struct step_bytes *bytes = &d->map->forecast->bytes;
    char arena[TEXT_BYTES], store[TEXT_BYTES], batch[TEXT_BYTES], total[TEXT_BYTES];
    double above = 100.0 * (double)(bytes->arena - bytes->live_bound) / fmax(1, (double)bytes->live_bound);
    char *text = text_format("arena %s (%.2f %% above the most alive)  +  store %s  +  batches %s  =  %s",
                             text_bytes((uint64_t)bytes->arena, arena), above,
                             text_bytes((uint64_t)bytes->store, store),
                             text_bytes((uint64_t)bytes->batch, batch),
                             text_bytes((uint64_t)bytes->total, total));
    canvas_group(&d->canvas, "head");
    canvas_words(&d->canvas, (struct point){LEFT, 38}, title_letters, d->canvas.title);
    canvas_words(&d->canvas, (struct point){LEFT, 60}, small, text);
    free(text);
}

static void draw_legend(struct drawing *d)
{
    struct lettering letters = {.size = 12, .colour = INK};
    double x = LEFT, y = 90;
    canvas_group(&d->canvas, "legend");
    for (int k = 0; k < MAP_KINDS; k++) {
        bool there = false;
        for (int b = 0; b < d->map->count && !there; b++) there = d->map->boxes[b].kind == stack_order[k];
        if (!there) continue;
        const struct map_kind *kind = &map_kinds[stack_order[k]];
        canvas_box(&d->canvas, (struct point){x, y - 10}, 12, 12, kind->colour);
        canvas_words(&d->canvas, (struct point){x + 18, y}, letters, kind->name);
        x += 18 + canvas_width(&letters, kind->name) + 22;
    }
}

/* Forward, backward and update, told apart by lines through both panels. */
static void draw_phases(struct drawing *d)
{
    const struct program *program = d->program;
    int backward = program->first_backward, update = backward;
    while (update < program->count && program->instructions[update].op) update++;
    const int begin[] = {0, backward, update, program->count};
    static const char *const names[] = {"forward", "backward", "update"};
    const struct lettering letters = {.size = 12, .colour = GREY, .anchor = ANCHOR_MIDDLE};
    canvas_group(&d->canvas, "phases");
    for (int p = 0; p < 3; p++) {
        double x0 = x_of(d, begin[p]), x1 = x_of(d, begin[p + 1]);
        const struct point line[] = {{x0, CURVE_TOP}, {x0, ARENA_TOP + ARENA_HEIGHT}};
        if (p > 0 && x1 > x0) canvas_line(&d->canvas, line, 2, 1, GREY)->opacity = 0.5;
        if (canvas_width(&letters, names[p]) + 8 < x1 - x0)
            canvas_words(&d->canvas, (struct point){(x0 + x1) / 2, ARENA_TOP - 10}, letters, names[p]);
    }
}

static void draw_peak(struct drawing *d)
{
    char bytes[TEXT_BYTES];
    double x = x_of(d, d->plan->peak + 0.5);
    bool left = x > (LEFT + WIDTH - RIGHT) / 2;
    struct lettering letters = {
        .size = 12, .colour = PEAK, .anchor = left ? ANCHOR_END : ANCHOR_START, .bold = true};
    char *text = text_format("%s alive at %d, %s", text_bytes((uint64_t)d->plan->live_bytes_bound, bytes),
                             d->plan->peak, d->program->instructions[d->plan->peak].name);
    const struct point line[] = {{x, CURVE_TOP - 14}, {x, ARENA_TOP + ARENA_HEIGHT}};
    canvas_group(&d->canvas, "peak");
    canvas_line(&d->canvas, line, 2, 1.2, PEAK);
    canvas_words(&d->canvas, (struct point){x + (left ? -6 : 6), CURVE_TOP - 8}, letters, text);
    free(text);
}

static int64_t at_least_one(int64_t bytes)
{
    return bytes > 0 ? bytes : 1;
}

static void draw_all(struct drawing *d)
{
    const struct panel curve = {CURVE_TOP, CURVE_HEIGHT, at_least_one(d->plan->live_bytes_bound)};
    const struct panel arena = {ARENA_TOP, ARENA_HEIGHT, at_least_one(d->plan->arena_bytes)};
    double bottom = ARENA_TOP + ARENA_HEIGHT;
    draw_head(d);
    draw_legend(d);
    canvas_group(&d->canvas, "axes");
    draw_frame(d, &curve);
    draw_frame(d, &arena);
    draw_bytes_axis(d, &curve, "alive", 4);
    draw_bytes_axis(d, &arena, "address", 8);
    draw_time_axis(d, bottom + LAYERS_HEIGHT + 4);
    canvas_words(&d->canvas, (struct point){(LEFT + WIDTH - RIGHT) / 2, bottom + LAYERS_HEIGHT + 42},
                 axis_title, "time, instructions of a training step");
    draw_layers(d, bottom + 3);
    draw_curve(d, &curve);
    draw_boxes(d, &arena);
    draw_phases(d);
    draw_peak(d);
    draw_names(d, &arena);
    canvas_group(&d->canvas, "frames");
    draw_outline(d, &curve);
    draw_outline(d, &arena);
}

static enum status write_both(const struct canvas *canvas, const char *folder)
{
    TRY(folder_make(folder));
    char *svg = durable_path(folder, "memory.svg"), *png = durable_path(folder, "memory.png");
    enum status status = canvas_write_svg(canvas, svg);
    if (status == OK) status = canvas_write_png(canvas, png, PNG_SCALE);
    if (status == OK) log_info("the memory map is drawn: %s, %s", svg, png);
    free(svg);
    free(png);
    return status;
}

enum status memory_map_draw(const struct setup *setup, const struct memory_map *map, const char *folder)
{
    struct drawing d = {.map = map, .program = &map->forecast->program, .plan = &map->forecast->plan};
    char *title = text_format("%s, batch %d, %s", setup->graph.arch, setup->batch, setup->precision->name);
    d.canvas = canvas_make(WIDTH, HEIGHT, title);
    free(title);
    draw_all(&d);
    enum status status = write_both(&d.canvas, folder);
    canvas_free(&d.canvas);
    return status;
}
