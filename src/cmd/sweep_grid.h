/* sweep_grid.h: the runs of a sweep: all combinations of the values of its keys, or some drawn at random. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

/* "SECTION.KEY=A,B,C": each value is one of the key's. A text that has a semicolon is divided there instead,
 * and one for a key whose values are lists only there. "LOW..HIGH", for a key that is a number, is drawn from
 * that range, evenly in its logarithm where LOW is above 0. */
struct sweep_options {
    const char *const *sets;
    int set_count;
    int folds;                 /* each run is made with data.fold=1/folds and so on; 0: not */
    int random;                /* runs to draw; 0: all combinations */
};

#define SWEEP_RUNS_MOST 100000

struct sweep_run {
    char *name;                /* of its folder: "lr=0.1,batch=64" */
    char *group;               /* the same without fold and seed: runs to average */
    char **sets;               /* for -s: [set_count] */
    int set_count;
};

struct sweep {
    struct sweep_run *runs;
    int count;
    bool repeats;              /* some runs differ by fold or seed alone */
};

/* Makes the runs, which follow from the options alone; more random ones begin with the same. USAGE if no key
 * has several values, if one is given twice, if they are more than SWEEP_RUNS_MOST, or two would have one
 * name. */
enum status sweep_make(const struct sweep_options *options, struct sweep *sweep);
void sweep_free(struct sweep *sweep);          /* accepts a zeroed struct */
