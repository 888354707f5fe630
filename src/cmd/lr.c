/* The learning-rate range test (Smith 2017): the rate increases from step to step until the loss diverges. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/atomic_file.h"
#include "base/log.h"
#include "base/memory.h"
#include "cmd/cmd.h"
#include "format/svg.h"
#include "measure/bench.h"
#include "session/session_open.h"

#define STEPS 100
#define BELOW 1e-4         /* fraction of the optimizer's usual rate at the start */
#define ABOVE 1e3          /* where it ends */
#define MEMORY 0.9         /* of the running mean of the losses */
#define DIVERGED 4.0       /* times the lowest */
#define WINDOW 5           /* one part in so many of the steps: what a slope is measured over */
#define CLEAR 4.0          /* standard errors of a slope that is no chance */
#define STEEP 0.75         /* of the steepest slope */

struct range {
    int count;                 /* of steps made */
    double *rates, *losses;    /* [count] */
    double *smooth;            /* [count]: the losses' running means */
    int lowest, steepest;      /* points of the curve */
    double suggestion;
};

static enum status make_steps(struct bench *bench, struct range *range)
{
    double usual = bench->session.hyper.optimizer->lr, momentum = bench->session.hyper.schedule.momentum;
    double running = 0;
    for (int i = 0; i < bench->steps; i++) {
        double rate = usual * BELOW * pow(ABOVE / BELOW, (double)i / (bench->steps - 1));
        const struct update_rates rates = {
            .lr = {rate, rate}, .momentum = {momentum, momentum},
            .updates = exec_state(bench->step.exec)->updates,
        };
        TRY(bench_step(bench, &rates));
        running = MEMORY * running + (1 - MEMORY) * bench->loss;
        double smooth = running / (1 - pow(MEMORY, i + 1));
        if (!isfinite(smooth)) return OK;
        range->rates[i] = rate;
        range->losses[i] = bench->loss;
        range->smooth[i] = smooth;
        range->count = i + 1;
        if (smooth > DIVERGED * range->smooth[range->lowest]) return OK;
        if (smooth < range->smooth[range->lowest]) range->lowest = i;
    }
    return OK;
}

/* The least-squares slope of the `window` losses up to point `end`, per step. */
static double slope_to(const struct range *range, int end, int window)
{
    double middle = (window - 1) / 2.0, sum = 0, squares = 0;
    for (int i = 0; i < window; i++) {
        sum += (i - middle) * range->losses[end - window + 1 + i];
        squares += (i - middle) * (i - middle);
    }
    return sum / squares;
}

/* The standard deviation of such slopes if losses only differ by chance, from differences between neighbours
 * up to the minimum. */
static double slope_error(const struct range *range, int window)
{
    double squares = 0;
    for (int i = 1; i <= range->lowest; i++)
        squares += pow(range->losses[i] - range->losses[i - 1], 2) / 2 / range->lowest;
    return sqrt(12 * squares / (window * (pow(window, 2) - 1)));
}

/* The largest rate at which the loss falls about as fast as at any before its minimum, but at most a quarter
 * of the rate at the minimum, because the running mean lags by ten steps. Rounded to two digits. */
static enum status find_suggestion(int steps, struct range *range)
{
    int window = steps / WINDOW;
    double fastest = 0;
    for (int i = window - 1; i <= range->lowest; i++) fastest = fmin(fastest, slope_to(range, i, window));
    if (fastest == 0 || -fastest < CLEAR * slope_error(range, window))
        return fail(FAILED, "lr: the loss does not clearly fall at any learning rate; try more --steps or a "
                            "larger train.batch, or check the data and the network");
    for (int i = window - 1; i <= range->lowest; i++)
        if (slope_to(range, i, window) <= STEEP * fastest) range->steepest = i;
    double rate = fmin(range->rates[range->steepest], range->rates[range->lowest] / 4);
    double digit = pow(10, floor(log10(rate)) - 1);
    range->suggestion = round(rate / digit) * digit;
    return OK;
}

static void print_json(const struct range *range)
{
    struct text out = {0};
    text_add(&out, "{\"suggestion\":%.6g,\"steepest\":%.6g,\"lowest\":%.6g,\"points\":[", range->suggestion,
             range->rates[range->steepest], range->rates[range->lowest]);
    for (int i = 0; i < range->count; i++)
        text_add(&out, "%s{\"lr\":%.6g,\"loss\":%.6g}", i ? "," : "", range->rates[i], range->smooth[i]);
    printf("%s]}\n", out.data);
    text_free(&out);
}

/* The picture. */

#define WIDTH 720
#define HEIGHT 400
#define MARGIN 60

static double x_of(const struct range *range, double rate)
{
    double first = log(range->rates[0]), last = log(range->rates[range->count - 1]);
    return MARGIN + (log(rate) - first) / (last - first) * (WIDTH - 2 * MARGIN);
}

/* Losses 50 % above the first one are cut off. */
static double top_of(const struct range *range)
{
    return 1.5 * range->smooth[0];
}

static double y_of(const struct range *range, double loss)
{
    double top = top_of(range), bottom = range->smooth[range->lowest];
    return MARGIN + (top - fmin(loss, top)) / (top - bottom) * (HEIGHT - 2 * MARGIN);
}

static const struct svg_font axis_font = {12, 0x404040, ANCHOR_MIDDLE, false, false};

