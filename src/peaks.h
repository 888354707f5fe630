/* peaks.h: the peak rates of arithmetic and memory of a device, as reached by this program's own code. */
#pragma once

#include "session/session.h"

struct peaks {
    double tflops;           /* of a large matrix product in the run's precision, multiply and add each */
    double gbps;             /* 1e9 bytes a second, read and written by a pass over a large tensor */
};

/* Measured on the session's device, which is open, the first time; then remembered, by device, precision and
 * threads, in ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/peaks, a line each. */
enum status peaks_find(const struct session *session, struct peaks *peaks);
