#include "device/nvml.h"

#include <dlfcn.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"

/* As in the NVML API reference; all return 0 on success. */
struct nvml {
    int (*nvmlInit_v2)(void);
    int (*nvmlDeviceGetHandleByPciBusId_v2)(const char *bus, void **gpu);
    int (*nvmlDeviceGetTotalEnergyConsumption)(void *gpu, unsigned long long *millijoules);
    void *gpu;                       /* NULL: unknown */
};

static bool load(struct nvml *nvml)
{
    void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!library) return false;
#define FIND(name) if (!(nvml->name = (__typeof__(nvml->name))dlsym(library, #name))) return false;
    FIND(nvmlInit_v2)
    FIND(nvmlDeviceGetHandleByPciBusId_v2)
    FIND(nvmlDeviceGetTotalEnergyConsumption)
#undef FIND
    return true;
}

struct nvml *nvml_open(const char *bus)
{
    struct nvml *nvml = memory_new(1, sizeof *nvml);
    void *gpu;
    bool begun = load(nvml) && nvml->nvmlInit_v2() == 0;
    if (begun && nvml->nvmlDeviceGetHandleByPciBusId_v2(bus, &gpu) == 0) nvml->gpu = gpu;
    return nvml;
}

double nvml_joules(const struct nvml *nvml)
{
    unsigned long long millijoules;
    if (!nvml->gpu || nvml->nvmlDeviceGetTotalEnergyConsumption(nvml->gpu, &millijoules) != 0) return NAN;
    return 1e-3 * (double)millijoules;
}

/* The library stays as it is until the process ends: shutting it down takes 11 ms. */
void nvml_close(struct nvml *nvml)
{
    free(nvml);
}
