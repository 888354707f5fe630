/* chart.h: a line chart as SVG in an HTML page (html_page.h), whose script shows values under the pointer. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* Where x or y is not finite there is no point. Points come from left to right. */
struct chart_line {
    const char *name;
    const double *x, *y;
    int64_t count;
    bool faint;              /* what lies behind the others */
};

#define CHART_LINES 8        /* for which the page has colours */

struct chart {
    const char *title;
    const char *unit;        /* of y, behind its numbers; NULL: none */
    const char *x_name;      /* "step" */
    double scale;            /* y is shown times that; 0: 1 */
    bool log, from_zero;     /* the axis of y */
    const struct chart_line *lines;
    int count;
    const double *marks;     /* at these x something happened */
    int64_t mark_count;
    const char *mark_name;
};

/* Adds nothing where there is no point to draw. However many there are, the picture has at most a few
 * thousand: of those in one column of pixels, the first, lowest, highest and last. */
void chart_add(const struct chart *chart, struct text *out);
