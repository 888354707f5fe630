/* optimizer_muon.h: muon's update, and its two halves for a matrix, between which ranks exchange what each
 * has orthogonalised. */
#pragma once

#include "kernels/optimizer/formulas.h"
#include "kernels/optimizer/orthogonalize.h"

/* Advances the momentum and, if this rank is the one that does it, orthogonalises: x of the result is in
 * param->scratch, otherwise NULL. `n` has the parameter's own rate and decay. */
struct orthogonal muon_matrix_begin(const struct optimizer_settings *s, const struct optimizer_param *param,
                                    const struct optimizer_numbers *n, bool orthogonalizes);

/* The weights' update. */
void muon_matrix_end(const struct optimizer_settings *s, const struct optimizer_param *param,
                     const struct optimizer_numbers *n, const struct orthogonal *made);

/* optimizer.update and optimizer.reference. */
void muon_update(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                 double momentum, float factor, int64_t t);
void muon_reference(const struct optimizer_settings *s, const struct optimizer_param *param, double lr,
                    double momentum, float factor, int64_t t);
