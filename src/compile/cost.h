/* cost.h: the cost model: how long instructions take on a GPU; all but cost_program, cost_bytes, cost_flops
 * and COST_LAUNCH is for this folder only. */
#pragma once

#include "compile/program.h"

#define COST_CALL 3e-6     /* seconds of an empty call */
#define COST_LAUNCH 5e-6   /* the same as cost_seconds has it */

/* Bytes that an instruction reads and writes, but for its workspace; masters and state of an
 * update included. */
double cost_bytes(const struct program *program, const struct instruction *at);

/* Operations of forward or of one gradient; a multiply-add is two. Only products with weights count. */
double cost_flops(const struct program *program, const struct instruction *at);

/* Seconds of one that calls an op, or the optimizer, alone on a GPU; to forecast how long steps take. */
double cost_seconds(const struct program *program, const struct instruction *at);
/* The same, roughly: to compare choices of memory. */
double cost_call(const struct program *program, const struct instruction *at);
/* The same on so many cores of a processor. */
double cost_call_cpu(const struct program *program, const struct instruction *at, int threads);

/* Seconds of all instructions, serialised. */
double cost_program(const struct program *program);

/* Seconds to recompute the output of a forward instruction by a call of its own. */
double cost_recompute(const struct program *program, const struct instruction *forward);

/* Additional seconds of a backward instruction that recomputes the output of a forward instruction. */
double cost_fused_recompute(const struct program *program, const struct instruction *forward);

/* Seconds of an all-reduce of that many bytes. */
double cost_exchange(int64_t bytes, int ranks);

/* Seconds to copy that many bytes from one GPU to another. */
double cost_message(int64_t bytes);

/* Seconds to copy that many bytes to the host or back. */
double cost_transfer(int64_t bytes);
