#include "train/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/memory.h"
#include "train/checkpoint.h"
#include "train/durable.h"

enum status folder_make(const char *path)
{
    char *copy = text_copy(path);
    for (char *slash = strchr(copy + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        mkdir(copy, 0777);
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

static enum status take(struct folder *folder)
{
    char *path = folder_file(folder, ".lock");
    folder->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    enum status status = OK;
    if (folder->lock < 0)
        status = fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    else if (flock(folder->lock, LOCK_EX | LOCK_NB) != 0)
        status = errno == EWOULDBLOCK
                     ? fail(FAILED, "%s: another process is training in this folder", folder->path)
                     : fail(FAILED, "%s: cannot be locked: %s", path, strerror(errno));
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

enum status folder_write_settings(const struct folder *folder, const struct settings *settings)
{
    char *path = folder_file(folder, "config.ini");
    struct text text = {0};
    settings_print(settings, false, &text);
    FILE *file = fopen(path, "we");
    bool good = file && fwrite(text.data, 1, text.length, file) == text.length;
    if (file && fclose(file) != 0) good = false;
    enum status status = good ? OK : fail(FAILED, "%s: cannot be written: %s", path, strerror(errno));
    text_free(&text);
    free(path);
    return status;
}
