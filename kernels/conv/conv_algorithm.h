/* conv_algorithm.h: algorithms of our own for convolutions on the CPU, in the place of the library's. */
#pragma once

#include "kernels/op.h"

struct conv_algorithm {
    const char *name;          /* of the variant */
    bool weights_only;         /* it computes backward_params alone */
    /* The instructions that it needs and this CPU does not have; NULL: none. The slot may be, too. */
    const char *(*lacks)(void);
    /* A plan for the call's shapes; NULL if the CPU or the convolution is not supported. */
    void *(*prepare)(const struct call *call);
    void (*release)(void *plan);
    /* Whether it is faster than the library; NULL: it runs only when call->variant asks for it. */
    bool (*pays)(const void *plan, enum phase phase);
    /* As the slots of struct op_code; `run` is forward, backward_data and backward_params. */
    size_t (*workspace)(const void *plan, const struct call *call);
    enum status (*run)(const void *plan, const struct call *call);
};

extern const struct conv_algorithm conv_depthwise, conv_gemm, conv_gemm_per_image, conv_shifted,
                                   conv_winograd;
