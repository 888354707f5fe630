/* canvas_svg.c: a canvas as SVG 1.1 (W3C, second edition); hints become <title>, which browsers show. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "base/directory.h"
#include "base/text.h"
#include "canvas.h"

/* Characters that XML gives a meaning, and bytes that it does not allow. */
static void add_escaped(struct text *out, const char *text)
{
    for (; *text; text++) {
        if (*text == '<') text_add(out, "&lt;");
        else if (*text == '>') text_add(out, "&gt;");
        else if (*text == '&') text_add(out, "&amp;");
        else if (*text == '"') text_add(out, "&quot;");
        else if ((*text >= ' ' && *text <= '~') || *text == '\n') text_add(out, "%c", *text);
        else text_add(out, "?");
    }
}

static void add_points(struct text *out, const struct figure *figure)
{
    text_add(out, " points=\"");
    for (int i = 0; i < figure->point_count; i++)
        text_add(out, "%s%.2f,%.2f", i ? " " : "", figure->points[i].x, figure->points[i].y);
    text_add(out, "\"");
}

/* An edge lies inside the area, so a box is drawn smaller by half of it on each side. */
static void add_box(struct text *out, const struct figure *figure)
{
    const struct point *from = &figure->points[0], *to = &figure->points[2];
    double half = figure->width / 2;
    text_add(out, "<rect x=\"%.3f\" y=\"%.3f\" width=\"%.3f\" height=\"%.3f\"", from->x + half,
             from->y + half, to->x - from->x - figure->width, to->y - from->y - figure->width);
}

static void add_area(struct text *out, const struct figure *figure)
{
    if (figure->box) {
        add_box(out, figure);
    } else {
        text_add(out, "<polygon");
        add_points(out, figure);
    }
    text_add(out, " fill=\"#%06x\"", figure->colour);
    if (figure->opacity < 1) text_add(out, " fill-opacity=\"%.2f\"", figure->opacity);
    if (figure->width > 0)
        text_add(out, " stroke=\"#%06x\" stroke-width=\"%g\"", figure->edge, figure->width);
    if (!figure->text) {
        text_add(out, "/>\n");
        return;
    }
    text_add(out, "><title>");
    add_escaped(out, figure->text);
    text_add(out, "</title>%s\n", figure->box ? "</rect>" : "</polygon>");
}

static void add_line(struct text *out, const struct figure *figure)
{
    text_add(out, "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%g\" stroke-opacity=\"%.2f\"",
             figure->colour, figure->width, figure->opacity);
    add_points(out, figure);
    text_add(out, "/>\n");
}

static void add_words(struct text *out, const struct figure *figure)
{
    static const char *const anchors[] = {
        [ANCHOR_START] = "start", [ANCHOR_MIDDLE] = "middle", [ANCHOR_END] = "end"};
    const struct lettering *lettering = &figure->lettering;
    const struct point *at = &figure->points[0];
    text_add(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%g\" text-anchor=\"%s\" fill=\"#%06x\"", at->x,
             at->y, lettering->size, anchors[lettering->anchor], lettering->colour);
    if (lettering->bold) text_add(out, " font-weight=\"bold\"");
    if (lettering->upright) text_add(out, " transform=\"rotate(-90 %.2f %.2f)\"", at->x, at->y);
    text_add(out, ">");
    add_escaped(out, figure->text);
    text_add(out, "</text>\n");
}

static void add_group(struct text *out, const struct figure *figure, bool *open)
{
    if (*open) text_add(out, "</g>\n");
    *open = true;
    text_add(out, "<g id=\"");
    add_escaped(out, figure->text);
    text_add(out, "\">\n");
}

static void add_figures(struct text *out, const struct canvas *canvas)
{
    bool open = false;
    for (int i = 0; i < canvas->count; i++) {
        const struct figure *figure = &canvas->figures[i];
        switch (figure->kind) {
        case FIGURE_AREA: add_area(out, figure); break;
        case FIGURE_LINE: add_line(out, figure); break;
        case FIGURE_WORDS: add_words(out, figure); break;
        case FIGURE_GROUP: add_group(out, figure, &open); break;
        }
    }
    if (open) text_add(out, "</g>\n");
}

enum status canvas_write_svg(const struct canvas *canvas, const char *path)
{
    struct text out = {0};
    text_add(&out,
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
             "font-family=\"Helvetica, Arial, sans-serif\">\n<title>",
             canvas->w, canvas->h, canvas->w, canvas->h);
    add_escaped(&out, canvas->title);
    text_add(&out, "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
             "<style>rect { shape-rendering: crispEdges }</style>\n");
    add_figures(&out, canvas);
    text_add(&out, "</svg>\n");
    struct reason reason = {0};
    FILE *file = directory_stream(&directory_working, path, "w", &reason);
    bool good = file && fwrite(out.data, 1, out.length, file) == out.length;
    if (file && fclose(file) != 0) good = false;
    text_free(&out);
    return good ? OK : directory_refuse(&directory_working, path, file ? strerror(errno) : reason.text);
}
