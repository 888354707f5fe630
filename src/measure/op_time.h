/* op_time.h: times an op with one input by itself, on random data. */
#pragma once

#include "session/session.h"

struct op_problem {
    const struct session *session;       /* whose device is open */
    const struct op *op;
    const void *settings;
    struct shape x;
    const char *variant;                 /* as in struct call; NULL: the fastest */
};

/* The time of a phase. */
struct op_time {
    bool there;              /* the op has the phase, and the variant supports it */
    double seconds;          /* of the fastest of several calls */
    size_t workspace;
    char algorithm[64];      /* the beginning of the kernel plan's name; "" if there is only one */
};

/* Times of the phases forward, backward_data and backward_params whose bits (1 << phase) are in `wanted`;
 * others are not set. *fits tells whether the device had enough memory; if not, nothing is set. */
enum status op_time_measure(const struct op_problem *problem, unsigned wanted,
                            struct op_time times[PHASE_COUNT], bool *fits);
