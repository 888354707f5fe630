/* export_safetensors.h: writes the weights of checkpoints or other files to a new safetensors file. */
#pragma once

#include "base/dtype.h"
#include "base/status.h"
#include "format/safetensors.h"

/* How such a file begins (base/signature.h). */
#define EXPORT_SAFETENSORS_SIGNATURE SAFETENSORS_SIGNATURE ",\"format\":\"pt\"*"

/* Tensors, by their names, of the type and size that they have in the output. */
struct export_values {
    struct export_value {
        const char *name;
        const void *data;
    } *list;
    int count;
};

/* Writes the weights of a file, or the mean of those of several, to `output` as fp32, fp16 or bf16. Its
 * metadata are those of the first file that predict and eval need. Averaged weights (ema) are used if there
 * are any. `library`: one of weights_libraries, whose names and shapes are written; NULL: the file's own,
 * and second names that its library stores too.
 * `values`: replace those of the files; NULL: none do. */
enum status export_safetensors(const char *const *paths, int count, enum dtype dtype, const char *library,
                               const char *output, const struct export_values *values);
