/* compare.h: checks line by line that all ranks have the same text. */
#pragma once

#include "comm/comm.h"

/* Called by all ranks. If a rank's text differs from the first rank's, all fail with USAGE, and the first one
 * that differs reports the line. */
enum status compare_texts(struct comm *comm, const char *text);
