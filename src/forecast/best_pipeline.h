/* best_pipeline.h: the fastest pipeline that a run's ranks could form, as an alternative for plan to show. */
#pragma once

#include "forecast/step_time.h"
#include "session/step.h"

struct best_pipeline {
    int stages, micro_batches;         /* stages 0: no pipeline is possible */
    enum pipeline_schedule schedule;
    double ms;                         /* of a step, simulated */
};

/* Stages divide the ranks, micro-batches a pipeline's share of the session's batch. `cluster`: the session's,
 * of whose replicas and stages only the product matters. */
enum status best_pipeline_find(const struct session *session, const struct cluster *cluster,
                               const struct measured_times *times, struct best_pipeline *best);
