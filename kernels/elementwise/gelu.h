/* gelu.h: settings and constants of gelu. */
#pragma once

enum gelu_approximation { GELU_EXACT, GELU_TANH };

struct gelu {
    int approximate;   /* enum gelu_approximation */
};

#define GELU_SCALE 0.79788456080286535588   /* sqrt(2 / pi) */
#define GELU_CUBIC 0.044715
