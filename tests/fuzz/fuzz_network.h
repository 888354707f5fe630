/* fuzz_network.h: a small network with values, into which files of tensors are read. */
#ifndef TESTS_FUZZ_FUZZ_NETWORK_H
#define TESTS_FUZZ_FUZZ_NETWORK_H

#include "conf/settings.h"
#include "graph/store.h"

struct fuzz_network {
    struct graph graph;
    struct device *device;
    struct store store;
    struct settings settings;
    const struct optimizer *optimizer;
};

/* The one of this process. */
struct fuzz_network *fuzz_network(void);

#endif
