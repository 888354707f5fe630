#include "canvas.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct canvas canvas_make(double w, double h, const char *title)
{
    return (struct canvas){.w = w, .h = h, .title = text_copy(title)};
}

void canvas_free(struct canvas *canvas)
{
    for (int i = 0; i < canvas->count; i++) {
        free(canvas->figures[i].points);
        free(canvas->figures[i].text);
    }
    free(canvas->figures);
    free(canvas->title);
    *canvas = (struct canvas){0};
}

static struct figure *add(struct canvas *canvas, enum figure_kind kind, const struct point *points, int count,
                          uint32_t colour)
{
    struct figure *figure = array_push(canvas->figures, canvas->count);
    *figure = (struct figure){.kind = kind, .point_count = count, .colour = colour, .opacity = 1};
    figure->points = memory_new((size_t)count + 1, sizeof *points);
    if (count > 0) memcpy(figure->points, points, (size_t)count * sizeof *points);
    return figure;
}

struct figure *canvas_area(struct canvas *canvas, const struct point *points, int count, uint32_t colour)
{
    return add(canvas, FIGURE_AREA, points, count, colour);
}

struct figure *canvas_box(struct canvas *canvas, struct point corner, double w, double h, uint32_t colour)
{
    const struct point points[] = {
        corner, {corner.x + w, corner.y}, {corner.x + w, corner.y + h}, {corner.x, corner.y + h}};
    struct figure *figure = add(canvas, FIGURE_AREA, points, 4, colour);
    figure->box = true;
    return figure;
}

struct figure *canvas_line(struct canvas *canvas, const struct point *points, int count, double width,
                           uint32_t colour)
{
    struct figure *figure = add(canvas, FIGURE_LINE, points, count, colour);
    figure->width = width;
    return figure;
}

struct figure *canvas_words(struct canvas *canvas, struct point at, struct lettering lettering,
                            const char *text)
{
    struct figure *figure = add(canvas, FIGURE_WORDS, &at, 1, lettering.colour);
    figure->lettering = lettering;
    figure->text = text_copy(text);
    return figure;
}

void canvas_group(struct canvas *canvas, const char *name)
{
    add(canvas, FIGURE_GROUP, NULL, 0, 0)->text = text_copy(name);
}
