/* distill.h: the settings of distill. */
#pragma once

#include "kernels/op.h"

struct distill {
    double label_smoothing, alpha, temperature;
    int kind;                  /* enum distill_kind */
};
enum distill_kind { DISTILL_SOFT, DISTILL_HARD };

/* Numbers that forward saves of each image: log(sum(exp(x))), the same of x / temperature, and of the
 * teacher's; or that one's class. */
enum { DISTILL_SUM, DISTILL_WARM_SUM, DISTILL_TEACHER, DISTILL_SAVED };
