#include "format/npy.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#define HEADER 128

static enum status npy_refuse(const struct npy_file *npy)
{
    return directory_refuse(&directory_working, npy->path, strerror(errno));
}

enum status npy_begin(const char *path, const int64_t *shape, int rank, struct npy_file *npy)
{
    char header[HEADER], dims[72];
    npy->path = path;
    TRY(atomic_file_begin(&directory_working, path, &npy->file));
    for (int i = 0, at = 0; i < rank; i++)
        at += snprintf(dims + at, sizeof dims - (size_t)at, "%s%" PRId64, i ? ", " : "", shape[i]);
    int length = snprintf(header + 10, sizeof header - 10,
                          "{'descr': '<f4', 'fortran_order': False, 'shape': (%s), }", dims);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    memset(header + 10 + length, ' ', sizeof header - 11 - (size_t)length);
    header[sizeof header - 1] = '\n';
    if (fwrite(header, 1, sizeof header, npy->file.stream) == sizeof header) return OK;
    return npy_refuse(npy);
}

enum status npy_add(struct npy_file *npy, const float *values, size_t count)
{
    if (fwrite(values, sizeof *values, count, npy->file.stream) == count) return OK;
    return npy_refuse(npy);
}

enum status npy_end(struct npy_file *npy, enum status status)
{
    if (!npy->file.stream) return status;
    enum status ended = atomic_file_end(&npy->file, status == OK);
    return status == OK ? ended : status;
}
