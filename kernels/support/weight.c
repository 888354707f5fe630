#include "kernels/support/weight.h"

const char *const weight_inits[] = {
    "default", "kaiming_out", "kaiming_in", "normal", "truncated_normal", "xavier",
    "kaiming_uniform", "uniform_out", "zero", "dirac", "whiten", NULL,
};
static const enum init inits[] = {
    INIT_UNIFORM_FAN_IN, INIT_KAIMING_FAN_OUT, INIT_KAIMING_FAN_IN, INIT_NORMAL,
    INIT_TRUNCATED_NORMAL, INIT_XAVIER_UNIFORM, INIT_KAIMING_UNIFORM,
    INIT_UNIFORM_FAN_OUT, INIT_ZERO, INIT_DIRAC, INIT_WHITEN,
};

const char *const weight_bias_inits[] = {"default", "zero", "normal", NULL};
static const enum init bias_inits[] = {INIT_UNIFORM_FAN_IN, INIT_ZERO, INIT_NORMAL};

int weight_params(const struct weight_settings *settings, struct shape weight, int64_t fan_in,
                  int64_t fan_out, struct op_param out[OP_MAX_PARAMS])
{
    enum init init = inits[settings->init];
    out[0] = (struct op_param){
        .name = "weight", .shape = weight, .role = ROLE_WEIGHT, .dtype = F32,
        .init = init, .init_arg = init == INIT_DIRAC ? 1 : settings->init_std,
        .fan_in = fan_in, .fan_out = fan_out,
    };
    if (!settings->bias) return 1;
    out[1] = (struct op_param){
        .name = "bias", .shape = shape_vector(weight.dim[0]), .role = ROLE_BIAS, .dtype = F32,
        .init = bias_inits[settings->bias_init], .init_arg = 1e-6, .fan_in = fan_in, .fan_out = fan_out,
    };
    return 2;
}

void weight_d_bias(const struct tensor *d_y, struct tensor *d_bias)
{
    int64_t outputs = shape_count(d_bias->shape), rows = shape_count(d_y->shape) / outputs;
    for (int64_t k = 0; k < outputs; k++) {
        double sum = 0;
        for (int64_t row = 0; row < rows; row++) sum += tensor_get(d_y, row * outputs + k);
        tensor_set(d_bias, k, sum);
    }
}
