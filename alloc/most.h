/* most.h: the largest of many numbers over any stretch of them, by looking at two. */
#ifndef ALLOC_MOST_H
#define ALLOC_MOST_H

#include <stdint.h>

/* Of values[count], which are copied: maxima over stretches of 1, 2, 4 ... of them. */
struct most {
    int64_t *row;
    int32_t count;
};

struct most most_open(const int64_t *values, int32_t count);
void most_close(struct most *most);

/* Of values [lower, upper), which are not none. */
int64_t most_of(const struct most *most, int32_t lower, int32_t upper);

#endif
