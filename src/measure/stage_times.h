/* stage_times.h: the times of the stages of a step on the device, from a timeline of steps. */
#pragma once

#include "measure/timeline.h"

/* Average milliseconds per step in which any kernel of the stage ran; and of these, in which none of an
 * earlier stage ran. */
struct stage_time {
    double alone, exposed;
};

/* `times` has room for `count` stages. */
void stage_times(const struct timeline *timeline, const struct program *program,
                 const struct timeline_stages *stages, int count, struct stage_time *times);
