/* cuda_driver.h: functions of the CUDA driver, looked up at run time, so that the program also starts without
 * a driver. */
#pragma once

#include <stdbool.h>

/* Writes the driver's function of that name, as it is since `version` (12000 is CUDA 12.0), to *function.
 * False: it has none. */
bool cuda_driver_find(const char *name, int version, void *function);
