/* target.h: what is to be learned of an image. */
#pragma once

enum target_kind {
    TARGET_ANY,                /* asked for: what the data have */
    TARGET_CLASS,              /* one of the classes: its number */
    TARGET_LABELS,             /* any of the classes: 0 or 1 for each */
    TARGET_NUMBER,             /* a number; the data set has one class, which names it */
};
