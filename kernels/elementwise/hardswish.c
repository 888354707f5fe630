/* hardswish: y = x * min(max(x + 3, 0), 6) / 6 (Howard et al. 2019, MobileNetV3). A NaN passes. The gradient
 * is torch's: 0 up to -3, and 1 from 3 on. */
#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) <= -3 ? 0 : (x) >= 3 ? (x) : (x) * ((x) + 3) / 6)
#define BACKWARD(d_y, x) ((x) <= -3 ? 0 : (x) >= 3 ? (d_y) : (d_y) * (2 * (x) + 3) / 6)

ELEMENTWISE_OP(hardswish, "Hard swish: x * min(max(x + 3, 0), 6) / 6.", x, void, "");
