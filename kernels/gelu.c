/* gelu: y = x * P(x), P the normal distribution's cumulative function (Hendrycks, Gimpel 2016):
 *     none: P(x) = (1 + erf(x / sqrt(2))) / 2
 *     tanh: P(x) = (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 */
#include "gelu.h"

#include <math.h>
#include <stddef.h>

#include "kernels/codes_cuda.h"
#include "kernels/cpu.h"
#include "kernels/elementwise.h"

static double gelu(const void *settings, double x)
{
    const struct gelu *s = settings;
    if (s->approximate == GELU_TANH) return 0.5 * x * (1 + tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x)));
    return 0.5 * x * (1 + erf(x * M_SQRT1_2));
}

static double gelu_slope(const void *settings, double x)
{
    const struct gelu *s = settings;
    if (s->approximate == GELU_TANH) {
        double t = tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x));
        double inner = GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x);
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * inner;
    }
    double density = 0.5 * M_SQRT1_2 * M_2_SQRTPI * exp(-0.5 * x * x);
    return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * density;
}

static enum status gelu_forward(const struct call *call)
{
    return elementwise_forward(call, gelu);
}

static enum status gelu_backward(const struct call *call)
{
    return elementwise_backward(call, &call->x[0], gelu_slope);
}

static const char *const approximations[] = {"none", "tanh", NULL};
static const struct field fields[] = {
    {.name = "approximate", .type = FIELD_CHOICE, .offset = offsetof(struct gelu, approximate),
     .initial = "none", .choices = approximations, .help = "tanh selects the tanh approximation."},
    {0},
};

static const struct op_code reference = {.forward = gelu_forward, .backward = gelu_backward};

static const struct op_example examples[] = {
    {"", 1, {{.rank = 4, .n = 3, .h = 7, .w = 7, .c = 5}}},
    {"approximate=tanh", 1, {{.rank = 4, .n = 1, .h = 31, .w = 7, .c = 24}}},
    {"", 1, {{.rank = 4, .n = 3, .h = 1, .w = 1, .c = 1}}},
    {0},
};

const struct op gelu_op = {
    .name = "gelu",
    .help = "Gaussian error linear unit (GELU).",
    .settings_size = sizeof(struct gelu),
    .fields = fields,
    .min_inputs = 1,
    .max_inputs = 1,
    .precision = CLASS_FOLLOW,
    .shape = elementwise_shape,
    .reads = elementwise_reads_x,
    .in_place = elementwise_in_place,
    .reference = &reference,
    .cpu = &gelu_cpu,
    .cuda = ON_CUDA(gelu_cuda),
    .examples = examples,
};
