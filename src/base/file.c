#include "file.h"

#include <errno.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

ssize_t file_read(int file, void *to, size_t count, int64_t at)
{
    size_t done = 0;
    while (done < count) {
        ssize_t got = pread(file, (char *)to + done, count - done, at + (int64_t)done);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return -1;
        if (got == 0) break;
        done += (size_t)got;
    }
    return (ssize_t)done;
}

bool file_write(int file, const void *from, size_t count, int64_t at)
{
    size_t done = 0;
    while (done < count) {
        ssize_t written = pwrite(file, (const char *)from + done, count - done, at + (int64_t)done);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return false;
        done += (size_t)written;
    }
    return true;
}

bool file_raise_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return false;
    limit.rlim_cur = limit.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

bool file_same(const char *one, const char *other)
{
    struct stat a, b;
    return stat(one, &a) == 0 && stat(other, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}
