/* launcher_lines.h: merges the ranks' stderr: lines of the first rank unchanged, those of others with their
 * number, and identical messages of several ranks once. */
#pragma once

#include <stdbool.h>

#include "base/log.h"

struct lines;

/* `terminal`: stderr shows the first rank's progress line, which is erased for lines. Lines of other ranks
 * also go to `sink`. */
struct lines *lines_new(int ranks, bool terminal, struct log_sink sink);
void lines_free(struct lines *lines);

/* Reads the available output of a rank without blocking; false: end of file. */
bool lines_read(struct lines *lines, int rank, int descriptor);

/* Shows the lines that have waited long enough for identical ones of other ranks; all of them if `now`. */
void lines_show(struct lines *lines, bool now);
bool lines_wait(const struct lines *lines);       /* some do */

/* From now on, only lines of other ranks that `rank` also writes are shown: others result from its end. */
void lines_only(struct lines *lines, int rank);
