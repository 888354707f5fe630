#include "format/svg.h"

#include <string.h>

struct svg svg_open(double w, double h, const char *title)
{
    struct svg svg = {.w = w, .h = h};
    text_add(&svg.body,
             "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
             "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%g\" height=\"%g\" viewBox=\"0 0 %g %g\" "
             "font-family=\"Helvetica, Arial, sans-serif\">\n<title>", w, h, w, h);
    text_html(&svg.body, title);
    text_add(&svg.body, "</title>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n"
             "<style>svg { max-width: 100%%; height: auto } "
             "rect { shape-rendering: crispEdges }</style>\n");
    return svg;
}

void svg_free(struct svg *svg)
{
    text_free(&svg->body);
    *svg = (struct svg){0};
}

void svg_group(struct svg *svg, const char *id)
{
    text_add(&svg->body, "%s<g id=\"%s\">\n", svg->in_group ? "</g>\n" : "", id);
    svg->in_group = true;
}

void svg_rect(struct svg *svg, struct rect rect, uint32_t fill, struct svg_stroke stroke, const char *title)
{
    double half = stroke.width / 2;
    text_add(&svg->body, "<rect x=\"%.3f\" y=\"%.3f\" width=\"%.3f\" height=\"%.3f\" fill=\"#%06x\"",
             rect.x + half, rect.y + half, rect.w - stroke.width, rect.h - stroke.width, fill);
    if (stroke.width > 0)
        text_add(&svg->body, " stroke=\"#%06x\" stroke-width=\"%g\"", stroke.colour, stroke.width);
    if (title) {
        text_add(&svg->body, "><title>");
        text_html(&svg->body, title);
        text_add(&svg->body, "</title></rect>\n");
    } else {
        text_add(&svg->body, "/>\n");
    }
}

static void add_points(struct text *out, const struct point *points, int count)
{
    text_add(out, " points=\"");
    for (int i = 0; i < count; i++) text_add(out, "%s%.2f,%.2f", i ? " " : "", points[i].x, points[i].y);
    text_add(out, "\"/>\n");
}

void svg_polygon(struct svg *svg, const struct point *points, int count, uint32_t fill)
{
    text_add(&svg->body, "<polygon fill=\"#%06x\"", fill);
    add_points(&svg->body, points, count);
}

void svg_polyline(struct svg *svg, const struct point *points, int count, struct svg_stroke stroke)
{
    text_add(&svg->body,
             "<polyline fill=\"none\" stroke=\"#%06x\" stroke-width=\"%g\" stroke-opacity=\"%.2f\"",
             stroke.colour, stroke.width, stroke.opacity);
    add_points(&svg->body, points, count);
}

void svg_text(struct svg *svg, struct point at, struct svg_font font, const char *text)
{
    static const char *const anchors[] = {
        [ANCHOR_START] = "start", [ANCHOR_MIDDLE] = "middle", [ANCHOR_END] = "end"};
    struct text *out = &svg->body;
    text_add(out, "<text x=\"%.2f\" y=\"%.2f\" font-size=\"%g\" text-anchor=\"%s\" fill=\"#%06x\"", at.x,
             at.y, font.size, anchors[font.anchor], font.colour);
    if (font.bold) text_add(out, " font-weight=\"bold\"");
    if (font.upright) text_add(out, " transform=\"rotate(-90 %.2f %.2f)\"", at.x, at.y);
    text_add(out, ">");
    text_html(out, text);
    text_add(out, "</text>\n");
}

/* Classes of Helvetica's characters by width, in shares of the font's size; all others are 0.6. */
double svg_text_width(const struct svg_font *font, const char *text)
{
    double width = 0;
    for (; *text; text++)
        width += strchr("ijl|'", *text) ? 0.23 : strchr(" ftI.,:;!/\\[]()-r", *text) ? 0.3
                 : strchr("mMWw%@", *text) ? 0.85 : *text >= 'A' && *text <= 'Z' ? 0.7 : 0.6;
    return width * font->size;
}

const struct text *svg_end(struct svg *svg)
{
    text_add(&svg->body, "%s</svg>\n", svg->in_group ? "</g>\n" : "");
    return &svg->body;
}
