/* model_parts.h: the state of model parsing; for model*.c only. */
#pragma once

#include "conf/ini.h"
#include "graph/model.h"
#include "graph/names.h"

#define MODEL_BLOCK "block:"     /* begins a block's section name */

/* [input]. */
struct input_settings {
    int64_t channels, size, classes;
};

/* A section of the file: entries first .. last - 1. */
struct section {
    const char *name;
    int line, first, last;
};

struct model {
    const struct model_options *options;
    struct ini ini;
    struct section *sections;
    int section_count;
    struct names blocks;         /* block name -> section */
    struct input_settings input;
    int block_count;             /* outermost blocks in use */
    size_t text;                 /* bytes of lines read so far, counting a block at each use */
    struct graph graph;
};

/* The path of the file that the options name; the caller frees it. An architecture's name cannot refer to
 * another folder. */
enum status model_find(const struct model_options *options, char **path);
/* "resnet50" of "/usr/share/amptrain/models/resnet50.ini"; the caller frees it. */
char *model_base_name(const char *path);

/* Sets the rates of drop_path to model_options.drop_path. */
enum status model_set_drop_path(const struct model_options *options, struct graph *graph);

/* The nodes of [layers], and of the blocks that it uses; and the outputs. `outputs` NULL: there is only the
 * last layer's. */
enum status model_read_layers(struct model *model, const struct section *layers,
                              const struct section *outputs);

/* Parts of letters, digits, '_' and '-' with single dots between them. */
bool model_name_is_valid(const char *name);

/* "; did you mean 'x'?", or nothing; in a buffer of the caller's. */
#define HINT_SIZE 128
const char *model_hint(const char *word, const struct names *names, char text[HINT_SIZE]);
