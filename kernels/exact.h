/* exact.h: products of weights and images whose sums are kept in double, for fp32 where they are small.
 *
 * Networks amplify rounding: a sum that falls on the other side of a ReLU's edge changes gradients
 * by parts in a thousand, and fp32 sums, whose error grows with their length and their order, tip
 * one such edge in nearly every step of a deep network. Products of two fp32 numbers are exact in
 * double, and sums of them come out the same in any order to within fp32's last bit, on any
 * machine and any number of threads. */
#ifndef KERNELS_EXACT_H
#define KERNELS_EXACT_H

#include "onednn.h"

/* Whether a phase is worth it: fp32, without groups, and little work in all. */
bool exact_wanted(const struct onednn_problem *problem, enum dtype dtype);

size_t exact_workspace(const struct onednn_problem *problem, enum phase phase);

/* Operands as onednn_step_run takes them: n, h, w, c activations; weights k, c, r, s; all fp32. */
void exact_run(const struct onednn_problem *problem, enum phase phase, void *const data[ONEDNN_OPERANDS],
               void *workspace);

#endif
