/* export_onnx.h: the ONNX part of the command `export`. */
#pragma once

#include "cmd/cmd.h"

/* Writes the network and the weights of --weights to cmd->output, in F32 or F16; preprocessing and class
 * names are its metadata. `calibration`: the training images that are run to compute in 8 bits; 0: it does
 * not. */
enum status export_onnx(struct cmd *cmd, enum dtype dtype, int calibration);
