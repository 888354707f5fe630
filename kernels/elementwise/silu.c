/* silu: y = x / (1 + exp(-x)) (Elfwing, Uchibe, Doya 2017; swish). */
#include <tgmath.h>

#include "kernels/elementwise/elementwise.h"

#define FORWARD(x) ((x) / (1 + exp(-(x))))
#define BACKWARD(d_y, x)                                                                                    \
    ({                                                                                                      \
        __typeof__(x) sigmoid = 1 / (1 + exp(-(x)));                                                        \
        (d_y) * (sigmoid * (1 + (x) * (1 - sigmoid)));                                                      \
    })

ELEMENTWISE_OP(silu, "SiLU (swish): x * sigmoid(x).", x, void, "");
