/* time_spans.h: a record of the activities of host threads, with their times. */
#pragma once

#include <stdint.h>

struct time_span {
    const char *name;        /* that lives on */
    int thread;              /* a number chosen by the caller */
    int64_t begin, end;      /* as clock_nanoseconds */
};

/* Spans in the order of their ends. Zeroed: none yet; the caller frees `at`. */
struct time_spans {
    struct time_span *at;
    int count;
};

/* Adds a span that ends now. `spans` NULL: it is discarded. */
void time_spans_add(struct time_spans *spans, const char *name, int thread, int64_t begin);
