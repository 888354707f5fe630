/* channel_sums.cuh: sums by channel over the pixels of images: the gradient of a bias, and the sums and sums
 * of squares for a batch norm. */
#pragma once

#include "kernels/support/copy.cuh"

/* y [n, h, w, c] summed over all but its channels into to[c], and with `squares` y * y into to[c..2c). */
size_t channel_sums_workspace(int64_t rows, int width, bool squares);
enum status channel_sums(const struct call *call, const struct tensor *y, float *to, bool squares);
/* Without squares, in the same workspace, of those y whose `number` is not `left_out`. */
enum status channel_sums_where(const struct call *call, const struct tensor *y, float *to,
                            const uint8_t *numbers, int left_out);
/* Copies the picked pixels of x and adds them up, in the workspace of channel_sums. */
enum status channel_sums_picked(const struct pick *pick, const struct call *call, void *picked, const void *x,
                             float *to);

/* to[i] = the sum of shares[s * count + i], in a fixed order. */
enum status channel_sum_shares(const struct call *call, float *to, const float *shares, int share_count,
                            int count);
