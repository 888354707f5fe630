#include "op_variants.h"

#include <string.h>

static const int64_t channels[] = {1, 3, 5, 24}, sizes[] = {1, 7, 31}, batches[] = {1, 3, 257};

/* The largest example that the plain loops of every op run in a moment. */
#define ELEMENTS_MAX (1 << 17)

static struct shape shape_of(int number)
{
    int c = number % 4, size = number / 4;
    struct shape shape = shape_nhwc(batches[(c + size + 1) % 3], sizes[size], sizes[size], channels[c]);
    if (shape_count(shape) > ELEMENTS_MAX) shape.w = 1;
    return shape;
}

/* Extents that are equal among an example's inputs stay equal; others are part of what it shows. */
static struct op_example reshaped(const struct op_example *example, int number)
{
    struct op_example made = *example;
    struct shape to = shape_of(number);
    for (int i = 0; i < made.x_count; i++)
        for (int d = 0; d < 4; d++)
            if (example->x[i].dim[d] == example->x[0].dim[d]) made.x[i].dim[d] = to.dim[d];
    return made;
}

static bool accepted(const struct op *op, const struct op_example *example)
{
    struct reason reason;
    struct shape y;
    void *settings = op_settings_new(op, example->settings, &reason);
    bool fits = settings && op->shape(settings, example->x_count, example->x, &y, &reason);
    if (settings) op_settings_free(op, settings);
    return fits;
}

static bool examples_equal(const struct op_example *a, const struct op_example *b)
{
    if (strcmp(a->settings, b->settings) != 0 || a->x_count != b->x_count) return false;
    for (int i = 0; i < a->x_count; i++)
        if (!shape_equal(a->x[i], b->x[i])) return false;
    return true;
}

bool op_variant(const struct op *op, const struct op_example *example, int number,
                struct op_example *variant)
{
    struct op_example made = reshaped(example, number);
    for (const struct op_example *other = op->examples; other->settings; other++) {
        struct op_example earlier = reshaped(other, number);
        if (examples_equal(other, &made) || (other < example && examples_equal(&earlier, &made)))
            return false;
    }
    if (!accepted(op, &made)) return false;
    *variant = made;
    return true;
}
