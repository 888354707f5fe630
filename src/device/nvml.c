#include "device/nvml.h"

#include <math.h>
#include <stdlib.h>

#include "base/library.h"
#include "base/memory.h"

/* Functions of the NVML API reference; all return 0 on success. */
struct functions {
    int (*nvmlInit_v2)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus, void **gpu);
    int (*nvmlDeviceGetTotalEnergyConsumption)(void *gpu, unsigned long long *millijoules);
};
static const char *const names[] = {"nvmlInit_v2", "nvmlDeviceGetHandleByPciBusId_v2",
                                    "nvmlDeviceGetTotalEnergyConsumption", NULL};

struct nvml {
    struct functions call;
    void *gpu;                       /* NULL: unknown */
};

struct nvml *nvml_open(const char *bus)
{
    struct nvml *nvml = memory_new(1, sizeof *nvml);
    struct functions *call = &nvml->call;
    struct reason why;
    void *gpu;
    bool begun = library_open("libnvidia-ml.so.1", names, call, &why) && call->nvmlInit_v2() == 0;
    if (begun && call->nvmlDeviceGetHandleByPciBusId_v2(bus, &gpu) == 0) nvml->gpu = gpu;
    return nvml;
}

double nvml_joules(const struct nvml *nvml)
{
    unsigned long long millijoules;
    if (!nvml->gpu) return NAN;
    if (nvml->call.nvmlDeviceGetTotalEnergyConsumption(nvml->gpu, &millijoules) != 0) return NAN;
    return 1e-3 * (double)millijoules;
}

/* The library stays as it is until the process ends: shutting it down takes 11 ms. */
void nvml_close(struct nvml *nvml)
{
    free(nvml);
}
