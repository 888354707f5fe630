#include "format/chart.h"

#include <math.h>
#include <stdlib.h>

#include "base/memory.h"

#define WIDTH 480.0
#define HEIGHT 240.0
#define LEFT 52.0
#define RIGHT 12.0
#define TOP 12.0
#define BOTTOM 30.0
#define COLUMNS 320          /* of points */
#define WIDE 12              /* the largest value, in medians, from which on log_if_wide applies */

struct axis {
    double least, most;      /* range of values, or of their logarithms */
    double from, to;         /* pixels */
    bool log;
};

/* Both axes; that of x is drawn below, that of y on the left. */
struct axes {
    struct axis x, y;
};

static double at(const struct axis *axis, double value)
{
    if (axis->log) value = log10(value);
    return axis->from + (axis->to - axis->from) * (value - axis->least) / (axis->most - axis->least);
}

static double value_of(const struct chart *chart, const struct chart_line *line, int64_t i)
{
    return line->y[i] * (chart->scale != 0 ? chart->scale : 1);
}

static bool is_point(const struct chart *chart, const struct chart_line *line, int64_t i)
{
    return isfinite(line->x[i]) && isfinite(line->y[i]) && (!chart->log || line->y[i] > 0);
}

static int by_size(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* True if all values are positive and the largest is many times the median. */
static bool is_wide(const struct chart *chart)
{
    double *values = NULL;
    int64_t count = 0;
    for (int l = 0; l < chart->count; l++)
        for (int64_t i = 0; i < chart->lines[l].count; i++)
            if (is_point(chart, &chart->lines[l], i)) *array_push(values, count) = chart->lines[l].y[i];
    if (count > 0) qsort(values, (size_t)count, sizeof *values, by_size);
    bool wide = count > 0 && values[0] > 0 && values[count - 1] > WIDE * values[count / 2];
    free(values);
    return wide;
}

/* False if there is no point. */
static bool find_range(const struct chart *chart, struct axis *x, struct axis *y)
{
    x->least = y->least = INFINITY;
    x->most = y->most = -INFINITY;
    for (int l = 0; l < chart->count; l++)
        for (int64_t i = 0; i < chart->lines[l].count; i++) {
            if (!is_point(chart, &chart->lines[l], i)) continue;
            double value = value_of(chart, &chart->lines[l], i);
            if (y->log) value = log10(value);
            x->least = fmin(x->least, chart->lines[l].x[i]);
            x->most = fmax(x->most, chart->lines[l].x[i]);
            y->least = fmin(y->least, value);
            y->most = fmax(y->most, value);
        }
    if (x->least > x->most) return false;
    for (int64_t i = 0; i < chart->mark_count; i++) {
        x->least = fmin(x->least, chart->marks[i]);
        x->most = fmax(x->most, chart->marks[i]);
    }
    return true;
}

/* Differences below this share are rounding, and too small for steps between ticks. */
#define NEARLY_EQUAL 1e-9

/* Margins around the points, also if all are nearly equal. */
static void widen(struct axis *axis, double share, bool from_zero)
{
    if (from_zero && axis->least > 0) axis->least = 0;
    double margin = share * (axis->most - axis->least);
    if (axis->most - axis->least <= NEARLY_EQUAL * fabs(axis->most))
        margin = axis->log ? 0.2 : fmax(0.5, 0.1 * fabs(axis->most));
    if (!from_zero || axis->least != 0) axis->least -= margin;
    axis->most += margin;
}

double chart_step(double range, int wanted)
{
    double raw = range / wanted, power = pow(10, floor(log10(raw))), share = raw / power;
    return power * (share <= 1 ? 1 : share <= 2 ? 2 : share <= 5 ? 5 : 10);
}

static void add_number(struct text *out, double value)
{
    static const char *const units[] = {"", "k", "M", "G", "T"};
    int unit = 0;
    if (fabs(value) >= 10000)
        while (fabs(value) >= 1000 && unit < 4) value /= 1000, unit++;
    text_add(out, "%.6g%s", value, units[unit]);
}

static void add_tick(const struct axes *axes, bool across, double value, struct text *out)
{
    const struct axis *x = &axes->x, *y = &axes->y;
    double pixel = at(across ? x : y, value);
    if (across)
        text_add(out, "<path class=\"grid\" d=\"M%.1f %gV%g\"/><text class=\"x\" x=\"%.1f\" y=\"%g\">",
                 pixel, y->to, y->from, pixel, y->from + 14);
    else
        text_add(out, "<path class=\"grid\" d=\"M%g %.1fH%g\"/><text class=\"y\" x=\"%g\" y=\"%.1f\">",
                 x->from, pixel, x->to, x->from - 6, pixel + 4);
    add_number(out, value);
    text_add(out, "</text>\n");
}

static void add_ticks(const struct axes *axes, bool across, struct text *out)
{
    const struct axis *axis = across ? &axes->x : &axes->y;
    double range = axis->most - axis->least;
    double step = axis->log ? fmax(1, ceil(range / 6)) : chart_step(range, 6);
    for (double tick = ceil(axis->least / step); tick * step <= axis->most; tick++) {
        double value = tick * step + 0.0;                      /* -0 becomes 0 */
        if (!axis->log) add_tick(axes, across, value, out);
        else add_tick(axes, across, pow(10, value), out);
    }
    if (!axis->log || range > 2) return;
    for (double decade = floor(axis->least); decade <= axis->most; decade++)
        for (int digit = 2; digit <= 5; digit += 3)
            if (decade + log10(digit) >= axis->least && decade + log10(digit) <= axis->most)
                add_tick(axes, across, digit * pow(10, decade), out);
}

/* Points in one column of pixels, by index. */
struct column {
    int64_t first, lowest, highest, last;
};

static void add_column(const struct chart_line *line, const struct column *column, const struct axis *x,
                       const struct axis *y, double scale, struct text *out)
{
    bool falls = column->highest < column->lowest;
    const int64_t points[] = {column->first, falls ? column->highest : column->lowest,
                              falls ? column->lowest : column->highest, column->last};
    for (int i = 0; i < 4; i++)
        if (i == 0 || points[i] != points[i - 1])
            text_add(out, " %.1f,%.1f", at(x, line->x[points[i]]), at(y, scale * line->y[points[i]]));
}

static void add_line(const struct chart *chart, int l, const struct axis *x, const struct axis *y,
                     struct text *out)
{
    const struct chart_line *line = &chart->lines[l];
    double scale = chart->scale != 0 ? chart->scale : 1;
    struct column column;
    int now = -1;
    text_add(out, "<polyline class=\"line c%d%s\" data-name=\"", l, line->faint ? " faint" : "");
    text_html(out, line->name);
    text_add(out, "\" points=\"");
    for (int64_t i = 0; i < line->count; i++) {
        if (!is_point(chart, line, i)) continue;
        int where = (int)(COLUMNS * (line->x[i] - x->least) / (x->most - x->least));
        if (where != now) {
            if (now >= 0) add_column(line, &column, x, y, scale, out);
            column = (struct column){i, i, i, i};
            now = where;
        }
        if (line->y[i] < line->y[column.lowest]) column.lowest = i;
        if (line->y[i] > line->y[column.highest]) column.highest = i;
        column.last = i;
    }
    if (now >= 0) add_column(line, &column, x, y, scale, out);
    text_add(out, "\"/>\n");
}

static void add_marks(const struct chart *chart, const struct axis *x, struct text *out)
{
    double before = -1;
    for (int64_t i = 0; i < chart->mark_count; i++) {
        double pixel = at(x, chart->marks[i]);
        if (pixel < before + 1) continue;
        text_add(out, "%sM%.1f %gl-3 -6h6z", before < 0 ? "<path class=\"mark\" d=\"" : "", pixel, TOP + 6);
        before = pixel;
    }
    if (before >= 0) text_add(out, "\"/>\n");
}

static void add_caption(const struct chart *chart, struct text *out)
{
    text_add(out, "<figcaption><b>");
    text_html(out, chart->title);
    text_add(out, "</b>%s%s", chart->unit ? ", " : "", chart->unit ? chart->unit : "");
    for (int l = 0; l < chart->count && chart->count > 1; l++) {
        text_add(out, " <span class=\"key c%d%s\">", l, chart->lines[l].faint ? " faint" : "");
        text_html(out, chart->lines[l].name);
        text_add(out, "</span>");
    }
    if (chart->mark_count > 0) text_add(out, " <span class=\"key mark\">%s</span>", chart->mark_name);
    text_add(out, "<output></output></figcaption>\n");
}

static void draw_chart(const struct chart *chart, struct text *out)
{
    struct axes axes = {{.from = LEFT, .to = WIDTH - RIGHT},
                        {.from = HEIGHT - BOTTOM, .to = TOP, .log = chart->log}};
    const struct axis *x = &axes.x, *y = &axes.y;
    if (!find_range(chart, &axes.x, &axes.y)) return;
    widen(&axes.x, 0, false);
    widen(&axes.y, 0.05, chart->from_zero);
    text_add(out, "<figure>");
    add_caption(chart, out);
    text_add(out, "<svg class=\"chart\" viewBox=\"0 0 %g %g\" role=\"img\" aria-label=\"", WIDTH, HEIGHT);
    text_html(out, chart->title);
    text_add(out, "\" data-x=\"%.9g %g %.9g %g\" data-y=\"%.9g %g %.9g %g\" data-log=\"%d\" "
             "data-name=\"%s\">\n", x->least, x->from, x->most, x->to, y->least, y->from, y->most, y->to,
             y->log, chart->x_name);
    add_ticks(&axes, true, out);
    add_ticks(&axes, false, out);
    text_add(out, "<text class=\"x\" x=\"%g\" y=\"%g\">%s</text>\n", (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 4,
             chart->x_name);
    for (int l = 0; l < chart->count; l++) add_line(chart, l, x, y, out);
    add_marks(chart, x, out);
    text_add(out, "<path class=\"rule\" d=\"\"/></svg></figure>\n");
}

void chart_add(const struct chart *chart, struct text *out)
{
    struct chart drawn = *chart;
    drawn.log = chart->log || (chart->log_if_wide && is_wide(chart));
    draw_chart(&drawn, out);
}

/* ---- Points ---- */

#define SIDE 360.0
#define MANY 1000            /* points, more of which are drawn small, */
#define FEW 50               /* and up to this many large */
#define DOTS 2               /* a pixel, each way: points of one are drawn once */

static bool is_dot(const struct scatter *scatter, int64_t i)
{
    return isfinite(scatter->x[i]) && isfinite(scatter->y[i]);
}

/* One range for both axes, which the line of equal values crosses from corner to corner. */
static bool find_square(const struct scatter *scatter, struct axes *axes)
{
    struct axis *x = &axes->x;
    *axes = (struct axes){{INFINITY, -INFINITY, .from = LEFT, .to = SIDE - RIGHT},
                          {.from = SIDE - BOTTOM, .to = TOP}};
    for (int64_t i = 0; i < scatter->count; i++) {
        if (!is_dot(scatter, i)) continue;
        x->least = fmin(x->least, fmin(scatter->x[i], scatter->y[i]));
        x->most = fmax(x->most, fmax(scatter->x[i], scatter->y[i]));
    }
    if (!isfinite(x->most - x->least)) return false;       /* none, or absurd ones */
    widen(x, 0.04, false);
    axes->y.least = x->least;
    axes->y.most = x->most;
    return true;
}

static void add_dots(const struct scatter *scatter, const struct axes *axes, struct text *out)
{
    enum { SLOTS = (int)SIDE * DOTS };
    bool *drawn = memory_new((size_t)SLOTS * SLOTS, sizeof *drawn);
    text_add(out, "<path class=\"dots%s\" d=\"",
             scatter->count > MANY ? " many" : scatter->count <= FEW ? " few" : "");
    for (int64_t i = 0; i < scatter->count; i++) {
        if (!is_dot(scatter, i)) continue;
        int x = (int)lround(DOTS * at(&axes->x, scatter->x[i]));
        int y = (int)lround(DOTS * at(&axes->y, scatter->y[i]));
        if (drawn[y * SLOTS + x]) continue;
        drawn[y * SLOTS + x] = true;
        text_add(out, "M%g %gh0", (double)x / DOTS, (double)y / DOTS);
    }
    text_add(out, "\"/>\n");
    free(drawn);
}

void chart_add_scatter(const struct scatter *scatter, struct text *out)
{
    struct axes axes;
    if (!find_square(scatter, &axes)) return;
    text_add(out, "<figure><figcaption><b>");
    text_html(out, scatter->title);
    text_add(out, "</b></figcaption>\n<svg class=\"scatter\" viewBox=\"0 0 %g %g\" role=\"img\" "
             "aria-label=\"", SIDE, SIDE);
    text_html(out, scatter->title);
    text_add(out, "\">\n");
    add_ticks(&axes, true, out);
    add_ticks(&axes, false, out);
    text_add(out, "<path class=\"rule\" d=\"M%g %gL%g %g\"/>\n", axes.x.from, axes.y.from, axes.x.to,
             axes.y.to);
    add_dots(scatter, &axes, out);
    text_add(out, "<text class=\"x\" x=\"%g\" y=\"%g\">%s</text>\n", (LEFT + SIDE - RIGHT) / 2, SIDE - 3,
             scatter->x_name);
    text_add(out, "<text class=\"x\" transform=\"translate(11 %g) rotate(-90)\">%s</text></svg></figure>\n",
             (TOP + SIDE - BOTTOM) / 2, scatter->y_name);
}
