/* progress.h: what the user sees of a run: one live line on a terminal, plain lines elsewhere. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/text.h"

/* The displayed state of a run. */
struct progress_view {
    int64_t epoch, epochs;             /* epoch from 1 */
    int64_t batch, batches;            /* of the epoch */
    double loss, top1;                 /* of the epoch so far */
    double lr, images_per_second, seconds_left;
    double loss_scale;                 /* shown unless 1 */
    int64_t skipped;
};

#define PROGRESS_LINE 512
struct progress {
    bool live;                         /* there is a terminal, and no -q */
    int terminal;                      /* its descriptor */
    bool quiet;
    double drawn;                      /* when, clock_seconds */
    int width;                         /* of the terminal */
    bool visible;                      /* a live line is shown */
    char line[PROGRESS_LINE];
};

/* The live line is drawn if the descriptor `terminal` is a terminal: stderr, or that of a launcher of
 * ranks. */
void progress_open(bool quiet, int terminal, struct progress *progress);
void progress_close(struct progress *progress);

/* Draws the live line, at most ten times a second: as much as fits, loss, accuracy and time left first. */
void progress_step(struct progress *progress, const struct progress_view *view);

/* One line of text about the state: SIGUSR2, and every `log.every` steps without a terminal. */
void progress_status(const struct progress_view *view);

/* The closing table: rows of a name and a value. Zeroed: none yet. */
#define PROGRESS_ROWS 24
struct progress_table {
    int count;
    struct progress_row {
        char name[48];
        char value[512];
    } rows[PROGRESS_ROWS];
};
void progress_table_add(struct progress_table *table, const char *name, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* To stdout. */
void progress_table_show(const struct progress *progress, const struct progress_table *table);

/* "1:02:03", "4:05". */
#define PROGRESS_TIME 32
const char *progress_time(double seconds, char text[PROGRESS_TIME]);
