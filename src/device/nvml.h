/* nvml.h: the energy counter of an NVIDIA GPU, by NVML, a library that comes with the driver and is looked up
 * at run time. */
#pragma once

/* Never NULL. `bus`: the GPU's PCI address, "0000:3b:00.0". */
struct nvml;
struct nvml *nvml_open(const char *bus);
void nvml_close(struct nvml *nvml);               /* accepts NULL */

/* Joules since the driver was loaded; NAN if the library or the GPU has no counter (before Volta; parts of a
 * GPU). The driver advances it ten times a second; a call takes milliseconds. */
double nvml_joules(const struct nvml *nvml);
