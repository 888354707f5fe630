/* relu6: y = min(max(x, 0), 6) (Howard et al. 2017, MobileNets). A NaN passes, as in torch. The gradient is
 * torch's hardtanh's: zero at both corners. */
#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) <= 0 ? 0 : (x) >= 6 ? 6 : (x))
#define BACKWARD(d_y, y) ((y) <= 0 || (y) >= 6 ? 0 : (d_y))

ELEMENTWISE_OP(relu6, "ReLU6: min(max(x, 0), 6).", y, void, "");
