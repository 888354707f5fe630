/* file_kind.h: the kind of a file by its first bytes: the one place that knows how kinds are told apart. */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum kind_of_file {
    FILE_UNKNOWN,
    FILE_SAFETENSORS,
    FILE_TORCH,                /* a zip archive, as torch.save writes, */
    FILE_TORCH_OLD,            /* what it wrote before version 1.6, */
    FILE_PICKLE,               /* and any other pickle */
    FILE_PACKED,               /* a packed data set of any version */
    FILE_TAR,
    FILE_PNG, FILE_JPEG, FILE_WEBP, FILE_TIFF,
    FILE_IMAGE,                /* images of another format */
    FILE_OTHER,
};

struct file_kind {
    enum kind_of_file kind;
    const char *name;          /* "HEIC", "ONNX", "a Git LFS pointer"; NULL for FILE_UNKNOWN */
};

/* Bytes of a file's beginning that are enough for every kind. */
#define FILE_KIND_BYTES 512

/* `bytes`: the first `count` of a file of `size` bytes. */
struct file_kind file_kind(const void *bytes, size_t count, uint64_t size);
