/* canvas_png.c: a canvas as pixels: each figure's share of each pixel is worked out, and its colour laid over
 * by that share. Written by libpng. */
#include <errno.h>
#include <math.h>
#include <png.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "canvas.h"
#include "letters.h"

struct pixels {
    int w, h;
    double scale;
    uint8_t *rgb;
    float *share;            /* [h, w + 2]: of each pixel, how much the figure covers; zero between figures */
    int x0, y0, x1, y1;      /* where share is in use */
};

static float *share_row(const struct pixels *pixels, int y)
{
    return &pixels->share[(size_t)y * (size_t)(pixels->w + 2)];
}

static void reach(struct pixels *pixels, double x0, double y0, double x1, double y1)
{
    pixels->x0 = (int)fmax(0, fmin(pixels->w, floor(x0)));
    pixels->y0 = (int)fmax(0, fmin(pixels->h, floor(y0)));
    pixels->x1 = (int)fmax(0, fmin(pixels->w, ceil(x1)));
    pixels->y1 = (int)fmax(0, fmin(pixels->h, ceil(y1)));
}

static void blend(struct pixels *pixels, uint32_t colour, double opacity)
{
    const uint8_t parts[] = {(uint8_t)(colour >> 16), (uint8_t)(colour >> 8), (uint8_t)colour};
    for (int y = pixels->y0; y < pixels->y1; y++)
        for (int x = pixels->x0; x < pixels->x1; x++) {
            float *share = &share_row(pixels, y)[x];
            uint8_t *to = &pixels->rgb[3 * ((size_t)y * (size_t)pixels->w + (size_t)x)];
            double by = fmin(1, fabs(*share)) * opacity;
            for (int c = 0; c < 3 && by > 0; c++) to[c] = (uint8_t)lround(to[c] + by * (parts[c] - to[c]));
            *share = 0;
        }
}

/* The part of an edge that lies in one row of pixels, as differences from pixel to pixel: all that is right
 * of it gains `dy`. */
static void edge_in_row(const struct pixels *pixels, float *row, double xa, double xb, double dy)
{
    double left = fmin(pixels->w, fmax(0, fmin(xa, xb))), right = fmin(pixels->w, fmax(0, fmax(xa, xb)));
    for (int x = (int)left; x <= (int)right; x++) {
        double from = fmax(left, x), to = fmin(right, x + 1);
        double part = right - left > 1e-9 ? dy * (to - from) / (right - left) : dy;
        double covered = x + 1 - (from + to) / 2;
        row[x] += (float)(part * covered);
        row[x + 1] += (float)(part * (1 - covered));
        if (right - left <= 1e-9) return;
    }
}

static void edge(const struct pixels *pixels, struct point a, struct point b)
{
    double sign = a.y < b.y ? 1 : -1;
    if (a.y == b.y) return;
    if (a.y > b.y) {
        struct point swap = a;
        a = b;
        b = swap;
    }
    double top = fmax(0, a.y), bottom = fmin(pixels->h, b.y), slope = (b.x - a.x) / (b.y - a.y);
    for (int y = (int)top; y < bottom; y++) {
        double from = fmax(top, y), to = fmin(bottom, y + 1);
        edge_in_row(pixels, share_row(pixels, y), a.x + slope * (from - a.y), a.x + slope * (to - a.y),
                    sign * (to - from));
    }
}

static void fill(struct pixels *pixels, const struct point *points, int count, uint32_t colour,
                 double opacity)
{
    double x0 = 1e9, y0 = 1e9, x1 = -1e9, y1 = -1e9;
    for (int i = 0; i < count; i++) {
        edge(pixels, points[i], points[(i + 1) % count]);
        x0 = fmin(x0, points[i].x), x1 = fmax(x1, points[i].x);
        y0 = fmin(y0, points[i].y), y1 = fmax(y1, points[i].y);
    }
    reach(pixels, x0, y0, x1 + 2, y1);
    for (int y = pixels->y0; y < pixels->y1; y++)
        for (int x = pixels->x0 + 1; x < pixels->x1; x++)
            share_row(pixels, y)[x] += share_row(pixels, y)[x - 1];
    blend(pixels, colour, opacity);
    /* Behind the last column lies what the right edge took away. */
    for (int y = pixels->y0; y < pixels->y1; y++)
        share_row(pixels, y)[pixels->w] = share_row(pixels, y)[pixels->w + 1] = 0;
}

static double distance(double x, double y, struct point a, struct point b)
{
    double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    double t = length > 0 ? fmin(1, fmax(0, ((x - a.x) * dx + (y - a.y) * dy) / length)) : 0;
    return hypot(x - a.x - t * dx, y - a.y - t * dy);
}

/* A line with round ends. Where its parts overlap, it is no darker. */
static void draw_line(struct pixels *pixels, const struct point *points, int count, double width,
                      uint32_t colour, double opacity)
{
    double half = width / 2, x0 = 1e9, y0 = 1e9, x1 = -1e9, y1 = -1e9;
    for (int i = 0; i < count; i++) {
        struct point a = points[i], b = points[i + 1 < count ? i + 1 : i];
        reach(pixels, fmin(a.x, b.x) - half - 1, fmin(a.y, b.y) - half - 1, fmax(a.x, b.x) + half + 1,
              fmax(a.y, b.y) + half + 1);
        for (int y = pixels->y0; y < pixels->y1; y++)
            for (int x = pixels->x0; x < pixels->x1; x++) {
                double share = fmin(fmin(1, width), half + 0.5 - distance(x + 0.5, y + 0.5, a, b));
                float *old = &share_row(pixels, y)[x];
                if (share > *old) *old = (float)share;
            }
        x0 = fmin(x0, a.x), x1 = fmax(x1, a.x);
        y0 = fmin(y0, a.y), y1 = fmax(y1, a.y);
    }
    reach(pixels, x0 - half - 1, y0 - half - 1, x1 + half + 1, y1 + half + 1);
    blend(pixels, colour, opacity);
}

