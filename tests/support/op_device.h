/* op_device.h: runs a call whose tensors lie in host memory on a device that has memory of its own. */
#pragma once

#include "device/device.h"
#include "kernels/op.h"

/* Copies every tensor of the call to the device, each into an allocation of its own at an odd multiple
 * of 256 bytes, and the loss scale, the step and `skipped` likewise; poisons the workspace that the code
 * asks for; runs the code on stream 0 and copies all back to where it came from. Tensors at one address (in
 * place) share their allocation. Weights of rank 4, and their gradients, lie as k, r, s, c there when the
 * code says so. `captures`: the work is captured, which nothing but queueing work survives, and launched. */
enum status op_device_run(const struct op_code *code, const struct call *call, bool captures);
