/* torch_file.h: tensors in a file that torch.save wrote: a zip archive of a pickle and the storages.
 *
 * The pickle is read as data (pickle.h): of the names in it, those of tensors are understood, those of plain
 * data skipped, all others refused. */
#pragma once

#include "base/tensor.h"
#include "format/zip.h"

struct torch_entry {
    char *name;
    enum dtype dtype;
    struct shape shape;         /* rank 0 is a single number */
    int64_t stride[4];          /* in elements, not negative */
    int64_t offset;             /* of the first element in the storage, in elements */
    int storage;                /* member of the archive, which contains every element */
};

struct torch_file {
    char *path;
    int file;                   /* descriptor */
    struct zip zip;
    struct torch_entry *entries;   /* in the order of their names */
    int count;
    const char *wrapper;        /* the key of the dictionary in which the tensors are; NULL: the outermost */
};

/* Reads and checks the list of tensors, those of a state_dict, in it or inside of a dictionary under one of
 * the usual keys. Refused, with a reason: old formats, damaged archives, other Python objects, tensors whose
 * elements would lie outside of their storage. */
bool torch_file_open(const char *path, struct torch_file *file, struct reason *reason);
void torch_file_close(struct torch_file *file);              /* accepts a zeroed struct */

/* Reads one tensor, in the order of its indices, and verifies the checksum of its storage. */
bool torch_file_read(const struct torch_file *file, int entry, void *data, struct reason *reason);
