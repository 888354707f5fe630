#include "train/progress.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
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

/* Parts of the line in the order in which they are shown; those of the highest rank give way first where they
 * do not all fit. */
enum { PARTS = 9 };
struct line_part {
    int rank;
    char text[64];
};

static void fill(const struct progress_view *view, struct line_part parts[PARTS])
{
    char left[PROGRESS_TIME], loss[TEXT_NUMBER], top1[TEXT_NUMBER];
    static const int ranks[PARTS] = {3, 4, 0, 1, 6, 5, 7, 8, 2};
    for (int i = 0; i < PARTS; i++) parts[i] = (struct line_part){.rank = ranks[i]};
    size_t room = sizeof parts->text;
    snprintf(parts[0].text, room, "epoch %" PRId64 "/%" PRId64, view->epoch, view->epochs);
    snprintf(parts[1].text, room, "step %" PRId64 "/%" PRId64, view->batch, view->batches);
    snprintf(parts[2].text, room, "loss %s", text_number(view->loss, 4, NULL, loss));
    if (!isnan(view->top1))
        snprintf(parts[3].text, room, "top1 %s", text_number(100 * view->top1, 2, "%", top1));
    snprintf(parts[4].text, room, "lr %.4g", view->lr);
    snprintf(parts[5].text, room, "%.0f images/s", view->images_per_second);
    if (view->loss_scale != 1) snprintf(parts[6].text, room, "scale %.6g", view->loss_scale);
    if (view->skipped > 0) snprintf(parts[7].text, room, "skipped %" PRId64, view->skipped);
    snprintf(parts[8].text, room, "left %s", progress_time(view->seconds_left, left));
}

/* Parts below a rank, with as many spaces between them. */
static void join(const struct line_part parts[PARTS], int rank, int spaces, char line[PROGRESS_LINE])
{
    int length = 0;
    for (int i = 0; i < PARTS; i++)
        if (parts[i].rank < rank && *parts[i].text)
            length += snprintf(line + length, (size_t)(PROGRESS_LINE - length), "%*s%s", length ? spaces : 0,
                               "", parts[i].text);
}

static void describe(const struct progress_view *view, int width, char line[PROGRESS_LINE])
{
    struct line_part parts[PARTS];
    fill(view, parts);
    for (int rank = PARTS; rank > 0; rank--) {
        join(parts, rank, rank > 3 ? 2 : 1, line);
        if ((int)strlen(line) <= width) return;
    }
}

void progress_step(struct progress *progress, const struct progress_view *view)
{
    if (!progress->live) return;
    double now = clock_seconds();
    if (now - progress->drawn < 0.1) return;
    progress->drawn = now;
    progress->width = terminal_width(progress->terminal);     /* which may have been resized */
    describe(view, progress->width - 1, progress->line);
    dprintf(progress->terminal, "\r%.*s\033[K", progress->width - 1, progress->line);
    progress->visible = true;
}

void progress_status(const struct progress_view *view)
{
    char line[PROGRESS_LINE];
    describe(view, PROGRESS_LINE, line);
    log_info("%s", line);
}

void progress_table_add(struct progress_table *table, const char *name, const char *format, ...)
{
    va_list arguments;
    assert(table->count < PROGRESS_ROWS);
    struct progress_row *row = &table->rows[table->count++];
    snprintf(row->name, sizeof row->name, "%s", name);
    va_start(arguments, format);
    vsnprintf(row->value, sizeof row->value, format, arguments);
    va_end(arguments);
}

void progress_table_show(const struct progress *progress, const struct progress_table *table)
{
    if (progress->quiet) return;
    size_t width = 0;
    for (int i = 0; i < table->count; i++)
        if (strlen(table->rows[i].name) > width) width = strlen(table->rows[i].name);
    for (int i = 0; i < table->count; i++)
        log_result("  %-*s  %s", (int)width, table->rows[i].name, table->rows[i].value);
}
