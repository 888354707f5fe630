/* hardsigmoid: y = min(max(x + 3, 0), 6) / 6 (Courbariaux, Bengio, David 2015, in torch's form). A NaN
 * passes. The gradient is 0 at both corners. */
#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) <= -3 ? 0 : (x) >= 3 ? 1 : ((x) + 3) / 6)
#define BACKWARD(d_y, y) ((y) <= 0 || (y) >= 1 ? 0 : (d_y) / 6)

ELEMENTWISE_OP(hardsigmoid, "Hard sigmoid: min(max(x + 3, 0), 6) / 6.", y, void, "");
