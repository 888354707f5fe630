/* sigmoid: y = 1 / (1 + exp(-x)). */
#include "kernels/elementwise/elementwise.h"
#include "kernels/support/exp.h"

#define FORWARD(x) SIGMOID(x)
#define BACKWARD(d_y, y) ((d_y) * ((y) * (1 - (y))))

ELEMENTWISE_OP(sigmoid, "Sigmoid: 1 / (1 + exp(-x)).", y, void, "");
