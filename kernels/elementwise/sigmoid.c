/* sigmoid: y = 1 / (1 + exp(-x)). */
#include <tgmath.h>

#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) (1 / (1 + exp(-(x))))
#define BACKWARD(d_y, y) ((d_y) * ((y) * (1 - (y))))

ELEMENTWISE_OP(sigmoid, "Sigmoid: 1 / (1 + exp(-x)).", y, void, "");
