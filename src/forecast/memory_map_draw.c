/* memory_map_draw.c: draws the memory map: above, the live bytes by kind; below, the arena, with time on the
 * horizontal axis, addresses on the vertical axis, and one box per tensor. */
#include <inttypes.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/memory.h"
#include "forecast/memory_map_parts.h"

/* Live bytes of the lowest `layers` kinds. */
static double stacked(const struct drawing *d, int instruction, int layers)
{
    double bytes = 0;
    for (int k = 0; k < layers; k++)
        bytes += (double)d->map->alive[(size_t)instruction * MAP_KINDS + (size_t)stack_order[k]];
    return bytes;
}

/* Each kind is drawn down to the axis, and lower ones are drawn over it. */
static void draw_curve(struct drawing *d, const struct panel *panel)
{
    int count = d->program->count, used = 0;
    struct point *points = memory_new(2 * (size_t)count + 2, sizeof *points);
    svg_group(&d->svg, "curve");
    for (int layers = MAP_KINDS; layers > 0; layers--) {
        used = 0;
        points[used++] = (struct point){x_of(d, 0), y_of(panel, 0)};
        for (int i = 0; i < count; i++) {
            double y = y_of(panel, stacked(d, i, layers));
            points[used++] = (struct point){x_of(d, i), y};
            points[used++] = (struct point){x_of(d, i + 1), y};
        }
        points[used++] = (struct point){x_of(d, count), y_of(panel, 0)};
        svg_polygon(&d->svg, points, used, map_kinds[stack_order[layers - 1]].colour);
    }
    free(points);
}

/* White on dark colours. */
static uint32_t ink_on(uint32_t colour)
{
    double light = 0.3 * (colour >> 16) + 0.59 * (colour >> 8 & 255) + 0.11 * (colour & 255);
    return light > 150 ? INK : 0xffffff;
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

/* Its name, if it fits. */
static void draw_name(struct drawing *d, const struct map_box *box, struct rect at)
{
    struct svg_font font = {.size = 10.5, .colour = ink_on(map_kinds[box->kind].colour),
                            .anchor = ANCHOR_MIDDLE};
    const char *name = d->program->values[box->value].name;
    double length = svg_text_width(&font, name) + 8;
    font.upright = length > at.w;
    if (font.upright ? at.w < 13 || length > at.h : at.h < 13) return;
    struct point middle = {at.x + at.w / 2, at.y + at.h / 2};
    *(font.upright ? &middle.x : &middle.y) += 0.35 * font.size;
    svg_text(&d->svg, middle, font, name);
}

static struct rect box_rect(const struct drawing *d, const struct panel *panel, const struct map_box *box)
{
    double x = x_of(d, box->born), y = y_of(panel, (double)(box->offset + box->bytes));
    return (struct rect){x, y, x_of(d, box->dead) - x, y_of(panel, (double)box->offset) - y};
}

static void draw_boxes(struct drawing *d, const struct panel *panel)
{
    svg_group(&d->svg, "tensors");
    for (int b = 0; b < d->map->count; b++) {
        const struct map_box *box = &d->map->boxes[b];
        struct rect rect = box_rect(d, panel, box);
        uint32_t colour = map_kinds[box->kind].colour;
        struct svg_stroke stroke = {darker(colour), rect.w > 3 && rect.h > 3 ? 0.7 : 0, 1};
        char *hint = box_hint(d, box);
        svg_rect(&d->svg, rect, colour, stroke, hint);
        free(hint);
    }
}

static void draw_names(struct drawing *d, const struct panel *panel)
{
    svg_group(&d->svg, "names");
    for (int b = 0; b < d->map->count; b++)
        draw_name(d, &d->map->boxes[b], box_rect(d, panel, &d->map->boxes[b]));
}

static void draw_peak(struct drawing *d)
{
    char bytes[TEXT_BYTES];
    double x = x_of(d, d->plan->peak + 0.5);
    bool left = x > (LEFT + WIDTH - RIGHT) / 2;
    struct svg_font font = {
        .size = 12, .colour = PEAK, .anchor = left ? ANCHOR_END : ANCHOR_START, .bold = true};
    char *text = text_format("%s live at %d, %s", text_bytes((uint64_t)d->plan->live_bytes_bound, bytes),
                             d->plan->peak, d->program->instructions[d->plan->peak].name);
    const struct point line[] = {{x, CURVE_TOP - 14}, {x, ARENA_TOP + ARENA_HEIGHT}};
    svg_group(&d->svg, "peak");
    svg_polyline(&d->svg, line, 2, (struct svg_stroke){PEAK, 1.2, 1});
    svg_text(&d->svg, (struct point){x + (left ? -6 : 6), CURVE_TOP - 8}, font, text);
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
    frame_draw_head(d);
    frame_draw_axes(d, &curve, &arena);
    frame_draw_layers(d, ARENA_TOP + ARENA_HEIGHT + 3);
    draw_curve(d, &curve);
    draw_boxes(d, &arena);
    frame_draw_phases(d);
    draw_peak(d);
    draw_names(d, &arena);
    frame_draw_outlines(d, &curve, &arena);
}

static char *title_of(const struct session *session, const struct program *program)
{
    struct text title = {0};
    text_add(&title, "%s, batch %d, %s", session->graphs.training.arch, session->hyper.batch,
             session->hyper.precision->name);
    if (program->stages > 1) text_add(&title, ", stage %d of %d", program->stage, program->stages);
    return title.data;
}

enum status memory_map_draw(const struct session *session, const struct memory_map *map, const char *name,
                            const struct directory *folder)
{
    const struct compiled *compiled = &map->forecast->compiled;
    char *title = title_of(session, &compiled->program);
    struct drawing d = {.map = map, .program = &compiled->program, .plan = &compiled->plan,
                        .svg = svg_open(WIDTH, HEIGHT, title), .title = title};
    draw_all(&d);
    const struct text *text = svg_end(&d.svg);
    enum status status = atomic_file_write(folder, name, text->data, text->length);
    svg_free(&d.svg);
    free(title);
    return status;
}
