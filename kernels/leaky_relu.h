/* leaky_relu.h: settings of leaky_relu. */
#ifndef KERNELS_LEAKY_RELU_H
#define KERNELS_LEAKY_RELU_H

struct leaky_relu {
    double slope;
};

#endif
