#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/durable.h"

enum status folder_make(const char *path)
{
    char *copy = text_copy(path);
    for (char *slash = strchr(copy, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0777);             /* of a path from the root on, first of all "", which is no harm */
        *slash = '/';
    }
    bool good = mkdir(copy, 0777) == 0 || errno == EEXIST;
    int why = errno;
    struct stat status;
    if (good && stat(copy, &status) != 0) good = false, why = errno;
    if (good && !S_ISDIR(status.st_mode)) good = false, why = ENOTDIR;
    free(copy);
    return good ? OK : fail(FAILED, "%s: the folder cannot be made: %s", path, strerror(why));
}

char *folder_file(const struct folder *folder, const char *name)
{
    return durable_path(folder->path, name);
}

/* Whoever has the lock has written down who it is. */
static enum status taken(const struct folder *folder)
{
    char who[128] = "";
    ssize_t length = file_read(folder->lock, who, sizeof who - 1, 0);
    who[length > 0 ? strcspn(who, "\n") : 0] = '\0';
    return fail(FAILED, "%s: another process (%s) is training in this folder", folder->path,
                who[0] ? who : "which has not said who it is");
}

static void sign(const struct folder *folder)
{
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    char *who = text_format("%ld on %s\n", (long)getpid(), host);
    /* It only makes a message clearer: a full disk is no reason not to go on. */
    if (ftruncate(folder->lock, 0) == 0) (void)file_write(folder->lock, who, strlen(who), 0);
    free(who);
}

/* The lock goes with the process, however that ends. */
static enum status take(struct folder *folder)
{
    char *path = folder_file(folder, ".lock");
    folder->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    enum status status = OK;
    if (folder->lock < 0)
        status = fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    else if (flock(folder->lock, LOCK_EX | LOCK_NB) == 0)
        sign(folder);
    else if (errno == EWOULDBLOCK)
        status = taken(folder);
    else
        log_warning("%s: cannot be locked: %s; see to it that no other process trains in this folder", path,
                    strerror(errno));
    free(path);
    return status;
}

static const char *const level_name[] = {
    [LOG_ERROR] = "error", [LOG_WARNING] = "warning", [LOG_INFO] = "info", [LOG_DETAIL] = "detail",
};

static void write_log(void *context, enum log_level level, const char *line)
{
    char stamp[32];
    time_t now = time(NULL);
    struct tm local;
    strftime(stamp, sizeof stamp, "%Y-%m-%dT%H:%M:%S%z", localtime_r(&now, &local));
    fprintf(context, "%s %s: %s\n", stamp, level_name[level], line);
    fflush(context);
}

static enum status open_log(struct folder *folder)
{
    char *path = folder_file(folder, "log.txt");
    folder->log = fopen(path, "ae");
    enum status status = folder->log ? OK : fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    free(path);
    if (status == OK) log_set_sink((struct log_sink){write_log, folder->log});
    return status;
}

static enum status open_in(struct folder *folder, bool resume)
{
    TRY(folder_make(folder->path));
    TRY(take(folder));
    if (!resume && checkpoint_exists(folder->path))
        return fail(USAGE, "%s: holds a run already: -r goes on with it, another -o begins a new one",
                    folder->path);
    return open_log(folder);
}

enum status folder_open(const char *path, bool resume, struct folder *folder)
{
    struct folder opened = {.lock = -1};
    if (path) {
        opened.path = text_copy(path);
        enum status status = open_in(&opened, resume);
        if (status != OK) {
            folder_close(&opened);
            return status;
        }
    }
    *folder = opened;
    return OK;
}

void folder_close(struct folder *folder)
{
    if (!folder->path) return;
    log_set_sink((struct log_sink){0});
    if (folder->log) fclose(folder->log);
    if (folder->lock >= 0) close(folder->lock);
    free(folder->path);
    *folder = (struct folder){.lock = -1};
}

static enum status write_whole(const char *path, const struct text *text)
{
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool good = file >= 0 && file_write(file, text->data, text->length, 0) && fsync(file) == 0;
    int why = errno;
    if (file >= 0 && close(file) != 0 && good) good = false, why = errno;
    return good ? OK : fail(FAILED, "%s: cannot be written: %s", path, strerror(why));
}

enum status folder_write_settings(const struct folder *folder, const struct settings *settings,
                                  const char *file)
{
    char *path = folder_file(folder, "config.ini"), *temporary = text_format("%s.tmp", path);
    struct text text = {0};
    settings_print_movable(settings, file, &text);
    enum status status = write_whole(temporary, &text);
    if (status == OK) status = durable_rename(temporary, path);
    unlink(temporary);
    text_free(&text);
    free(temporary);
    free(path);
    return status;
}
