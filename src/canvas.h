/* canvas.h: a picture of areas, boxes, lines and words, drawn once and written as SVG and as PNG. */
#ifndef CANVAS_H
#define CANVAS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Pixels of the SVG, x to the right and y down. */
struct point {
    double x, y;
};

enum figure_kind { FIGURE_AREA, FIGURE_LINE, FIGURE_WORDS, FIGURE_GROUP };
enum anchor { ANCHOR_START, ANCHOR_MIDDLE, ANCHOR_END };

/* How words look; colours are 0xRRGGBB. */
struct lettering {
    double size;                 /* of the font, pixels */
    uint32_t colour;
    enum anchor anchor;
    bool bold;
    bool upright;                /* read from below */
};

struct figure {
    enum figure_kind kind;
    struct point *points;        /* of an area or a line; words: where they stand, on their baseline */
    int point_count;
    bool box;                    /* an area that is an upright rectangle */
    uint32_t colour;
    double opacity;
    double width;                /* of a line; of the edge that an area has inside, 0: none */
    uint32_t edge;
    char *text;                  /* words; a group's name; what an area says when it is pointed at, or NULL */
    struct lettering lettering;
};

struct canvas {
    double w, h;
    char *title;
    struct figure *figures;
    int count;
};
struct canvas canvas_make(double w, double h, const char *title);
void canvas_free(struct canvas *canvas);

/* What is drawn later lies over what was drawn before. The figure that they return can be told more. */
struct figure *canvas_box(struct canvas *canvas, struct point corner, double w, double h, uint32_t colour);
struct figure *canvas_area(struct canvas *canvas, const struct point *points, int count, uint32_t colour);
struct figure *canvas_line(struct canvas *canvas, const struct point *points, int count, double width,
                           uint32_t colour);
struct figure *canvas_words(struct canvas *canvas, struct point at, struct lettering lettering,
                            const char *text);

/* What follows is a group of this name in the SVG, up to the next one. */
void canvas_group(struct canvas *canvas, const char *name);

/* How wide words will be in the PNG: an SVG's reader has a font of its own, which is hardly wider. */
double canvas_width(const struct lettering *lettering, const char *text);

enum status canvas_write_svg(const struct canvas *canvas, const char *path);
/* `scale`: pixels of the PNG to one of the SVG. */
enum status canvas_write_png(const struct canvas *canvas, const char *path, double scale);

#endif
