/* cost.h: the cost model: how long the instructions of a program take on its machine. */
#pragma once

#include "compile/ir/program.h"

/* Bytes that an instruction reads and writes without its workspace; an update's include master weights and
 * optimizer state. */
double cost_bytes(const struct program *program, const struct instruction *at);

/* Floating-point operations of a layer's forward: every weight is used once for each pixel of the output, in
 * a multiply and an add. */
double cost_layer_flops(int64_t weights, struct shape output, int64_t images);
double cost_node_flops(const struct graph *graph, int node, int64_t images);

/* Operations of an instruction: of products with weights alone, of both gradients if it computes both. */
double cost_flops(const struct program *program, const struct instruction *at);

/* Seconds of an instruction that calls an op or the optimizer, alone on the program's machine. */
double cost_seconds(const struct program *program, const struct instruction *at);

/* Seconds of all instructions, one after another. */
double cost_program(const struct program *program);

/* Seconds to recompute the output of a forward instruction by a separate call. */
double cost_recompute(const struct program *program, const struct instruction *forward);

/* Additional seconds of a backward instruction that also recomputes the output of a forward instruction. */
double cost_fused_recompute(const struct program *program, const struct instruction *forward);

/* Seconds of an all-reduce of that many bytes among ranks of one host. */
double cost_exchange(const struct program *program, double bytes, int ranks);

/* Seconds to copy that many bytes to the host or back. */
double cost_transfer(const struct program *program, double bytes);
