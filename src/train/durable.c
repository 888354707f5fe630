#include "train/durable.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

char *durable_path(const char *folder, const char *name)
{
    return text_format("%s/%s", folder, name);
}

enum status durable_folder(const char *path)
{
    char *copy = text_copy(path);
    int folder = open(dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    free(copy);
    /* Some network file systems refuse to sync folders (EINVAL); they keep names by themselves. */
    bool good = folder >= 0 && (fsync(folder) == 0 || errno == EINVAL);
    int why = errno;
    if (folder >= 0) close(folder);
    return good ? OK : fail(FAILED, "%s: its folder cannot be synced: %s", path, strerror(why));
}

enum status durable_rename(const char *from, const char *path)
{
    if (rename(from, path) != 0)
        return fail(FAILED, "%s: cannot be renamed to %s: %s", from, path, strerror(errno));
    return durable_folder(path);
}

static bool copy_bytes(int from, int to)
{
    char buffer[1 << 16];
    ssize_t got;
    for (int64_t at = 0; (got = file_read(from, buffer, sizeof buffer, at)) > 0; at += got)
        if (!file_write(to, buffer, (size_t)got, at)) return false;
    return got == 0 && fsync(to) == 0;
}

static bool copy_file(const char *from, const char *to)
{
    int source = open(from, O_RDONLY | O_CLOEXEC);
    int target = open(to, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = source >= 0 && target >= 0 && copy_bytes(source, target);
    int why = errno;
    if (source >= 0) close(source);
    if (target >= 0 && close(target) != 0 && good) good = false, why = errno;
    errno = why;
    return good;
}

enum status durable_link(const char *from, const char *path)
{
    char *temporary = text_format("%s.tmp", path);
    unlink(temporary);
    enum status status = OK;
    if (link(from, temporary) != 0 && !copy_file(from, temporary))
        status = fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    if (status == OK) status = durable_rename(temporary, path);
    /* Where both names are one file already, rename leaves the temporary one standing. */
    unlink(temporary);
    free(temporary);
    return status;
}
