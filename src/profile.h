/* profile.h: where a training step spends its time, by stage and by layer and phase. */
#pragma once

#include "bench.h"
#include "peaks.h"
#include "stage_times.h"

enum profile_stage_id {
    STAGE_READ, STAGE_DECODE, STAGE_COPY, STAGE_FORWARD, STAGE_BACKWARD, STAGE_EXCHANGE, STAGE_UPDATE, STAGES
};

/* A layer in one phase, all micro-batches together; or what belongs to no layer, such as the optimizer. */
struct profile_row {
    const char *name, *op, *phase, *algorithm;   /* op, algorithm: "" where there is none */
    double ms, flops, bytes;
    double won_ms;                      /* most that could be won: what it takes beyond profile_least_ms */
    int64_t weight_bytes, activation_bytes, workspace_bytes;
};

struct profile {
    int batch, ranks;                   /* of all ranks; times and memory are this one's */
    const char *precision;
    char *device;
    double step_ms, serial_ms;          /* as in training; the sum of rows, each run to its end */
    int64_t memory_bytes, card_bytes;   /* that the step takes; that the device has */
    struct peaks peaks;                 /* tflops: a layer's, if one computes faster than a large product */
    double product_tflops;
    struct stage_time stages[STAGES];   /* exposed: what the step takes longer for it */
    struct profile_row *rows;           /* those first in which most time could be won */
    int count;
    struct text trace;                  /* of a few steps, in Chrome's trace format */
};
extern const char *const profile_stage_name[STAGES];

/* Of a row's work at the peaks: milliseconds; and whether computing binds, and not memory. */
double profile_least_ms(const struct profile *profile, const struct profile_row *row);
bool profile_computes(const struct profile *profile, const struct profile_row *row);

/* Measures with the bench's data, if it has any; all ranks do it together. Rows point into the bench, which
 * outlives the profile. */
enum status profile_make(struct bench *bench, struct profile *profile);
void profile_free(struct profile *profile);          /* accepts a zeroed struct */