static struct point scaled(const struct pixels *pixels, struct point point)
{
    return (struct point){point.x * pixels->scale, point.y * pixels->scale};
}

static void draw_points(struct pixels *pixels, const struct figure *figure)
{
    struct point *points = memory_new((size_t)figure->point_count + 1, sizeof *points);
    for (int i = 0; i < figure->point_count; i++) points[i] = scaled(pixels, figure->points[i]);
    if (figure->kind == FIGURE_AREA)
        fill(pixels, points, figure->point_count, figure->colour, figure->opacity);
    else
        draw_line(pixels, points, figure->point_count, figure->width * pixels->scale, figure->colour,
                  figure->opacity);
    free(points);
}

/* The sides of boxes lie between pixels, so that none shows through where two boxes touch. */
static void snap(double *from, double *to)
{
    if (round(*from) == round(*to)) return;
    *from = round(*from);
    *to = round(*to);
}

/* A box with an edge is a box in the edge's colour, with a smaller one over it. */
static void draw_box(struct pixels *pixels, const struct figure *figure)
{
    struct point from = scaled(pixels, figure->points[0]), to = scaled(pixels, figure->points[2]);
    double edge = figure->width * pixels->scale;
    snap(&from.x, &to.x);
    snap(&from.y, &to.y);
    const struct point outer[] = {from, {to.x, from.y}, to, {from.x, to.y}};
    const struct point inner[] = {{from.x + edge, from.y + edge}, {to.x - edge, from.y + edge},
                                  {to.x - edge, to.y - edge}, {from.x + edge, to.y - edge}};
    fill(pixels, outer, 4, edge > 0 ? figure->edge : figure->colour, figure->opacity);
    if (edge > 0) fill(pixels, inner, 4, figure->colour, figure->opacity);
}

struct pen {
    struct pixels *pixels;
    const struct lettering *lettering;
    struct point origin;     /* of the words, in the canvas */
    double along;            /* what the character before have taken, in the canvas */
};

double canvas_width(const struct lettering *lettering, const char *text)
{
    double width = 0;
    for (; *text; text++) width += letter_advance(*text);
    return width * lettering->size * LETTER_UNIT;
}

static void draw_stroke(void *context, const struct point *points, int count)
{
    const struct pen *pen = context;
    const struct lettering *lettering = pen->lettering;
    struct point *placed = memory_new((size_t)count, sizeof *placed);
    double unit = lettering->size * LETTER_UNIT;
    for (int i = 0; i < count; i++) {
        double along = pen->along + points[i].x * unit, up = points[i].y * unit;
        placed[i] = lettering->upright ? (struct point){pen->origin.x - up, pen->origin.y - along}
                                       : (struct point){pen->origin.x + along, pen->origin.y - up};
        placed[i] = scaled(pen->pixels, placed[i]);
    }
    double width = lettering->size * (lettering->bold ? LETTER_STROKE_BOLD : LETTER_STROKE);
    draw_line(pen->pixels, placed, count, width * pen->pixels->scale, lettering->colour, 1);
    free(placed);
}

static void draw_words(struct pixels *pixels, const struct figure *figure)
{
    static const double before[] = {[ANCHOR_START] = 0, [ANCHOR_MIDDLE] = 0.5, [ANCHOR_END] = 1};
    const struct lettering *lettering = &figure->lettering;
    struct pen pen = {pixels, lettering, figure->points[0], 0};
    pen.along = -before[lettering->anchor] * canvas_width(lettering, figure->text);
    for (const char *at = figure->text; *at; at++) {
        letter_strokes(*at, draw_stroke, &pen);
        pen.along += letter_advance(*at) * lettering->size * LETTER_UNIT;
    }
}

static void draw(struct pixels *pixels, const struct figure *figure)
{
    switch (figure->kind) {
    case FIGURE_AREA: figure->box ? draw_box(pixels, figure) : draw_points(pixels, figure); break;
    case FIGURE_LINE: draw_points(pixels, figure); break;
    case FIGURE_WORDS: draw_words(pixels, figure); break;
    case FIGURE_GROUP: break;
    }
}

enum status canvas_write_png(const struct canvas *canvas, const char *path, double scale)
{
    struct pixels pixels = {
        .w = (int)ceil(canvas->w * scale), .h = (int)ceil(canvas->h * scale), .scale = scale};
    size_t count = (size_t)pixels.w * (size_t)pixels.h;
    pixels.rgb = memory_new(count, 3);
    memset(pixels.rgb, 255, 3 * count);
    pixels.share = memory_new((size_t)pixels.h * (size_t)(pixels.w + 2), sizeof *pixels.share);
    for (int i = 0; i < canvas->count; i++) draw(&pixels, &canvas->figures[i]);
    png_image image = {.version = PNG_IMAGE_VERSION, .format = PNG_FORMAT_RGB};
    image.width = (unsigned)pixels.w;
    image.height = (unsigned)pixels.h;
    bool good = png_image_write_to_file(&image, path, 0, pixels.rgb, 0, NULL) != 0;
    free(pixels.share);
    free(pixels.rgb);
    return good ? OK : fail(FAILED, "%s: cannot be written: %s", path, image.message);
}
