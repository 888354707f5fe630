/* optimizer_walk.h: a parallel loop over a parameter whose results do not depend on the number of threads. */
#pragma once

#include "kernels/cpu.h"
#include "kernels/optimizer/formulas.h"

/* The update of a part of a parameter: its pointers are moved to the part and its count is the part's. It may
 * add to the sums. */
typedef void optimizer_part(const struct optimizer_param *part, const void *factors, double sums[2]);

/* Applies it to all parts; sums, which may be NULL, are set to the totals, added in a fixed order. */
void optimizer_walk(const struct optimizer_param *param, optimizer_part *function, const void *factors,
                    double sums[2]);

/* Sums of squares: of the gradient, still scaled, and of the masters. */
double optimizer_gradient_squares(const struct optimizer_param *param);
double optimizer_master_squares(const struct optimizer_param *param);

/* The weight decay that applies to the parameter. */
static inline double optimizer_decay(const struct optimizer_settings *settings,
                                     const struct optimizer_param *param)
{
    return param->decay ? settings->weight_decay : 0;
}

/* rule_part, an optimizer_part that updates each element, and rule_update, of the rule in optimizer_NAME.h;
 * what follows the rule's name are the addresses of element i of its slots. */
#define OPTIMIZER_PART(rule, ...)                                                                           \
    static EVERY_MACHINE(void, rule##_part, (const struct optimizer_param *part, const void *factors,       \
                         double sums[2]), (part, factors, sums))                                            \
    {                                                                                                       \
        (void)sums;                                                                                         \
        const struct rule##_factors *f = factors;                                                           \
        _Pragma("omp simd") for (int64_t i = 0; i < part->count; i++)                                       \
            rule##_element(f, part->gradient[i], &part->master[i], __VA_ARGS__);                            \
    }
#define OPTIMIZER_UPDATE(rule, ...)                                                                         \
    OPTIMIZER_PART(rule, __VA_ARGS__)                                                                       \
    static void rule##_update(const struct optimizer_settings *s, const struct optimizer_param *param,      \
                              double lr, double momentum, float factor, int64_t t)                          \
    {                                                                                                       \
        struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};                  \
        struct rule##_factors f = rule##_factors(s, &n);                                                    \
        optimizer_walk(param, rule##_part, &f, NULL);                                                       \
    }
