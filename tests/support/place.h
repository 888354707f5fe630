/* place.h: the device that a test runs on: the CPU, or the one that AMPTRAIN_DEVICE names. */
#pragma once

#include "device/device.h"

/* Ends the program when it does not open. threads 0: all. */
struct device *place_open(int threads);
bool place_is_cpu(void);

/* Device memory, copied to the heap; and filled with bytes of 0xff: NaN in every floating type. */
void *place_copy(struct device *device, const void *memory, size_t bytes);
void place_poison(struct device *device, void *memory, size_t bytes);
