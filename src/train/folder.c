#include "train/folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signature.h"
#include "format/html_page.h"
#include "format/svg.h"
#include "checkpoint/checkpoint.h"
#include "base/atomic_file.h"

enum status folder_make(const char *path)
{
    struct reason reason;
    return directory_make(path, 0777, &reason)
               ? OK : fail(FAILED, "%s: cannot create the folder: %s", path, reason.text);
}

#define LOCK ".lock"
#define CONFIG "config.ini"
#define LOG "log.txt"
#define CONFIG_HEAD "# amptrain: the configuration of this run, which it replaces when it is resumed.\n"

/* Every file that is written into a folder, and how it is recognised. Names of events are always new. */
static const struct written {
    const char *name, *signature;      /* patterns, as of fnmatch */
    unsigned writers;
} written_table[] = {
    {LOCK, "[0-9]* on *\n", FOLDER_RUN | FOLDER_EVAL},
    {CONFIG, "# amptrain: the configuration of this run*", FOLDER_RUN},
    {LOG, "[0-9]*-[0-9]*-[0-9]*T[0-9]*:[0-9]*:[0-9]*[+-][0-9]* [a-z]*: *", FOLDER_RUN},
    {"metrics.jsonl", "{\"event\":\"[a-z]*\"*", FOLDER_RUN | FOLDER_EVAL},
    {"bad-images.txt", "@(train|val)\t[0-9]*\t*", FOLDER_RUN},
    {"confusion.csv", "true\\predicted,*", FOLDER_RUN | FOLDER_EVAL},
    {"scores.json", "{\"scores\":*", FOLDER_RUN | FOLDER_EVAL},
    {"mistakes.json", "[[]@(]|{\"@(image|index)\":)*", FOLDER_RUN | FOLDER_EVAL},
    {"memory.json", "{\"plan\":{*", FOLDER_RUN},
    {"memory.svg", SVG_SIGNATURE, FOLDER_RUN | FOLDER_PLAN},
    {"memory-stage*.svg", SVG_SIGNATURE, FOLDER_PLAN},
    {"report.html", HTML_HEAD "amptrain: *", FOLDER_RUN | FOLDER_REPORT},
    {"profile.json", "{\"step_ms\":*", FOLDER_PROFILE},
    {"profile.trace.json", "{\"traceEvents\":[[]\n*", FOLDER_PROFILE},
    {"checkpoint-[0-9]*.safetensors", CHECKPOINT_SIGNATURE, FOLDER_RUN},
};

static enum status check_file(const struct directory *folder, const char *name, enum folder_writer writer)
{
    struct stat status;
    for (size_t i = 0; i < sizeof written_table / sizeof *written_table; i++) {
        const struct written *row = &written_table[i];
        if (!(row->writers & writer) || fnmatch(row->name, name, 0) != 0) continue;
        bool found = fstatat(folder->file, name, &status, AT_SYMLINK_NOFOLLOW) == 0;
        if (found && S_ISLNK(status.st_mode))
            return fail(USAGE, "%s/%s: is a symbolic link; it is not written over", folder->path, name);
        if (found && !signature_matches(folder, name, row->signature))
            return fail(USAGE, "%s/%s: was not written by amptrain and would be overwritten; name another "
                        "folder", folder->path, name);
    }
    return OK;
}