static void draw_line(struct svg *svg, struct point from, struct point to, uint32_t colour)
{
    const struct point ends[] = {from, to};
    svg_polyline(svg, ends, 2, (struct svg_stroke){colour, 1, 1});
}

static void draw_rates(struct svg *svg, const struct range *range)
{
    double bottom = HEIGHT - MARGIN, suggested = x_of(range, range->suggestion);
    char name[32];
    for (double decade = pow(10, ceil(log10(range->rates[0]))); decade <= range->rates[range->count - 1];
         decade *= 10) {
        double x = x_of(range, decade);
        draw_line(svg, (struct point){x, MARGIN}, (struct point){x, bottom}, 0xdddddd);
        snprintf(name, sizeof name, "%g", decade);
        svg_text(svg, (struct point){x, bottom + 16}, axis_font, name);
    }
    svg_text(svg, (struct point){WIDTH / 2.0, bottom + 36}, axis_font, "learning rate");
    draw_line(svg, (struct point){suggested, MARGIN}, (struct point){suggested, bottom}, 0x2a7f2a);
}

/* At multiples of 1, 2 or 5 times a power of ten, about four of them. */
static void draw_losses(struct svg *svg, const struct range *range)
{
    double least = range->smooth[range->lowest], most = top_of(range);
    double power = pow(10, floor(log10((most - least) / 4))), share = (most - least) / 4 / power;
    double step = power * (share < 1.5 ? 1 : share < 3.5 ? 2 : share < 7.5 ? 5 : 10);
    struct svg_font font = axis_font;
    char name[32];
    font.anchor = ANCHOR_END;
    for (double tick = ceil(least / step); tick * step <= most; tick++) {
        double y = y_of(range, tick * step);
        draw_line(svg, (struct point){MARGIN, y}, (struct point){WIDTH - MARGIN, y}, 0xdddddd);
        snprintf(name, sizeof name, "%g", tick * step);
        svg_text(svg, (struct point){MARGIN - 8, y + 4}, font, name);
    }
}

static enum status draw(const struct range *range, const char *path)
{
    struct svg svg = svg_open(WIDTH, HEIGHT, "Loss by learning rate");
    struct point *curve = memory_new((size_t)range->count, sizeof *curve);
    char title[96];
    draw_losses(&svg, range);
    draw_rates(&svg, range);
    for (int i = 0; i < range->count; i++)
        curve[i] = (struct point){x_of(range, range->rates[i]), y_of(range, range->smooth[i])};
    svg_polyline(&svg, curve, range->count, (struct svg_stroke){0x1f5fa8, 2, 1});
    snprintf(title, sizeof title, "Loss, smoothed, by learning rate; suggested: %.3g", range->suggestion);
    const struct svg_font font = {15, 0, ANCHOR_START, true, false};
    svg_text(&svg, (struct point){MARGIN, MARGIN / 2.0}, font, title);
    free(curve);
    const struct text *text = svg_end(&svg);
    enum status status = atomic_file_write(&directory_working, path, text->data, text->length);
    if (status == OK) log_info("%s written", path);
    svg_free(&svg);
    return status;
}

static enum status test(struct cmd *cmd, struct bench *bench, struct range *range)
{
    TRY(cmd_session(cmd, bench_data(true), NULL, &bench->session));
    TRY(bench_open(true, bench));
    TRY(make_steps(bench, range));
    TRY(find_suggestion(bench->steps, range));
    if (cmd->output) TRY(draw(range, cmd->output));
    if (cmd_value(cmd, "json"))
        print_json(range);
    else
        printf("optimizer.lr = %.3g is suggested: the loss fell fastest up to %.3g and was lowest at %.3g, "
               "of %d steps from %.3g to %.3g\n", range->suggestion, range->rates[range->steepest],
               range->rates[range->lowest], range->count, range->rates[0], range->rates[range->count - 1]);
    return OK;
}

static enum status lr_run(struct cmd *cmd)
{
    long steps;
    TRY(cmd_number(cmd, "steps", 20, STEPS, &steps));
    if (cmd->output && !text_ends_in(cmd->output, ".svg"))
        return fail(USAGE, "lr: %s: the name must end in .svg", cmd->output);
    if (cmd->output) TRY(cmd_check_output(cmd, cmd->output, SVG_SIGNATURE));
    session_any_batch(&cmd->settings);
    struct bench bench = {.steps = (int)steps};
    struct range range = {.rates = memory_new((size_t)steps, sizeof *range.rates),
                          .losses = memory_new((size_t)steps, sizeof *range.losses),
                          .smooth = memory_new((size_t)steps, sizeof *range.smooth)};
    enum status status = test(cmd, &bench, &range);
    bench_close(&bench);
    free(range.rates);
    free(range.losses);
    free(range.smooth);
    return status;
}

static const struct cmd_option options[] = {
    {"steps", "N", "number of steps (default: 100)"},
    {"json", NULL, "print the result as JSON, with every point"},
    {0},
};

const struct command cmd_lr = {
    .name = "lr",
    .usage = "-c FILE [--steps N] [--json] [-o FILE.svg]",
    .help = "Suggests a learning rate from steps with increasing rates.",
    .takes = TAKES_CONFIG | TAKES_OUTPUT,
    .options = options,
    .run = lr_run,
};
