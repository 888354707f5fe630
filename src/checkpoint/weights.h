/* weights.h: loads parameters by name from weights files: our checkpoints and exports, or those of other
 * libraries, whose names are translated (weights_names.h). */
#pragma once

#include <stdbool.h>

#include "exec/store.h"
#include "format/weights_file.h"

/* The file that `named` stands for: itself or, if it is a run folder, its best checkpoint, or the newest,
 * which is reported. BAD_CHECKPOINT if the folder has none. The caller frees the path. */
enum status weights_path(const char *named, char **path);

/* Fills the store's masters (and averages and copies) from fp32, fp16, bf16 or fp64 tensors. If a checkpoint
 * has averages, these are used, which is reported, and so are prefixes that are removed and names that are
 * translated. Only num_batches_tracked may be missing; all other missing, surplus or mismatched tensors are
 * listed, BAD_CHECKPOINT; so is a file that has no weights of the network. */
struct weights_options {
    bool fine_tuned;             /* the last layer may be for other classes, or missing: it keeps its initial
                                  * values if the file has none or another number of classes. If the file
                                  * names its classes, rows are matched by name, and the others keep their
                                  * initial values. The first convolution may be for images of other channels.
                                  * Layers that lead to further outputs alone may be missing. All of this is
                                  * reported. */
    bool encoder;                /* ... and so may all layers behind the encoder (encoders.names): the weights
                                  * may be those of a network for images; they are initialised, which is
                                  * reported */
    bool resized;                /* position embeddings may be for images of another size */
    bool lenient;                /* missing, surplus and mismatched tensors are only reported */
    char *const *class_names;    /* of the network; NULL: unknown, and rows are not matched */
    int classes;
    const struct field_reals *mean, *std;   /* augment's: it is reported what others the weights want; NULL */
    const char *interpolation;              /* likewise, if a card says it */
};
enum status weights_load(const char *path, const struct weights_options *options, struct store *store);
/* Checks that the file could be loaded, with the same reports; does not read its values. */
enum status weights_check(const char *path, const struct weights_options *options, const struct graph *graph);

/* Opens a file and removes the prefixes that all of its names have, which is reported. */
enum status weights_open(const char *path, struct weights_file *file);

/* How the tensors of a file fit a network that is to be fine-tuned; nothing is reported. */
struct weights_match {
    const char *library;         /* whose names the file has; NULL: ours */
    int prefix;                  /* letters before every name of the file, which are no part of it */
    int problems;                /* missing, surplus and misshapen tensors; 0: it fits */
    char *first;                 /* some of them, for people; NULL: none */
    int classes, channels;       /* of the file's classifier, 0: it has none; of its images */
    int *entries;                /* by parameter of the network: the file's, below 0: none */
};
enum status weights_match(struct weights_file *file, const struct graph *graph, struct weights_match *match);
void weights_match_free(struct weights_match *match);        /* accepts a zeroed struct */

void weights_say_prefix(const struct weights_file *file, int prefix);

/* The name of a library (weights_names.h) for people. */
const char *weights_library_title(const char *library);

/* The entry with the weights of parameter `name`: the average, if there is one; -1: none. */
int weights_find(const struct weights_file *file, const char *name);

/* True if an entry is a weight by its own name, not an average or optimizer state. */
bool weights_plain(const struct weights_entry *entry);

/* Reads one tensor as fp32 into `values`, which has room for it. */
bool weights_read(const struct weights_file *file, int entry, float *values, struct reason *reason);
