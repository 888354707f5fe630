/* autotune.cuh: the autotuner: finds the fastest kernel plan for a call on this device.
 *
 * The call has shapes and types; its text, with the GPU and the versions of libraries, is the key by which
 * choices are cached twice: in the device's cache, which is saved in checkpoints, and in the file of
 * device/cuda_tuning.h. A choice is a plan's name, from which that is made again.
 *
 * In deterministic mode the file is not read. Only those are timed which compute the bits of the first one in
 * the list, so that the choice changes no result; results that are too few to compare come from the first. */
#pragma once

#include "kernels/support/cuda.cuh"

extern "C" {
#include "kernels/algorithm.h"
}

/* Bytes of workspace that every candidate may request are `granted`; if all request more, the smallest such
 * number is. Memory for timing comes from device_allocate_within: if that is short, candidates that need the
 * most are not timed; if there is none, no candidate is, and the order of the list decides. FAILED: no
 * algorithm supports the call. Any thread. */
enum status autotune(const struct algorithm *const *algorithms, const struct call *call, size_t granted,
                     struct kernel_plan **made);
