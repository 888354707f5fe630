/* relu: y = max(x, 0). A NaN passes, as in torch. The gradient is zero at zero; the sign of y is that of x,
 * so that x need not be kept. */
#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) <= 0 ? 0 : (x))
#define BACKWARD(d_y, y) ((y) <= 0 ? 0 : (d_y))

ELEMENTWISE_OP(relu, "ReLU: max(x, 0).", y, void, "", .supports_cuda = call_sums_gradient);
