/* step_times.h: measured times of training steps, remembered for forecasts in
 * ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/steps, a line each. */
#pragma once

#include "compile/ir/program.h"
#include "session/session.h"

/* The origin of a step's time. */
enum step_time_origin {
    STEP_TIME_MODELLED,      /* nothing was measured */
    STEP_TIME_SCALED,        /* modelled, in the proportion in which the network's last step was off */
    STEP_TIME_MEASURED,      /* this very step was measured */
};

/* Remembers the seconds of a step of `program` on the session's open device, of a run without other ranks.
 * Failing to write the file has no effect. */
void step_times_note(const struct session *session, const struct program *program, double seconds);

/* The GPU of the newest step that was remembered, by its full name, for the caller to free; NULL: none. */
char *step_times_gpu(void);

/* Seconds of a step of `program` on any device of the session's kind; *seconds is set unless the origin is
 * STEP_TIME_MODELLED. Memory offsets and workspaces are not looked at. */
enum step_time_origin step_times_recall(const struct session *session, const struct program *program,
                                        double *seconds);
