/* silu: y = x / (1 + exp(-x)) (Elfwing, Uchibe, Doya 2017; swish). */
#include "kernels/elementwise/elementwise.h"
#include "kernels/support/exp.h"

#define FORWARD(x) ((x) * SIGMOID(x))
#define BACKWARD(d_y, x)                                                                                    \
    ({                                                                                                      \
        __typeof__(x) sigmoid = SIGMOID(x);                                                                 \
        (d_y) * (sigmoid * (1 + (x) * (1 - sigmoid)));                                                      \
    })

ELEMENTWISE_OP(silu, "SiLU (swish): x * sigmoid(x).", x, void, "");
