/* weights.h: loads parameters by name from safetensors files: torchvision's, our exports, or our
 * checkpoints. */
#pragma once

#include <stdbool.h>

#include "exec/store.h"
#include "format/safetensors.h"

/* Fills the store's masters (and averages and copies) from fp32, fp16, bf16 or fp64 tensors. Of a
 * checkpoint the averages are taken where it has them, and that is said. Only num_batches_tracked
 * may be missing; everything else that is missing, left over or of another shape is listed,
 * BAD_CHECKPOINT. */
struct weights_options {
    bool fine_tuned;             /* the last layer may be for other classes: it keeps its initial values where
                                  * the file's has another number of them. Where the file names its classes,
                                  * rows are those of the classes of the same name, and the others keep
                                  * theirs. All of that is said. */
    char *const *class_names;    /* of the network; NULL: not known, and rows are taken as they are */
    int classes;
};
enum status weights_load(const char *path, const struct weights_options *options, struct store *store);
/* Whether the file could be loaded, saying the same; its numbers are not read. */
enum status weights_check(const char *path, const struct weights_options *options, const struct graph *graph);

/* The name under which the weights of parameter `name` stand in the file: the average, if there;
 * -1: not there. */
int weights_find(const struct safetensors *file, const char *name);

/* Whether an entry is a weight by its own name, not an average or optimizer state. */
bool weights_plain(const struct safetensors_entry *entry);

/* One tensor of the file as fp32 in `values`, which has room for it. */
bool weights_read(const struct safetensors *file, int entry, float *values, struct reason *reason);
