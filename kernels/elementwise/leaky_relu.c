/* leaky_relu: y = x where x > 0, slope * x elsewhere (Maas et al. 2013). The slope is never negative, so that
 * the sign of y is that of x and x need not be kept. */
#include "kernels/elementwise/leaky_relu.h"

#define EACH_SETTINGS(loop, settings, ...) loop(&(struct leaky_relu){(settings)->slope}, __VA_ARGS__)
#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) > 0 ? (x) : (__typeof__(x))s->slope * (x))
#define BACKWARD(d_y, y) ((y) > 0 ? (d_y) : (__typeof__(y))s->slope * (d_y))

static const struct field fields[] = {
    {.name = "slope", .type = FIELD_REAL, .offset = offsetof(struct leaky_relu, slope), .initial = "0.01",
     .min = 0, .max = 1, .help = "Slope for negative values."},
    {0},
};

ELEMENTWISE_OP(leaky_relu, "Leaky ReLU: max(x, 0) + slope * min(x, 0).", y, struct leaky_relu, "slope=0.2",
               .settings_size = sizeof(struct leaky_relu), .fields = fields);
