/* profile.h: where a training step spends its time, by stage and by layer and phase. */
#pragma once

#include "measure/bench.h"
#include "measure/peaks.h"
#include "measure/stage_times.h"

enum profile_stage_id {
    STAGE_READ, STAGE_DECODE, STAGE_COPY, STAGE_FORWARD, STAGE_BACKWARD, STAGE_EXCHANGE, STAGE_UPDATE, STAGES
};

/* A layer in one phase, all micro-batches together; or work outside of layers, such as the optimizer. */
struct profile_row {
    const char *name, *op, *phase, *algorithm;   /* op, algorithm: "" where there is none */
    double ms, flops, bytes;
    double won_ms;                      /* possible gain: the time beyond profile_least_ms;
                                         * 0: tensors in caches are read faster than memory allows */
    int64_t weight_bytes, activation_bytes, workspace_bytes;
};

struct profile {
    int batch, ranks;                   /* of all ranks; times and memory are those of this rank */
    const char *precision;
    char *device;
    double step_ms, serial_ms;          /* as in training; the sum of the rows, serialised */
    int64_t memory_bytes, card_bytes;   /* of the step; of the device */
    struct peaks peaks;                 /* tflops: a layer's, if one computes faster than a large product */
    double product_tflops;
    struct stage_time stages[STAGES];   /* exposed: what it adds to the step */
    struct profile_row *rows;           /* by possible gain */
    int count;
    struct text trace;                  /* of a few steps, in Chrome's trace format */
};
extern const char *const profile_stage_name[STAGES];

/* The time of a row's work at the peaks, in milliseconds; and whether it is compute-bound, not
 * memory-bound. */
double profile_least_ms(const struct profile *profile, const struct profile_row *row);
bool profile_computes(const struct profile *profile, const struct profile_row *row);

/* Measures with the bench's data, if it has any; all ranks call it together. Rows point into the bench, which
 * outlives the profile. */
enum status profile_make(struct bench *bench, struct profile *profile);
void profile_free(struct profile *profile);          /* accepts a zeroed struct */
