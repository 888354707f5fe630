#include "base/atomic_file.h"

#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

char *atomic_file_path(const char *folder, const char *name)
{
    return text_format("%s/%s", folder, name);
}

/* Syncs the folder that the file lies in, so that names in it survive. */
static enum status sync_folder(const struct directory *in, const char *name)
{
    char *copy = text_copy(name), *shown = directory_show(in, name);
    int folder = openat(in->file, dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    /* Some network file systems do not support syncing folders (EINVAL). */
    bool good = folder >= 0 && (fsync(folder) == 0 || errno == EINVAL);
    int why = errno;
    if (folder >= 0) close(folder);
    enum status status = good ? OK : fail(FAILED, "%s: cannot sync its folder: %s", shown, strerror(why));
    free(shown);
    free(copy);
    return status;
}

enum status atomic_file_rename(const struct directory *in, const char *from, const char *name)
{
    if (renameat(in->file, from, in->file, name) == 0) return sync_folder(in, name);
    char *shown = directory_show(in, from);
    enum status status = fail(FAILED, "%s: cannot rename it to %s: %s", shown, name, strerror(errno));
    free(shown);
    return status;
}

/* Writes a new file; false with errno. */
static bool write_synced(int file, const void *data, size_t bytes)
{
    bool good = file_write(file, data, bytes, 0) && fsync(file) == 0;
    int why = errno;
    if (close(file) != 0 && good) return false;
    errno = why;
    return good;
}

enum status atomic_file_write(const struct directory *in, const char *name, const void *data, size_t bytes)
{
    struct reason reason;
    char *temporary = text_format("%s.tmp", name);
    directory_remove(in, temporary);
    int file = directory_file(in, temporary, O_WRONLY | O_CREAT | O_EXCL, &reason);
    if (file >= 0 && !write_synced(file, data, bytes)) because(&reason, "%s", strerror(errno)), file = -1;
    enum status status = file >= 0 ? atomic_file_rename(in, temporary, name)
                                   : directory_refuse(in, name, reason.text);
    directory_remove(in, temporary);
    free(temporary);
    return status;
}

enum status atomic_file_begin(const struct directory *in, const char *name, FILE **file)
{
    struct reason reason;
    char *temporary = text_format("%s.tmp", name);
    directory_remove(in, temporary);
    *file = directory_stream(in, temporary, "w", &reason);
    if (!*file) directory_remove(in, temporary);
    free(temporary);
    return *file ? OK : directory_refuse(in, name, reason.text);
}

/* False with errno. */
static bool close_synced(FILE *file)
{
    bool good = !ferror(file) && fflush(file) == 0 && fsync(fileno(file)) == 0;
    int why = errno;
    if (fclose(file) != 0 && good) return false;
    errno = why;
    return good;
}

enum status atomic_file_end(const struct directory *in, const char *name, FILE *file, bool keep)
{
    enum status status = OK;
    char *temporary = text_format("%s.tmp", name);
    if (!keep) fclose(file);
    else if (close_synced(file)) status = atomic_file_rename(in, temporary, name);
    else status = directory_refuse(in, name, strerror(errno));
    directory_remove(in, temporary);
    free(temporary);
    return status;
}

static bool copy_bytes(int from, int to)
{
    char buffer[1 << 16];
    ssize_t got;
    for (int64_t at = 0; (got = file_read(from, buffer, sizeof buffer, at)) > 0; at += got)
        if (!file_write(to, buffer, (size_t)got, at)) return false;
    return got == 0 && fsync(to) == 0;
}

static bool copy_file(const struct directory *in, const char *from, const char *to)
{
    int source = openat(in->file, from, O_RDONLY | O_CLOEXEC);
    int target = openat(in->file, to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    bool good = source >= 0 && target >= 0 && copy_bytes(source, target);
    int why = errno;
    if (source >= 0) close(source);
    if (target >= 0 && close(target) != 0 && good) good = false, why = errno;
    errno = why;
    return good;
}

enum status atomic_file_link(const struct directory *in, const char *from, const char *name)
{
    char *temporary = text_format("%s.tmp", name);
    directory_remove(in, temporary);
    enum status status = OK;
    if (linkat(in->file, from, in->file, temporary, 0) != 0 && !copy_file(in, from, temporary))
        status = directory_refuse(in, name, strerror(errno));
    if (status == OK) status = atomic_file_rename(in, temporary, name);
    /* If both names are the same file already, rename does not remove the temporary one. */
    directory_remove(in, temporary);
    free(temporary);
    return status;
}