enum status folder_check_files(const struct directory *folder, enum folder_writer writer)
{
    int file = openat(folder->file, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = file >= 0 ? fdopendir(file) : NULL;
    enum status status = OK;
    if (!list) {
        status = fail(FAILED, "%s: cannot be read: %s", folder->path, strerror(errno));
        if (file >= 0) close(file);
        return status;
    }
    for (struct dirent *entry; status == OK && (entry = readdir(list));)
        status = check_file(folder, entry->d_name, writer);
    closedir(list);
    return status;
}

enum status folder_prepare(const char *path, enum folder_writer writer)
{
    struct directory folder;
    TRY(folder_make(path));
    TRY(directory_open(path, &folder));
    enum status status = folder_check_files(&folder, writer);
    directory_close(&folder);
    return status;
}

/* The owner of the lock has written its process id to the file. */
static enum status taken(const struct folder *folder)
{
    char who[128] = "";
    ssize_t length = file_read(folder->lock, who, sizeof who - 1, 0);
    who[length > 0 ? strcspn(who, "\n") : 0] = '\0';
    return fail(FAILED, "%s: another process (%s) is training in this folder", folder->at.path,
                who[0] ? who : "unknown");
}

static void sign(const struct folder *folder)
{
    char host[65] = "";
    gethostname(host, sizeof host - 1);
    char *who = text_format("%ld on %s\n", (long)getpid(), host);
    /* It only serves a clearer message, so a full disk is no reason to stop. */
    if (ftruncate(folder->lock, 0) == 0) (void)file_write(folder->lock, who, strlen(who), 0);
    free(who);
}

/* True if the name still refers to the locked file; also true if that is unknown. */
static bool is_locked_one(const struct folder *folder)
{
    struct stat locked, there;
    if (fstat(folder->lock, &locked) != 0) return true;
    if (fstatat(folder->at.file, LOCK, &there, 0) != 0) return errno != ENOENT;
    return locked.st_dev == there.st_dev && locked.st_ino == there.st_ino;
}

/* Where the lock alone was removed, the folder is still this process's. */
static bool is_lost(const void *owner)
{
    const struct folder *folder = owner;
    return !is_locked_one(folder) && directory_has(&folder->at, LOCK);
}

static void release(struct folder *folder)
{
    if (folder->lock >= 0) close(folder->lock);
    folder->lock = -1;
}

/* The lock ends with the process. `flags`: of open, besides O_RDWR. */
static enum status folder_take(struct folder *folder, int flags)
{
    struct reason reason;
    folder->lock = directory_file(&folder->at, LOCK, O_RDWR | flags, &reason);
    if (folder->lock < 0 && reason.error == ENOENT && !(flags & O_CREAT)) return OK;
    if (folder->lock < 0) return directory_refuse(&folder->at, LOCK, reason.text);
    bool locked = flock(folder->lock, LOCK_EX | LOCK_NB) == 0;
    if (!locked && errno == EWOULDBLOCK) return taken(folder);
    if (!locked)
        log_warning("%s/%s: cannot be locked: %s; make sure that no other process trains in this folder",
                    folder->at.path, LOCK, strerror(errno));
    if (!is_locked_one(folder))
        return fail(FAILED, "%s/%s: was removed while it was being locked", folder->at.path, LOCK);
    if (locked) sign(folder);
    folder->at.is_lost = is_lost;
    folder->at.owner = folder;
    return OK;
}

/* The log may belong to another process by now. */
static enum status lost(const char *path, const char *what)
{
    log_set_sink((struct log_sink){0});
    return fail(FAILED, "%s: %s; the run ends and leaves it unchanged", path, what);
}

enum status folder_check(struct folder *folder)
{
    if (!folder->at.path || is_locked_one(folder)) return OK;
    struct stat status;
    if (fstat(folder->at.file, &status) == 0 && status.st_nlink == 0)
        return lost(folder->at.path, "the run folder was removed");
    if (directory_has(&folder->at, LOCK))
        return lost(folder->at.path, "another process has taken the run folder, since its lock was removed");
    release(folder);
    return folder_take(folder, O_CREAT | O_EXCL);
}

static void write_log(void *context, enum log_level level, const char *line)
{
    struct folder *folder = context;
    char stamp[LOG_STAMP];
    log_stamp(level, stamp);
    if (folder->log) {
        fprintf(folder->log, "%s%s\n", stamp, line);
        fflush(folder->log);
    } else {
        text_add(&folder->early, "%s%s\n", stamp, line);
    }
}

enum status folder_log(struct folder *folder)
{
    struct reason reason;
    if (!folder->at.path || folder->log) return OK;
    FILE *log = directory_stream(&folder->at, LOG, "a", &reason);
    if (!log) return directory_refuse(&folder->at, LOG, reason.text);
    log_set_sink((struct log_sink){0});
    if (folder->early.data) fputs(folder->early.data, log);
    fflush(log);
    text_free(&folder->early);
    folder->log = log;
    log_set_sink((struct log_sink){write_log, folder});
    return OK;
}

static enum status open_in(const char *path, bool resume, struct folder *folder)
{
    TRY(folder_make(path));
    TRY(directory_open(path, &folder->at));
    if (!checkpoint_exists(&folder->at)) TRY(folder_check_files(&folder->at, FOLDER_RUN));
    TRY(folder_take(folder, O_CREAT));
    if (!resume && checkpoint_exists(&folder->at))
        return fail(USAGE, "%s: already contains a run; use -r to resume it or another -o to start a new one",
                    path);
    log_set_sink((struct log_sink){write_log, folder});
    return OK;
}

enum status folder_open(const char *path, bool resume, struct folder *folder)
{
    *folder = (struct folder){.lock = -1};
    enum status status = path ? open_in(path, resume, folder) : OK;
    if (status != OK) folder_close(folder);
    return status;
}

bool folder_is_taken(const char *path)
{
    char *name = text_format("%s/" LOCK, path);
    int file = open(name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    bool taken = file >= 0 && flock(file, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    if (file >= 0) close(file);
    free(name);
    return taken;
}

enum status folder_visit(const char *path, struct folder *folder)
{
    *folder = (struct folder){.lock = -1};
    TRY(folder_make(path));
    TRY(directory_open(path, &folder->at));
    enum status status = folder_check_files(&folder->at, FOLDER_EVAL);
    if (status == OK) status = folder_take(folder, 0);
    if (status != OK) folder_close(folder);
    return status;
}

void folder_close(struct folder *folder)
{
    if (!folder->at.path) return;
    log_set_sink((struct log_sink){0});
    if (folder->log) fclose(folder->log);
    release(folder);
    text_free(&folder->early);
    directory_close(&folder->at);
    *folder = (struct folder){.lock = -1};
}

enum status folder_write_settings(const struct folder *folder, const struct settings *settings,
                                  const char *file)
{
    struct text text = {0};
    text_add(&text, CONFIG_HEAD);
    settings_print_movable(settings, file, &text);
    enum status status = atomic_file_write(&folder->at, CONFIG, text.data, text.length);
    text_free(&text);
    return status;
}
