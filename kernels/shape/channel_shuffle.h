/* channel_shuffle.h: the source channel of each channel of channel_shuffle, for every device. */
#pragma once

#include <stdint.h>

#include "base/anywhere.h"

struct channel_shuffle {
    int64_t groups;
};

/* The input channel of output channel c, with so many groups of `channels`. The inverse has channels / groups
 * groups. */
ANYWHERE int64_t channel_shuffle_source(int64_t groups, int64_t channels, int64_t c)
{
    return c % groups * (channels / groups) + c / groups;
}
