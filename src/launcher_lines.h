/* launcher_lines.h: merges the ranks' stderr: lines of the first rank unchanged, those of others with their
 * number, and identical messages of several ranks once. */
#pragma once

#include <stdbool.h>

#include "base/log.h"

struct lines;

/* `terminal`: stderr shows the first rank's progress line, which gives way to lines. Those of other ranks
 * go to `sink`, too. */
struct lines *lines_new(int ranks, bool terminal, struct log_sink sink);
void lines_free(struct lines *lines);

/* Takes what there is to read of a rank's output, without waiting; false: no more will come. */
bool lines_read(struct lines *lines, int rank, int descriptor);

/* Shows the lines that have waited long enough for other ranks to say the same; all of them if `now`. */
void lines_show(struct lines *lines, bool now);
bool lines_wait(const struct lines *lines);       /* some do */

/* From now on lines of other ranks count only as the same ones that `rank` says: they follow from its end. */
void lines_only(struct lines *lines, int rank);
