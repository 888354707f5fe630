/* muon_matrix.h: the two halves of muon's update of a matrix, between which ranks exchange what each has
 * orthogonalised. */
#pragma once

#include "kernels/optimizer/optimizer_rule.h"
#include "kernels/optimizer/orthogonalize.h"

/* Advances the momentum and, if this rank is the one that does it, orthogonalises: x of the result is in
 * param->scratch, otherwise NULL. `n` has the parameter's own rate and decay. */
struct orthogonal muon_matrix_begin(const struct optimizer_settings *s, const struct optimizer_param *param,
                                    const struct optimizer_numbers *n, bool orthogonalizes);

/* The weights' update. */
void muon_matrix_end(const struct optimizer_settings *s, const struct optimizer_param *param,
                     const struct optimizer_numbers *n, const struct orthogonal *made);
