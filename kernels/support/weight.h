/* weight.h: the settings shared by layers with weights: the bias, and the initialisation. */
#pragma once

#include "kernels/op.h"

struct weight_settings {
    bool bias;
    int init, bias_init;    /* indices into the choices below */
    double init_std;
};

extern const char *const weight_inits[];
extern const char *const weight_bias_inits[];

/* Rows for the op's field table; `member` is the struct weight_settings in struct `settings`. */
#define WEIGHT_FIELDS(settings, member)                                                               \
    {.name = "bias", .type = FIELD_BOOL, .offset = offsetof(settings, member.bias), .initial = "yes", \
     .help = "Learn a bias for each output channel."},                                                 \
    {.name = "init", .type = FIELD_CHOICE, .offset = offsetof(settings, member.init),                 \
     .initial = "default", .choices = weight_inits,                                                   \
     .help = "Initialisation of the weights; default is uniform in +-1/sqrt(fan_in)."},               \
    {.name = "init_std", .type = FIELD_REAL, .offset = offsetof(settings, member.init_std),           \
     .initial = "0.01", .min = 0, .max = 1e6,                                                         \
     .help = "Standard deviation for init=normal and init=truncated_normal."},                        \
    {.name = "bias_init", .type = FIELD_CHOICE, .offset = offsetof(settings, member.bias_init),       \
     .initial = "default", .choices = weight_bias_inits,                                              \
     .help = "Initialisation of the bias; default is uniform in +-1/sqrt(fan_in), normal has a "       \
             "standard deviation of 1e-6."}

/* Fills `weight` and, if there is one, `bias` (of the length of the weight's first dimension); returns their
 * number. Fans are torch's: fan_in products per output, fan_out outputs per input. */
int weight_params(const struct weight_settings *settings, struct shape weight, int64_t fan_in,
                  int64_t fan_out, struct op_param out[OP_MAX_PARAMS]);

/* The bias's gradient, as reference code computes it: d_y summed over all but its last dimension. */
void weight_d_bias(const struct tensor *d_y, struct tensor *d_bias);
