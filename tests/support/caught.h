/* caught.h: what the log said, kept for a test to look at instead of shown. */
#pragma once

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/text.h"

struct caught {
    struct text words;         /* one line a message */
    int errors;
    int shown;                 /* what stderr was */
};

static inline void caught_line(void *context, enum log_level level, const char *line)
{
    struct caught *caught = context;
    caught->errors += level == LOG_ERROR;
    text_add(&caught->words, "%s\n", line);
}

/* Between begin and end nothing is to be asserted: a failed case could not be seen. */
static inline void caught_begin(struct caught *caught)
{
    *caught = (struct caught){.shown = dup(2)};
    int nowhere = open("/dev/null", O_WRONLY);
    fflush(stderr);
    dup2(nowhere, 2);
    close(nowhere);
    log_set_sink((struct log_sink){caught_line, caught});
    text_add(&caught->words, "%s", "");
}

static inline void caught_end(struct caught *caught)
{
    log_set_sink((struct log_sink){NULL, NULL});
    fflush(stderr);
    dup2(caught->shown, 2);
    close(caught->shown);
}

static inline bool caught_has(const struct caught *caught, const char *words)
{
    if (strstr(caught->words.data, words)) return true;
    fprintf(stderr, "not said: %s\nbut:\n%s", words, caught->words.data);
    return false;
}
