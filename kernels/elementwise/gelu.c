/* gelu: y = x * P(x), P the normal distribution's cumulative function (Hendrycks, Gimpel 2016):
 *     none: P(x) = (1 + erf(x / sqrt(2))) / 2
 *     tanh: P(x) = (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2 */
#include "kernels/elementwise/gelu.h"

#include <math.h>

#define EACH_SETTINGS(loop, settings, ...)                                                                  \
    if ((settings)->approximate == GELU_TANH) loop(&(struct gelu){GELU_TANH}, __VA_ARGS__);                 \
    else loop(&(struct gelu){GELU_EXACT}, __VA_ARGS__)
#include "kernels/elementwise/elementwise.h"
#include "kernels/support/exp.h"

/* P and its derivative. */
struct slope {
    double share, density;
};

static struct slope gelu_exact(double x)
{
    return (struct slope){0.5 * (1 + erf(x * M_SQRT1_2)), 0.5 * M_SQRT1_2 * M_2_SQRTPI * exp(-0.5 * x * x)};
}

static struct slope gelu_tanh(double x)
{
    double t = tanh(GELU_SCALE * (x + GELU_CUBIC * x * x * x));
    return (struct slope){0.5 * (1 + t), 0.5 * (1 - t * t) * GELU_SCALE * (1 + 3 * GELU_CUBIC * x * x)};
}

/* In fp32, without calls. P within 1e-7: Abramowitz, Stegun, Handbook of Mathematical Functions, 7.1.26. */
struct slope_fp32 {
    float share, density;
};

static inline struct slope_fp32 gelu_exact_fp32(float x)
{
    float bell = exp_of(-0.5f * x * x), t = 1 / (1 + 0.3275911f * (float)M_SQRT1_2 * fabsf(x));
    float tail = 1.061405429f * t - 1.453152027f;
    tail = tail * t + 1.421413741f;
    tail = tail * t - 0.284496736f;
    tail = (tail * t + 0.254829592f) * t * 0.5f * bell;
    return (struct slope_fp32){x < 0 ? tail : 1 - tail, (float)(0.5 * M_SQRT1_2 * M_2_SQRTPI) * bell};
}

/* (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) */
static inline struct slope_fp32 gelu_tanh_fp32(float x)
{
    float u = -2 * (float)GELU_SCALE * (x + (float)GELU_CUBIC * x * x * x);
    float share = 1 / (1 + exp_of(u > 87 ? 87 : u));
    float inner = 2 * (float)GELU_SCALE * (1 + 3 * (float)GELU_CUBIC * x * x);
    return (struct slope_fp32){share, share * (1 - share) * inner};
}

static double gelu_forward_fp64(int approximate, double x)
{
    return x * (approximate == GELU_TANH ? gelu_tanh(x) : gelu_exact(x)).share;
}

static double gelu_slope_fp64(int approximate, double x)
{
    struct slope slope = approximate == GELU_TANH ? gelu_tanh(x) : gelu_exact(x);
    return slope.share + x * slope.density;
}

static inline float gelu_forward_fp32(int approximate, float x)
{
    return x * (approximate == GELU_TANH ? gelu_tanh_fp32(x).share : gelu_exact_fp32(x).share);
}

static inline float gelu_slope_fp32(int approximate, float x)
{
    struct slope_fp32 slope = approximate == GELU_TANH ? gelu_tanh_fp32(x) : gelu_exact_fp32(x);
    return slope.share + x * slope.density;
}

#define FORWARD(x) _Generic((x), float: gelu_forward_fp32, double: gelu_forward_fp64)(s->approximate, x)
#define BACKWARD(d_y, x)                                                                                    \
    ((d_y) * _Generic((x), float: gelu_slope_fp32, double: gelu_slope_fp64)(s->approximate, x))

static const char *const approximations[] = {"none", "tanh", NULL};
static const struct field fields[] = {
    {.name = "approximate", .type = FIELD_CHOICE, .offset = offsetof(struct gelu, approximate),
     .initial = "none", .choices = approximations, .help = "tanh selects the tanh approximation."},
    {0},
};

ELEMENTWISE_OP(gelu, "Gaussian error linear unit (GELU).", x, struct gelu, "approximate=tanh",
               .settings_size = sizeof(struct gelu), .fields = fields, .backward_recomputes = true,
               .supports_cuda = call_sums_gradient);
