#include "base/directory.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

bool directory_is(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

const struct directory directory_working = {.file = AT_FDCWD};

bool directory_make(const char *path, mode_t mode, struct reason *reason)
{
    struct stat status;
    int parent = 0;                    /* why a folder on the way is missing */
    char *copy = text_copy(path);
    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        /* The first part of an absolute path is "", which is harmless. */
        if (mkdir(copy, mode) != 0 && errno != ENOENT && !directory_is(copy)) parent = errno;
        *slash = '/';
    }
    bool good = (mkdir(copy, mode) == 0 || errno == EEXIST) && stat(copy, &status) == 0;
    if (good && !S_ISDIR(status.st_mode)) good = false, errno = ENOTDIR;
    int error = errno == ENOENT && parent ? parent : errno;
    free(copy);
    return good || because(reason, "%s", strerror(error));
}

enum status directory_open(const char *path, struct directory *directory)
{
    int file = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (file < 0) return fail(FAILED, "%s: cannot open the folder: %s", path, strerror(errno));
    *directory = (struct directory){.file = file, .path = text_copy(path)};
    return OK;
}

void directory_close(struct directory *directory)
{
    if (!directory->path) return;
    close(directory->file);
    free(directory->path);
    *directory = (struct directory){.file = -1};
}

char *directory_show(const struct directory *directory, const char *name)
{
    return directory->path ? text_format("%s/%s", directory->path, name) : text_copy(name);
}

static int refuse_kind(int file, mode_t kind, struct reason *reason)
{
    close(file);
    because(reason, "%s", S_ISDIR(kind) ? strerror(EISDIR) : "not a regular file");
    return -1;
}

static int refuse_error(int error, bool writes, struct reason *reason)
{
    because(reason, "%s", writes && error == ELOOP ? "a symbolic link, through which nothing is written" :
                          error == ENXIO ? "not a regular file" : strerror(error));
    /* ENXIO: a pipe that nobody reads; a socket. */
    reason->error = error == ENXIO ? 0 : error;
    return -1;
}

/* A file that is written in place is reached by this name alone: not through a symbolic link, which openat
 * has refused, nor as a hard link to a file that others know by another name. */
static int check_name(int file, const struct stat *status, bool truncates, struct reason *reason)
{
    bool linked = status->st_nlink > 1;
    if (!linked && (!truncates || ftruncate(file, 0) == 0)) return file;
    int error = linked ? EMLINK : errno;
    because(reason, "%s", linked ? "it has other names (hard links), which would change as well"
                                 : strerror(error));
    reason->error = error;
    close(file);
    return -1;
}

int directory_file(const struct directory *directory, const char *name, int flags, struct reason *reason)
{
    bool writes = (flags & O_ACCMODE) != O_RDONLY;
    int safe = O_CLOEXEC | O_NONBLOCK | O_NOCTTY | (writes ? O_NOFOLLOW : 0);
    /* Without O_NONBLOCK, opening a pipe would wait for its other end. */
    int file;
    do file = openat(directory->file, name, (flags & ~O_TRUNC) | safe, 0666);
    while (file < 0 && errno == EMFILE && file_raise_limit());
    struct stat status;
    if (file < 0) return refuse_error(errno, writes, reason);
    if (fstat(file, &status) != 0) {
        refuse_error(errno, writes, reason);
        close(file);
        if (flags & O_EXCL) unlinkat(directory->file, name, 0);      /* it was created here */
        return -1;
    }
    if (!S_ISREG(status.st_mode)) return refuse_kind(file, status.st_mode, reason);
    return writes ? check_name(file, &status, flags & O_TRUNC, reason) : file;
}

FILE *directory_stream(const struct directory *directory, const char *name, const char *mode,
                       struct reason *reason)
{
    int access = mode[0] == 'r' && mode[1] != '+' ? O_RDONLY : mode[0] == 'r' ? O_RDWR : O_WRONLY;
    int made = mode[0] == 'w' ? O_CREAT | O_TRUNC : mode[0] == 'a' ? O_CREAT | O_APPEND : 0;
    int file = directory_file(directory, name, access | made, reason);
    FILE *stream = file >= 0 ? fdopen(file, mode) : NULL;
    if (file >= 0 && !stream) {
        because(reason, "%s", strerror(errno));
        close(file);
    }
    return stream;
}

FILE *directory_stream_within(const struct directory *directory, const char *name, const char *mode,
                              int64_t most, struct reason *reason)
{
    struct stat status;
    FILE *stream = directory_stream(directory, name, mode, reason);
    if (!stream || (fstat(fileno(stream), &status) == 0 && status.st_size <= most)) return stream;
    because(reason, "too large: it exceeds %" PRId64 " MiB", most >> 20);
    fclose(stream);
    return NULL;
}

static bool read_bytes(int file, size_t most, char **bytes, size_t *count, struct reason *reason)
{
    struct stat status;
    if (fstat(file, &status) != 0) return because(reason, "%s", strerror(errno));
    *count = (size_t)status.st_size;
    if (*count > most) return because(reason, "too large: it exceeds %zu MiB", most >> 20);
    *bytes = malloc(*count + 1);
    if (!*bytes) return because(reason, "not enough memory for its %zu bytes", *count);
    ssize_t got = file_read(file, *bytes, *count, 0);
    (*bytes)[*count] = '\0';
    if (got < 0) return because(reason, "%s", strerror(errno));
    return (size_t)got == *count || because(reason, "truncated while it was read");
}

bool directory_read(const struct directory *directory, const char *name, size_t most, char **bytes,
                    size_t *count, struct reason *reason)
{
    char *read = NULL;
    int file = directory_file(directory, name, O_RDONLY, reason);
    if (file < 0) return false;
    bool good = read_bytes(file, most, &read, count, reason);
    close(file);
    if (good) *bytes = read;
    else free(read);
    return good;
}

enum status directory_check(const struct directory *directory, const char *name)
{
    if (!directory->is_lost || !directory->is_lost(directory->owner)) return OK;
    return directory_refuse(directory, name, "another process has taken the folder; it is left unchanged");
}

enum status directory_refuse(const struct directory *directory, const char *name, const char *why)
{
    char *shown = directory_show(directory, name);
    enum status status = fail(FAILED, "%s: cannot be written: %s", shown, why);
    free(shown);
    return status;
}

_Bool directory_has(const struct directory *directory, const char *name)
{
    struct stat status;
    return fstatat(directory->file, name, &status, AT_SYMLINK_NOFOLLOW) == 0 ||
           (errno != ENOENT && errno != ENOTDIR);
}

void directory_remove(const struct directory *directory, const char *name)
{
    unlinkat(directory->file, name, 0);
}
