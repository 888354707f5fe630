/* weights_file.h: the tensors of a weights file in any format: safetensors, also divided into several files
 * by an index, and PyTorch's archives. */
#pragma once

#include "format/safetensors.h"
#include "format/torch_file.h"

struct weights_entry {
    char *name;
    enum dtype dtype;
    struct shape shape;         /* rank 0 is a single number */
    int part, at;               /* its file, and its place there */
};

struct weights_file {
    char *path;
    struct weights_entry *entries;   /* in the order of their names */
    int count;
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

/* Reads one tensor in its own type, without gaps, and verifies its checksum if the file has one. */
bool weights_file_read(const struct weights_file *file, int entry, void *data, struct reason *reason);
