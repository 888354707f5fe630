/* export_onnx.h: the ONNX part of the command `export`. */
#pragma once

#include "cmd.h"

/* Writes the network and the weights that --weights names to cmd->output, F32 or F16; how images are brought
 * to it and the names of the classes are its metadata. */
enum status export_onnx(struct cmd *cmd, enum dtype dtype);
