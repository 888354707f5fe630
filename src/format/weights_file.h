/* weights_file.h: the tensors of a weights file in any format: safetensors, also divided into several files
 * by an index, and PyTorch's archives; and tensors that are made of those. */
#pragma once

#include "format/safetensors.h"
#include "format/torch_file.h"

#define WEIGHTS_SOURCES_MAX 4

struct weights_entry {
    char *name;
    enum dtype dtype;
    struct shape shape;         /* rank 0 is a single number */
    int part, at;               /* its file, and its place there */
    int sources[WEIGHTS_SOURCES_MAX], source_count;   /* the entries that it is made of; 0: it is stored */
};

struct weights_file {
    char *path;
    struct weights_entry *entries;   /* in the order of their names; then those that are made of them */
    int count, made;
    struct safetensors *parts;  /* safetensors files; NULL: an archive of PyTorch */
    int part_count;
    struct torch_file torch;
    struct safetensors described;    /* metadata of a single safetensors file; otherwise empty */
};

/* Opens a file by its content; NAME.safetensors.index.json, which Hugging Face's libraries write, by its
 * name. False, with a reason, for all that safetensors.h and torch_file.h refuse. */
bool weights_file_open(const char *path, struct weights_file *file, struct reason *reason);
void weights_file_close(struct weights_file *file);          /* accepts a zeroed struct */

int weights_file_find(const struct weights_file *file, const char *name);         /* -1: not there */

/* Makes a tensor of others, by an expression, which becomes its name:
 *     A{b,c,d}E   the rows of AbE, then those of AcE, then those of AdE
 *     A[N:]       A without its first N tokens: [1, tokens, width]
 *     A+B         A plus the first tokens of B
 *     A|          the first half of A's columns, if the others are 0
 * False if one of them is missing, or if their shapes or types do not allow it. */
bool weights_file_make(struct weights_file *file, const char *expression);

#define WEIGHTS_SIGNS "{[+|"

/* True if a name is such an expression. */
bool weights_file_is_expression(const char *name);

/* Reads one tensor in its own type, without gaps, and verifies its checksum if the file has one. */
bool weights_file_read(const struct weights_file *file, int entry, void *data, struct reason *reason);
