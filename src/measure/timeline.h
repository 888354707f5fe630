/* timeline.h: the activities of the device in a few consecutive steps, with their times. */
#pragma once

#include "measure/bench.h"

struct timeline {
    struct device_activity *activities;   /* sorted by begin; those of one step have the same `run` and
                                           * instructions as their tags, others do not belong to a step */
    int count;
    uint32_t *runs;                       /* the steps, in their order */
    int run_count;
    struct time_spans host, workers;           /* of the main thread and the loader's, during these steps */
    bool measured;                        /* as in training, measured by the device; otherwise instructions
                                           * were serialised */
};

/* Runs a few steps of the bench and records them. */
enum status timeline_record(struct bench *bench, struct timeline *timeline);
void timeline_free(struct timeline *timeline);       /* accepts a zeroed struct */

/* Average milliseconds per step in which any kernel of an instruction ran. */
double timeline_ms(const struct timeline *timeline, int instruction);

/* A part of a step: `stage_of` is the stage of an instruction, by number. */
struct timeline_stages {
    const char *const *names;
    int (*stage_of)(const struct program *program, int instruction);
};

/* Appends events in Chrome's trace format, which Perfetto reads: a track for each stream, with instructions
 * and their kernels, for copies, and for steps and their stages. */
void timeline_print(const struct timeline *timeline, const struct program *program,
                    const struct timeline_stages *stages, struct text *out);
