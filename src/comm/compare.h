/* compare.h: checks line by line that all ranks have the same text. */
#pragma once

#include "comm/comm.h"

/* Called by all ranks. Where one's text is not the first rank's, all fail with USAGE, and the first one that
 * differs says in which line. */
enum status compare_texts(struct comm *comm, const char *text);
