/* svg.h: writes a picture as SVG 1.1 (W3C, second edition); later elements are drawn on top. */
#pragma once

#include "base/text.h"

/* How a picture begins (base/signature.h). */
#define SVG_SIGNATURE "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n" \
                      "<svg xmlns=\"http://www.w3.org/2000/svg\" " \
                      "width=\"*\" height=\"*\" viewBox=\"0 0 *\" " \
                      "font-family=\"Helvetica, Arial, sans-serif\">\n<title>*"

struct svg {
    double w, h;
    struct text body;
    bool in_group;
};

/* Pixels, x to the right and y down. */
struct point {
    double x, y;
};
struct rect {
    double x, y, w, h;
};

/* Colours are 0xRRGGBB. A width of 0 draws no line. */
struct svg_stroke {
    uint32_t colour;
    double width;
    double opacity;              /* 0 to 1 */
};

enum svg_anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };
struct svg_font {
    double size;                 /* pixels */
    uint32_t colour;
    enum svg_anchor anchor;
    bool bold;
    bool upright;                /* read from below */
};

/* A picture of w x h pixels; in a narrower window or frame of a browser it is smaller. */
struct svg svg_open(double w, double h, const char *title);
void svg_free(struct svg *svg);

/* Begins the group with this id, which extends to the next one. */
void svg_group(struct svg *svg, const char *id);

/* The stroke is inside. Browsers show the title as a tooltip; NULL: none. */
void svg_rect(struct svg *svg, struct rect rect, uint32_t fill, struct svg_stroke stroke, const char *title);
void svg_polygon(struct svg *svg, const struct point *points, int count, uint32_t fill);
void svg_polyline(struct svg *svg, const struct point *points, int count, struct svg_stroke stroke);

/* `at` is on the baseline. */
void svg_text(struct svg *svg, struct point at, struct svg_font font, const char *text);

/* The approximate width of a text: substitutes of Helvetica differ. */
double svg_text_width(const struct svg_font *font, const char *text);

/* Ends the picture, whose text is valid until svg_free. */
const struct text *svg_end(struct svg *svg);
