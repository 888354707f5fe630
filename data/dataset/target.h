/* target.h: what is to be learned of an image. */
#pragma once

#include <stdbool.h>

#include "base/status.h"

enum target_kind {
    TARGET_ANY,                /* asked for: what the data have */
    TARGET_CLASS,              /* one of the classes: its number */
    TARGET_LABELS,             /* any of the classes: 0 or 1 for each */
    TARGET_NUMBER,             /* a number; the data set has one class, which names it */
    TARGET_MASK,               /* one of the classes for every pixel (data/dataset/masks.h) */
};

/* Numbers are from minus this to this, and so are their mean and deviation, as data.value_scale needs. */
#define TARGET_NUMBER_MAX 1e30
bool target_parse_number(const char *text, double *number, struct reason *reason);

/* True if a target is a row of numbers, which struct format's `target` gives. */
static inline bool target_is_row(enum target_kind kind)
{
    return kind == TARGET_LABELS || kind == TARGET_NUMBER;
}
