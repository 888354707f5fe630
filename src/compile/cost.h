/* cost.h: the cost model: how long instructions take on a GPU; all but cost_program, cost_bytes, cost_flops
 * and COST_CALL is for this folder only. */
#pragma once

#include "compile/program.h"

#define COST_CALL 3e-6     /* seconds, of a call that does next to nothing */

/* Bytes that an instruction reads and writes, but for its workspace; masters and state of an
 * update included. */
double cost_bytes(const struct program *program, const struct instruction *at);

/* Operations of forward or of one gradient; a multiply-add is two. What is no product of weights has none. */
double cost_flops(const struct program *program, const struct instruction *at);

/* Seconds of one that calls an op, or the optimizer. */
double cost_call(const struct program *program, const struct instruction *at);
/* The same on so many cores of a processor. */
double cost_call_cpu(const struct program *program, const struct instruction *at, int threads);

/* Seconds of all those, one after another. */
double cost_program(const struct program *program);

/* Seconds that a backward takes longer when it recomputes what a forward instruction writes. */
double cost_fused_recompute(const struct program *program, const struct instruction *forward);

/* Seconds for an exchange among ranks that adds so many bytes of each up. */
double cost_exchange(int64_t bytes, int ranks);

/* Seconds for so many bytes from one GPU to another. */
double cost_message(int64_t bytes);

/* Seconds for so many bytes on their way to the host or back. */
double cost_transfer(int64_t bytes);
