/* sum_rounded.h: settings of sum_rounded. */
#pragma once

struct sum_rounded {
    int to;                  /* enum dtype */
};
