/* timeline.h: the activities of the device in a few consecutive steps, with their times. */
#pragma once

#include "bench.h"

struct timeline {
    struct device_activity *activities;   /* by begin; those of one step have the same `run` and instructions
                                           * as their tags, others are beside the steps */
    int count;
    uint32_t *runs;                       /* the steps, in their order */
    int run_count;
    struct time_spans host, workers;           /* meanwhile, of the main thread and of the loader's */
    bool measured;                        /* by the device, in steps as they are in training; else each
                                           * instruction ran to its end before the next one */
};

enum status timeline_take(struct bench *bench, struct timeline *timeline);
void timeline_free(struct timeline *timeline);       /* accepts a zeroed struct */

/* Milliseconds of an instruction in a step, on average, in which any of its kernels ran. */
double timeline_ms(const struct timeline *timeline, int instruction);

/* A part of a step: `stage_of` says of which stage an instruction is, by number. */
struct timeline_stages {
    const char *const *names;
    int (*stage_of)(const struct program *program, int instruction);
};

/* As events in Chrome's trace format, which Perfetto reads: a thread for each stream, with the instructions
 * and in them their kernels, for copies, and for the steps and their stages. */
void timeline_print(const struct timeline *timeline, const struct program *program,
                    const struct timeline_stages *stages, struct text *out);
