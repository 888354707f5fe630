#include "refuse.h"

#include <errno.h>
#include <stdatomic.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>

static struct {
    const char *name;        /* NULL: none is to fail */
    int left;                /* calls of it before that */
} wanted;

void refuse(const char *name, int calls)
{
    wanted.name = name;
    wanted.left = calls;
}

bool refuse_struck(void)
{
    bool done = !wanted.name;
    wanted.name = NULL;
    return done;
}

static bool strikes(const char *name)
{
    if (!wanted.name || strcmp(wanted.name, name) != 0 || wanted.left-- > 0) return false;
    wanted.name = NULL;
    errno = EIO;
    return true;
}

/* The linker leads calls of NAME to __wrap_NAME. */
#define REFUSABLE(type, name, failure, parameters, arguments)      \
    type __real_##name parameters;                                 \
    type __wrap_##name parameters;                                 \
    type __wrap_##name parameters                                  \
    {                                                              \
        return strikes(#name) ? failure : __real_##name arguments; \
    }

REFUSABLE(ssize_t, pread, -1, (int file, void *to, size_t bytes, off_t at), (file, to, bytes, at))
REFUSABLE(ssize_t, pwrite, -1, (int file, const void *from, size_t bytes, off_t at), (file, from, bytes, at))
REFUSABLE(int, fsync, -1, (int file), (file))
REFUSABLE(int, ftruncate, -1, (int file, off_t bytes), (file, bytes))
REFUSABLE(int, fstat, -1, (int file, struct stat *status), (file, status))
REFUSABLE(int, linkat, -1, (int from, const char *name, int to, const char *other, int flags),
          (from, name, to, other, flags))
REFUSABLE(int, renameat, -1, (int from, const char *name, int to, const char *other), (from, name, to, other))
REFUSABLE(int, getentropy, -1, (void *to, size_t bytes), (to, bytes))
REFUSABLE(int, close, (__real_close(file), -1), (int file), (file))
REFUSABLE(int, memfd_create, -1, (const char *name, unsigned flags), (name, flags))
REFUSABLE(void *, mmap, (void *)-1, (void *at, size_t bytes, int access, int flags, int file, off_t from),
          (at, bytes, access, flags, file, from))
REFUSABLE(void *, memory_try, NULL, (size_t count, size_t bytes), (count, bytes))
