/* peaks.h: the peak rates of arithmetic and memory of a device, as reached by this program's own code. */
#pragma once

#include "session/session.h"

struct peaks {
    double tflops;           /* of a large matrix product in the run's precision, multiply and add counted
                              * separately */
    double gbps;             /* 1e9 bytes per second, read and written by a pass over a large tensor */
};

/* Measured on the session's open device the first time; then cached, by device, precision and threads, in
 * ${XDG_CACHE_HOME:-$HOME/.cache}/amptrain/peaks, a line each. */
enum status peaks_find(const struct session *session, struct peaks *peaks);
