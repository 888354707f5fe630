/* optimizer_muon.c: the update of matrices by muon, and of other parameters by adamw, and its reference. */
#include "kernels/optimizer/formulas.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "kernels/optimizer/optimizer_muon.h"
#include "kernels/optimizer/optimizer_walk.h"

OPTIMIZER_PART(adam, &part->slots[0][i], &part->slots[1][i])

/* `out`: where the matrix goes, of which `master` is the first weight. */
struct muon_part {
    struct muon_factors f;
    const float *master;
    float *out;
};

static EVERY_MACHINE(void, advance_part, (const struct optimizer_param *part, const void *factors,
                     double sums[2]), (part, factors, sums))
{
    const struct muon_part *muon = factors;
    const struct muon_factors f = muon->f;
    float *out = muon->out + (part->master - muon->master), *mean = part->slots[0];
    const float *gradient = part->gradient;
    double squares = 0;
#pragma omp simd reduction(+ : squares)
    for (int64_t i = 0; i < part->count; i++) {
        out[i] = muon_advance(&f, gradient[i], &mean[i]);
        squares += (double)out[i] * (double)out[i];
    }
    sums[0] += squares;
}

struct orthogonal muon_matrix_begin(const struct optimizer_settings *s, const struct optimizer_param *param,
                                    const struct optimizer_numbers *n, bool orthogonalizes)
{
    int64_t rows = param->rows, columns = param->count / rows;
    double sums[2];
    const struct muon_part part = {muon_factors(s, n, rows, columns), param->master,
                                   orthogonalize_input(param->scratch, rows, columns)};
    optimizer_walk(param, advance_part, &part, sums);
    return orthogonalizes ? orthogonalize(param->scratch, rows, columns, sums[0])
                          : orthogonal_layout(rows, columns);
}

void muon_matrix_end(const struct optimizer_settings *s, const struct optimizer_param *param,
                     const struct optimizer_numbers *n, const struct orthogonal *made)
{
    int64_t rows = param->rows, columns = param->count / rows;
    const struct muon_factors f = muon_factors(s, n, rows, columns);
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < rows; i++)
        for (int64_t k = 0; k < columns; k++)
            muon_element(&f, orthogonal_at(made, i, k), &param->master[i * columns + k]);
}

void muon_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                        double momentum, float factor, int64_t t)
{
    const struct optimizer_numbers n = {lr, momentum, optimizer_decay(s, param), factor, t};
    if (param->rows > 0) {
        const struct orthogonal made = muon_matrix_begin(s, param, &n, true);
        muon_matrix_end(s, param, &n, &made);
        return;
    }
    struct adam_factors f = muon_adam_factors(s, &n);
    optimizer_walk(param, adam_part, &f, NULL);
}

/* to = x * left * right + y * to, of m x inner and inner x n; `turned`: right lies as n x inner. */
struct plain_product {
    const double *left, *right;
    int64_t m, inner, n;
    bool turned;
};

static void plain_multiply(const struct plain_product *p, double x, double y, double *to)
{
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->n; k++) {
            double sum = 0;
            for (int64_t d = 0; d < p->inner; d++)
                sum += p->left[i * p->inner + d] * p->right[p->turned ? k * p->inner + d : d * p->n + k];
            to[i * p->n + k] = x * sum + y * to[i * p->n + k];
        }
}

static void plain_orthogonalize(double *x, int64_t m, int64_t n)
{
    double *a = memory_new((size_t)(m * m), sizeof *a), *b = memory_new((size_t)(m * m), sizeof *b);
    double *old = memory_new((size_t)(m * n), sizeof *old), squares = 0;
    for (int64_t i = 0; i < m * n; i++) squares += x[i] * x[i];
    for (int64_t i = 0; i < m * n; i++) x[i] /= sqrt(squares) + ORTHOGONALIZE_EPS;
    for (int step = 0; step < ORTHOGONALIZE_STEPS; step++) {
        memcpy(old, x, (size_t)(m * n) * sizeof *old);
        plain_multiply(&(struct plain_product){x, x, m, n, m, true}, 1, 0, a);
        memcpy(b, a, (size_t)(m * m) * sizeof *b);
        plain_multiply(&(struct plain_product){a, a, m, m, m, false}, ORTHOGONALIZE_C, ORTHOGONALIZE_B, b);
        plain_multiply(&(struct plain_product){b, old, m, m, n, false}, 1, ORTHOGONALIZE_A, x);
    }
    free(a);
    free(b);
    free(old);
}

static void matrix_reference(const struct optimizer_settings *s, const struct optimizer_param *param,
                             double lr, double momentum, float factor)
{
    int64_t rows = param->rows, columns = param->count / rows;
    bool turns = rows > columns;
    double *u = memory_new((size_t)param->count, sizeof *u);
    double decay = optimizer_decay(s, param), scale = sqrt(turns ? (double)rows / (double)columns : 1);
    for (int64_t i = 0; i < param->count; i++) {
        double g = (double)param->gradient[i] * factor;
        double m = momentum * param->slots[0][i] + (1 - momentum) * g;
        u[turns ? i % columns * rows + i / columns : i] = s->nesterov ? (1 - momentum) * g + momentum * m : m;
        param->slots[0][i] = (float)m;
    }
    plain_orthogonalize(u, turns ? columns : rows, turns ? rows : columns);
    for (int64_t i = 0; i < param->count; i++) {
        double o = u[turns ? i % columns * rows + i / columns : i];
        param->master[i] = (float)((1 - lr * decay) * param->master[i] - lr * scale * o);
    }
    free(u);
}

void muon_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                           double momentum, float factor, int64_t t)
{
    if (param->rows > 0) matrix_reference(s, param, lr, momentum, factor);
    else adamw_optimizer.reference(s, param, lr, s->beta1, factor, t);
}
