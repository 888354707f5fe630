/* export_safetensors.h: writes the weights of checkpoints or other files to a new safetensors file. */
#pragma once

#include "base/dtype.h"
#include "base/status.h"

/* Writes the weights of a file, or the mean of those of several, to `output`, as fp32, fp16 or bf16, with
 * what predict and eval need as metadata, which the first file has. Averaged weights (ema) are taken where
 * there are any. */
enum status export_safetensors(const char *const *paths, int count, enum dtype dtype, const char *output);
