/* gelu: y = x * P(x), P the normal distribution's cumulative function (Hendrycks, Gimpel 2016):
 *     none: P(x) = (1 + erf(x / sqrt(2))) / 2
 *     tanh: P(x) = (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 */
#include "kernels/elementwise/gelu.h"

#include <tgmath.h>

#include "kernels/elementwise/elementwise.h"

/* A constant in the type of x. */
#define C(x, constant) ((__typeof__(x))(constant))

#define TANH_OF(x) tanh(C(x, GELU_SCALE) * ((x) + C(x, GELU_CUBIC) * (x) * (x) * (x)))
#define TANH_SLOPE(x)                                                                                       \
    ({                                                                                                      \
        __typeof__(x) t = TANH_OF(x), inner = C(x, GELU_SCALE) * (1 + 3 * C(x, GELU_CUBIC) * (x) * (x));    \
        C(x, 0.5) * (1 + t) + C(x, 0.5) * (x) * (1 - t * t) * inner;                                        \
    })
#define DENSITY(x) (C(x, 0.5 * M_SQRT1_2 * M_2_SQRTPI) * exp(C(x, -0.5) * (x) * (x)))
#define ERF_SLOPE(x) (C(x, 0.5) * (1 + erf((x) * C(x, M_SQRT1_2))) + (x) * DENSITY(x))

#define FORWARD(x)                                                                                          \
    (C(x, 0.5) * (x) * (1 + (s->approximate == GELU_TANH ? TANH_OF(x) : erf((x) * C(x, M_SQRT1_2)))))
#define BACKWARD(d_y, x) ((d_y) * (s->approximate == GELU_TANH ? TANH_SLOPE(x) : ERF_SLOPE(x)))

static const char *const approximations[] = {"none", "tanh", NULL};
static const struct field fields[] = {
    {.name = "approximate", .type = FIELD_CHOICE, .offset = offsetof(struct gelu, approximate),
     .initial = "none", .choices = approximations, .help = "tanh selects the tanh approximation."},
    {0},
};

ELEMENTWISE_OP(gelu, "Gaussian error linear unit (GELU).", x, struct gelu, "approximate=tanh",
               .settings_size = sizeof(struct gelu), .fields = fields);
