/* step_time.h: the simulated time of a training step of all ranks. */
#pragma once

#include "compile/parallel/cluster.h"
#include "forecast/measured_times.h"
#include "session/step.h"

struct step_time {
    double ms;               /* until the last rank has ended */
    double exposed_ms;       /* of these, because of collectives of gradients and moments */
    double waiting_ms;       /* of these, due to ranks that are slower than others */
    double *busy_ms;         /* [stages]: time in which something computes */
};

/* The options of a training step on those ranks: several hosts use NCCL's sums, one host uses copy
 * engines. */
struct compile_options step_time_options(const struct session *session, const struct cluster *cluster);

/* programs[cluster->stages]: of a replica. `times` NULL: all times are modelled. */
struct step_time step_time_simulate(const struct program *const *programs, const struct cluster *cluster,
                                    const struct measured_times *times);
void step_time_free(struct step_time *time);
