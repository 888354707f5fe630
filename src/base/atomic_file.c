#include "base/atomic_file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"

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
    TRY(directory_check(in, name));
    if (renameat(in->file, from, in->file, name) == 0) return sync_folder(in, name);
    char *shown = directory_show(in, from);
    enum status status = fail(FAILED, "%s: cannot rename it to %s: %s", shown, name, strerror(errno));
    free(shown);
    return status;
}

/* The temporary name of a file ends in six hexadecimal digits and this. */
#define SUFFIX ".tmp"
#define DIGITS 6

static bool is_temporary_of(const char *entry, const char *name)
{
    size_t length = strlen(name);
    if (strncmp(entry, name, length) != 0 || entry[length] != '.') return false;
    const char *digits = entry + length + 1;
    return strspn(digits, "0123456789abcdef") == DIGITS && strcmp(digits + DIGITS, SUFFIX) == 0;
}

/* Removes a temporary file unless a process is writing it, which then holds its lock. */
static void remove_stale(const struct directory *folder, const char *entry)
{
    struct reason unsaid;
    int file = directory_file(folder, entry, O_RDWR, &unsaid);
    if (file < 0) return;
    if (flock(file, LOCK_EX | LOCK_NB) == 0) directory_remove(folder, entry);
    close(file);
}

static void remove_all_stale(const struct directory *in, const char *name)
{
    char *copy = text_copy(name), *other = text_copy(name);
    int file = openat(in->file, dirname(copy), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = file >= 0 ? fdopendir(file) : NULL;
    const struct directory folder = {.file = file};
    const char *last = basename(other);
    for (struct dirent *entry; list && (entry = readdir(list));)
        if (is_temporary_of(entry->d_name, last)) remove_stale(&folder, entry->d_name);
    if (list) closedir(list);
    else if (file >= 0) close(file);
    free(other);
    free(copy);
}

/* Locks a new file. False: a process took it for a stale one. Where the file system has no locks, nothing is
 * taken for stale. */
static bool lock(int file)
{
    struct stat status;
    if (flock(file, LOCK_EX | LOCK_NB) != 0) return errno != EWOULDBLOCK;
    return fstat(file, &status) != 0 || status.st_nlink > 0;
}

/* Creates a file of a name that no other has. -1, with the reason. */
static int create(const struct directory *in, const char *name, char **temporary, struct reason *reason)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    unsigned number = (unsigned)now.tv_nsec * 31u + (unsigned)getpid();
    for (int tries = 100; tries > 0; tries--) {
        *temporary = text_format("%s.%0*x" SUFFIX, name, DIGITS, number++ & 0xffffffu);
        int file = directory_file(in, *temporary, O_RDWR | O_CREAT | O_EXCL, reason);
        if (file >= 0 && lock(file)) return file;
        free(*temporary);
        if (file >= 0) close(file);
        else if (reason->error != EEXIST) break;
    }
    return -1;
}

enum status atomic_file_begin(const struct directory *in, const char *name, struct atomic_file *file)
{
    struct reason reason = {.text = "its temporary file is removed again and again"};
    char *temporary;
    remove_all_stale(in, name);
    int descriptor = create(in, name, &temporary, &reason);
    FILE *stream = descriptor >= 0 ? fdopen(descriptor, "w") : NULL;
    if (stream) {
        *file = (struct atomic_file){in, text_copy(name), temporary, stream};
        return OK;
    }
    if (descriptor < 0) return directory_refuse(in, name, reason.text);
    enum status status = directory_refuse(in, name, strerror(errno));
    directory_remove(in, temporary);
    free(temporary);
    close(descriptor);
    return status;
}

static bool sync_stream(FILE *stream)
{
    return !ferror(stream) && fflush(stream) == 0 && fsync(fileno(stream)) == 0;
}

/* The lock is held until the file has its name, or is removed. */
enum status atomic_file_end(struct atomic_file *file, bool keep)
{
    enum status status = OK;
    if (keep && !sync_stream(file->stream)) status = directory_refuse(file->in, file->name, strerror(errno));
    else if (keep) status = atomic_file_rename(file->in, file->temporary, file->name);
    directory_remove(file->in, file->temporary);
    fclose(file->stream);
    free(file->temporary);
    free(file->name);
    *file = (struct atomic_file){.in = NULL};
    return status;
}

enum status atomic_file_write(const struct directory *in, const char *name, const void *data, size_t bytes)
{
    struct atomic_file file;
    TRY(atomic_file_begin(in, name, &file));
    bool good = fwrite(data, 1, bytes, file.stream) == bytes;
    enum status status = good ? OK : directory_refuse(in, name, strerror(errno));
    enum status ended = atomic_file_end(&file, good);
    return good ? ended : status;
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
