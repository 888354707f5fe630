#include "amp/precision.h"

const struct precision_row precision_table[PRECISION_COUNT] = {
    [PRECISION_FP32] = {"fp32", F32, .help = "single precision throughout"},
    [PRECISION_TF32] = {"tf32", F32, .tf32 = true,
                        .help = "fp32, but the GPU's matrix products round their inputs to 10 bits"},
    [PRECISION_FP16] = {"fp16", F16, .low = true, .scale_by_default = true,
                        .help = "half precision with fp32 sums and master weights; scales the loss"},
    [PRECISION_BF16] = {"bf16", BF16, .low = true,
                        .help = "bfloat16 with fp32 sums and master weights; needs no loss scale"},
};
