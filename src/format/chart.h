/* chart.h: a line chart as SVG in an HTML page (html_page.h), whose script shows values under the pointer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* Points with x or y not finite are left out, and those with y <= 0 on a logarithmic axis. They are ordered
 * by x. */
struct chart_line {
    const char *name;
    const double *x, *y;
    int64_t count;
    bool faint;              /* drawn behind the others */
};

#define CHART_LINES 8        /* number of colours of the page */

struct chart {
    const char *title;
    const char *unit;        /* unit of y; NULL: none */
    const char *x_name;      /* "step" */
    double scale;            /* y is shown times that; 0: 1 */
    bool log, from_zero;     /* the axis of y */
    bool log_if_wide;        /* log if few high values would make the others look like zero */
    const struct chart_line *lines;
    int count;
    const double *marks;     /* at these x, which are finite, something happened */
    int64_t mark_count;
    const char *mark_name;
};

/* Adds nothing if there is no point. The picture has at most a few thousand points: of those in one column of
 * pixels, the first, lowest, highest and last. */
void chart_add(const struct chart *chart, struct text *out);

/* Points of x and y, which have the same unit, beside the line on which they are equal. */
struct scatter {
    const char *title, *x_name, *y_name;
    const double *x, *y;
    int64_t count;
};

/* Adds nothing if there is no point that is finite. */
void chart_add_scatter(const struct scatter *scatter, struct text *out);

/* 1, 2 or 5 times a power of ten: a distance of ticks, so that about `wanted` of them, not more, are in a
 * range above 0. */
double chart_step(double range, int wanted);
