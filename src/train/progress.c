#include "train/progress.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"

static void wipe(void *context)
{
    struct progress *progress = context;
    if (progress->visible) dprintf(progress->terminal, "\r\033[K");
    progress->visible = false;
}

static int terminal_width(int terminal)
{
    struct winsize size;
    if (ioctl(terminal, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *columns = getenv("COLUMNS");
    int width = columns ? atoi(columns) : 0;
    return width > 0 ? width : 80;
}

void progress_open(bool quiet, int terminal, struct progress *progress)
{
    const char *type = getenv("TERM");
    bool dumb = !type || strcmp(type, "dumb") == 0;
    *progress = (struct progress){
        .live = !quiet && !dumb && isatty(terminal), .terminal = terminal, .quiet = quiet,
    };
    if (!progress->live) return;
    progress->width = terminal_width(terminal);
    log_set_curtain(wipe, progress);
}

void progress_close(struct progress *progress)
{
    if (!progress->live) return;
    wipe(progress);
    log_set_curtain(NULL, NULL);
    progress->live = false;
}

const char *progress_time(double seconds, char text[PROGRESS_TIME])
{
    if (!(seconds >= 0) || seconds > 1e9) return "?";
    long whole = lround(seconds);
    if (whole >= 3600)
        snprintf(text, PROGRESS_TIME, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60, whole % 60);
    else
        snprintf(text, PROGRESS_TIME, "%ld:%02ld", whole / 60, whole % 60);
    return text;
}

static void describe(const struct progress_view *view, char *line, size_t room)
{
    char left[PROGRESS_TIME], loss[TEXT_NUMBER], top1[TEXT_NUMBER], scale[48] = "";
    if (view->loss_scale != 1) snprintf(scale, sizeof scale, "  scale %.6g", view->loss_scale);
    if (view->skipped > 0)
        snprintf(scale + strlen(scale), sizeof scale - strlen(scale), "  skipped %" PRId64, view->skipped);
    snprintf(line, room,
             "epoch %" PRId64 "/%" PRId64 "  step %" PRId64 "/%" PRId64
             "  loss %s  top1 %s  lr %.4g  %.0f images/s%s  left %s",
             view->epoch, view->epochs, view->batch, view->batches, text_number(view->loss, 4, NULL, loss),
             text_number(100 * view->top1, 2, "%", top1), view->lr, view->images_per_second, scale,
             progress_time(view->seconds_left, left));
}

void progress_step(struct progress *progress, const struct progress_view *view)
{
    if (!progress->live) return;
    double now = clock_seconds();
    if (now - progress->drawn < 0.1) return;
    progress->drawn = now;
    describe(view, progress->line, sizeof progress->line);
    dprintf(progress->terminal, "\r%.*s\033[K", progress->width - 1, progress->line);
    progress->visible = true;
}

void progress_status(const struct progress_view *view)
{
    char line[512];
    describe(view, line, sizeof line);
    log_info("%s", line);
}

void progress_table(const struct progress *progress, const struct progress_row *rows, int count)
{
    if (progress->quiet) return;
    size_t width = 0;
    for (int i = 0; i < count; i++)
        if (strlen(rows[i].name) > width) width = strlen(rows[i].name);
    for (int i = 0; i < count; i++) log_info("  %-*s  %s", (int)width, rows[i].name, rows[i].value);
}
