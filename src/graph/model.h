/* model.h: builds graphs from model files (INI with blocks and parameters). See amptrain-model(5). */
#pragma once

#include "graph/graph.h"

/* The outputs that a network may have: a vector for each image, or for each pixel. */
enum model_outputs { OUTPUTS_OF_IMAGES, OUTPUTS_OF_PIXELS, OUTPUTS_ANY };

struct model_options {
    const char *arch;            /* NAME, looked up as NAME.ini in `folders`; or NULL */
    const char *file;            /* a file's path; or NULL */
    const char *text;            /* a model file's text, which messages call `arch`; or NULL */
    const char *const *folders;  /* folders of installed models, NULL-terminated, the first match wins */
    int size_h, size_w, channels;/* of the input; 0: the model file's */
    int classes;                 /* $classes; 0: the model file's default (1000) */
    enum model_outputs outputs;  /* others are refused */
    double dropout;              /* overrides every dropout rate; negative: off */
    double bn_momentum;          /* overrides the momentum of every batch norm; 0: off */
    double norm_eps;             /* overrides the eps of every norm (graph/norm_eps.h); 0: off */
    const double *drop_path;     /* overrides the largest rate of drop_path; others are in proportion or, if
                                  * all are 0, grow linearly from block to block; NULL: off */
};

/* The graph of a model file. Errors are reported with file:line and layer, USAGE. The graph is not fused. The
 * caller frees it with graph_free. */
enum status model_load(const struct model_options *options, struct graph *graph);

/* Loads from text; `name` is for messages, arch and file are ignored. */
enum status model_load_text(const struct model_options *options, const char *name, const char *text,
                            struct graph *graph);

/* The image size and channels in [input] of a model file (0: not given). */
enum status model_input(const struct model_options *options, int *size, int *channels);

/* The valid names of `arch`, sorted: an array of `count` texts; the caller frees all of it. */
char **model_names(const char *const *folders, int *count);
