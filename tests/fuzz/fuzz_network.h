/* fuzz_network.h: a small network with values, into which files of tensors are read. */
#pragma once

#include "conf/settings.h"
#include "exec/store.h"
#include "checkpoint/checkpoint.h"

struct fuzz_network {
    struct graph graph;
    struct device *device;
    struct store store;
    struct settings settings;
    const struct optimizer *optimizer;
    struct dataset datasets[2];
    struct dataset_identity identities[2];
};

/* Its model file. */
extern const char fuzz_model[];

/* The one of this process. */
struct fuzz_network *fuzz_network(void);

/* The network whose checkpoints are used. */
struct checkpoint_source fuzz_source(void);

/* Does with a checkpoint all that a run which is resumed does with it. */
void fuzz_resume(const char *path);
