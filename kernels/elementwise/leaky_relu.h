/* leaky_relu.h: settings of leaky_relu. */
#pragma once

struct leaky_relu {
    double slope;
};
