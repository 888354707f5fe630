#include "data/formats/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/align.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/signals.h"
#include "data/image/image.h"

/* Limit of folders in folders. */
#define DEPTH_MAX 16
/* Most of the time is spent waiting for files to be opened. */
#define THREADS_MAX 16
/* Shorter listings are created as quickly as they are read. */
#define REMEMBERED_MIN 20000

/* Hidden files, and folders that macOS's archives and Synology's servers add. */
static bool is_left_out(const char *name)
{
    return name[0] == '.' || strcmp(name, "__MACOSX") == 0 || strcmp(name, "@eaDir") == 0;
}

/* The entries of a directory, sorted bytewise, some left out. False: it cannot be read. The first
 * character of each name is its type: 'f' a file, 'd' a directory, '?' unknown. */
static bool list_directory(const char *path, char ***names, size_t *count)
{
    DIR *directory = opendir(path);
    if (!directory) return false;
    struct dirent *entry;
    *names = NULL;
    *count = 0;
    while (errno = 0, (entry = readdir(directory))) {
        if (is_left_out(entry->d_name)) continue;
        char *name = text_format("?%s", entry->d_name);
        if (entry->d_type == DT_REG) name[0] = 'f';
        if (entry->d_type == DT_DIR) name[0] = 'd';
        *array_push(*names, *count) = name;
    }
    int why = errno;
    closedir(directory);
    if (why == 0) return true;
    text_list_free(*names, *count);
    errno = why;
    return false;
}

static int compare_listed(const void *a, const void *b)
{
    return strcmp(*(char *const *)a + 1, *(char *const *)b + 1);
}

enum look { LOOK_IMAGE, LOOK_OTHER, LOOK_UNREADABLE };

/* Reads a file's first bytes; empty files are unreadable. `other`: the format, if it is an image of one that
 * is not read. */
static enum look look_at(const char *path, const char **other)
{
    uint8_t bytes[IMAGE_SNIFF_BYTES];
    int file = open(path, O_RDONLY | O_CLOEXEC);
    *other = NULL;
    if (file < 0) return LOOK_UNREADABLE;
    ssize_t count = file_read(file, bytes, sizeof bytes, 0);
    close(file);
    if (count <= 0) return LOOK_UNREADABLE;
    if (image_sniff(bytes, (size_t)count) != IMAGE_UNKNOWN) return LOOK_IMAGE;
    *other = image_foreign(bytes, (size_t)count);
    return LOOK_OTHER;
}

/* The first image of another format, or else the first file, is the example. */
static void ignore(struct listing *listing, const char *name, const char *other)
{
    if (!listing->example || (other && listing->foreign == 0)) {
        free(listing->example);
        listing->example = other ? text_format("%s (%s)", name, other) : text_copy(name);
    }
    listing->ignored++;
    listing->foreign += other != NULL;
}

size_t listing_name(struct listing *listing, const char *name)
{
    size_t count = strlen(name) + 1, at = listing->bytes;
    if (at + count > listing->room) {
        listing->room = listing->room + listing->room / 2 + count + 4096;
        listing->names = memory_resize(listing->names, listing->room, 1);
    }
    memcpy(listing->names + at, name, count);
    listing->bytes += count;
    return at;
}

static int64_t nanoseconds(struct timespec time)
{
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

struct listed_folder listing_state(const char *path)
{
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) return (struct listed_folder){0};
    return (struct listed_folder){
        .modified = nanoseconds(stat_of.st_mtim),
        .changed = nanoseconds(stat_of.st_ctim),
        .inode = (uint64_t)stat_of.st_ino,
        .size = (uint64_t)stat_of.st_size,
    };
}

static void add_folder(struct listing *listing, const char *path, const char *name)
{
    struct listed_folder folder = listing_state(path);
    folder.name = listing_name(listing, name);
    *array_push(listing->folders, listing->folder_count) = folder;
}

static char kind_of(const char *path)
{
    struct stat stat_of;
    if (stat(path, &stat_of) != 0) return 'f';         /* a bad image */
    return S_ISDIR(stat_of.st_mode) ? 'd' : S_ISREG(stat_of.st_mode) ? 'f' : 'o';
}

/* A search for images: the class, and the root. */
struct search {
    const char *root;
    struct listing *listing;
    int class;
    struct reason *reason;
    bool by_name;              /* files with an image's extension are listed, too, whatever is in them */
};

/* A folder that is being listed, and the one that it is in. */
struct level {
    dev_t device;
    ino_t inode;
    const struct level *above;
};

static struct level level_of(const char *path, const struct level *above)
{
    struct stat stat_of = {0};
    bool known = stat(path, &stat_of) == 0;
    return (struct level){stat_of.st_dev, known ? stat_of.st_ino : 0, above};
}

/* True if a folder is one of those that it is in: a link made a loop. */
static bool is_loop(const struct level *level)
{
    for (const struct level *above = level->above; above && level->inode; above = above->above)
        if (above->inode == level->inode && above->device == level->device) return true;
    return false;
}

static bool listing_walk(const struct search *search, const char *name, const struct level *above,
                         int depth);

static bool listing_visit(const struct search *search, const char *name, char kind,
                          const struct level *level, int depth)
{
    struct listing *listing = search->listing;
    char *path = text_format("%s/%s", search->root, name);
    bool good = true;
    const char *other = NULL;
    if (kind == '?') kind = kind_of(path);
    if (kind == 'd') {
        good = listing_walk(search, name, level, depth + 1);
    } else if (kind == 'f' &&
               (look_at(path, &other) != LOOK_OTHER || (search->by_name && image_is_named(name)))) {
        /* Unreadable files count as bad images when they are used. */
        struct listed file = {.name = listing_name(listing, name), .class = (unsigned)search->class};
        *array_push(listing->files, listing->count) = file;
    } else {
        ignore(listing, name, other);
    }
    free(path);
    return good;
}

/* Adds the images of the folder `name`, a path below the root, and of the folders in it. */
static bool listing_walk(const struct search *search, const char *name, const struct level *above, int depth)
{
    char **names;
    size_t count = 0;
    char *path = text_format("%s/%s", search->root, name);
    const struct level level = level_of(path, above);
    if (is_loop(&level)) {
        const char *below = name + (strncmp(name, "./", 2) == 0 ? 2 : 0);
        log_warning("%s/%s: links to a folder that it is in, and is skipped", search->root, below);
        free(path);
        return true;
    }
    add_folder(search->listing, path, name);
    bool good = depth <= DEPTH_MAX ? list_directory(path, &names, &count) ||
                                         because(search->reason, "%s: %s", path, strerror(errno))
                                   : because(search->reason, "%s: folders are nested too deeply", path);
    free(path);
    if (!good) return false;
    if (count) qsort(names, count, sizeof *names, compare_listed);
    for (size_t i = 0; i < count && good; i++) {
        char *child = text_format("%s/%s", name, names[i] + 1);
        good = listing_visit(search, child, names[i][0], &level, depth);
        free(child);
    }
    text_list_free(names, count);
    return good;
}

static void count_stray(const char *root, char *const *names, size_t count, struct listing *listing)
{
    for (size_t i = 0; i < count; i++) {
        const char *other = NULL;
        char *path = text_format("%s/%s", root, names[i] + 1);
        bool stray = names[i][0] == 'f' && look_at(path, &other) == LOOK_IMAGE;
        listing->stray += stray || (names[i][0] == 'f' && (other || image_is_named(path)));
        free(path);
    }
}

/* The folders in the root, sorted: the classes found. */
static bool find_classes(const char *root, struct listing *listing, struct reason *reason)
{
    char **names;
    size_t count;
    if (!list_directory(root, &names, &count)) return because_of(reason, root, strerror(errno));
    add_folder(listing, root, "");
    const struct level level = level_of(root, NULL);
    for (size_t i = 0; i < count; i++) {
        char *path = text_format("%s/%s", root, names[i] + 1);
        const struct level inner = level_of(path, &level);
        if (names[i][0] == '?') names[i][0] = kind_of(path);
        if (names[i][0] == 'd' && is_loop(&inner))
            log_warning("%s: links to a folder that it is in, and is no class", path);
        else if (names[i][0] == 'd')
            *array_push(listing->classes, listing->class_count) = text_copy(names[i] + 1);
        free(path);
    }
    if (listing->class_count > 0) count_stray(root, names, count, listing);
    text_list_free(names, count);
    if (listing->class_count == 0)
        return because(reason, "%s: contains no class folders (images belong in %s/CLASS/)", root, root);
    text_list_sort(listing->classes, (size_t)listing->class_count);
    return true;
}

/* Threads take one class after the other, each a listing of its own. */
struct crew {
    const char *root;
    const struct listing *whole;
    struct listing *parts;     /* by class */
    struct reason *reasons;
    bool *good;
    atomic_int next;
};

/* There may be more than a thousand, so no memory is reserved in advance. */
static void listing_trim(struct listing *part)
{
    part->names = memory_resize(part->names, part->bytes, 1);
    part->room = part->bytes;
    if (part->count) part->files = memory_resize(part->files, part->count, sizeof *part->files);
}

static void *listing_thread(void *context)
{
    struct crew *crew = context;
    for (int i; (i = atomic_fetch_add(&crew->next, 1)) < crew->whole->class_count;) {
        struct search search = {crew->root, &crew->parts[i], i, &crew->reasons[i], false};
        const struct level root = level_of(crew->root, NULL);
        crew->good[i] = listing_walk(&search, crew->whole->classes[i], &root, 0);
        listing_trim(&crew->parts[i]);
    }
    return NULL;
}

/* The calling thread takes part, and suffices if no other can be created. */
static void run_crew(struct crew *crew)
{
    pthread_t threads[THREADS_MAX];
    int count = 0;
    while (count < THREADS_MAX - 1 && count < crew->whole->class_count - 1 &&
           signals_start_thread(&threads[count], listing_thread, crew) == 0)
        count++;
    listing_thread(crew);
    for (int i = 0; i < count; i++) pthread_join(threads[i], NULL);
}

/* Appends a class's listing. */
static void listing_append(struct listing *listing, struct listing *part)
{
    size_t at = listing->bytes;
    memcpy(listing->names + at, part->names, part->bytes);
    listing->bytes += part->bytes;
    for (size_t i = 0; i < part->count; i++) {
        part->files[i].name += at;
        listing->files[listing->count++] = part->files[i];
    }
    for (size_t i = 0; i < part->folder_count; i++) {
        part->folders[i].name += at;
        *array_push(listing->folders, listing->folder_count) = part->folders[i];
    }
    if (part->example && (!listing->example || (part->foreign > 0 && listing->foreign == 0))) {
        free(listing->example);
        listing->example = text_copy(part->example);
    }
    listing->ignored += part->ignored;
    listing->foreign += part->foreign;
}

/* Allocators keep freed memory for a while. Pages are returned to the system at once, so that joining the
 * parts takes no additional memory. */
static void forget_pages(void *memory, size_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)memory, to = from + bytes;
    from = align_up(from, page);
    to = to / page * page;
    if (memory && from < to) madvise((void *)from, to - from, MADV_DONTNEED);
}

static bool join_parts(struct crew *crew, struct listing *listing, struct reason *reason)
{
    size_t bytes = listing->bytes, files = 0;
    for (int i = 0; i < listing->class_count; i++) {
        if (!crew->good[i]) return because(reason, "%s", crew->reasons[i].text);
        bytes += crew->parts[i].bytes;
        files += crew->parts[i].count;
    }
    listing->names = memory_resize(listing->names, bytes, 1);
    listing->room = bytes;
    listing->files = memory_new(files ? files : 1, sizeof *listing->files);
    for (int i = 0; i < listing->class_count; i++) {
        struct listing *part = &crew->parts[i];
        listing_append(listing, part);
        forget_pages(part->names, part->bytes);
        forget_pages(part->files, part->count * sizeof *part->files);
        listing_free(part);
    }
    return true;
}

static bool find_images(const char *root, struct listing *listing, struct reason *reason)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    listing->began = nanoseconds(now);
    if (!find_classes(root, listing, reason)) return false;
    size_t count = (size_t)listing->class_count;
    struct crew crew = {
        .root = root,
        .whole = listing,
        .parts = memory_new(count, sizeof *crew.parts),
        .reasons = memory_new(count, sizeof *crew.reasons),
        .good = memory_new(count, sizeof *crew.good),
    };
    atomic_init(&crew.next, 0);
    run_crew(&crew);
    bool good = join_parts(&crew, listing, reason);
    for (size_t i = 0; i < count; i++) listing_free(&crew.parts[i]);
    free(crew.parts);
    free(crew.reasons);
    free(crew.good);
    return good;
}

bool listing_make(const char *root, const char *cache, struct listing *listing, struct reason *reason)
{
    struct listing made = {0};
    if (cache && listing_recall(root, cache, listing)) return true;
    if (!find_images(root, &made, reason)) {
        listing_free(&made);
        return false;
    }
    if (cache && made.count >= REMEMBERED_MIN) listing_remember(root, cache, &made);
    *listing = made;
    return true;
}

bool listing_images(const char *folder, struct listing *listing, struct reason *reason)
{
    struct listing made = {0};
    const struct search search = {folder, &made, 0, reason, true};
    bool good = listing_walk(&search, ".", NULL, 0);
    if (good) *listing = made;
    else listing_free(&made);
    return good;
}

void listing_warn(const char *root, const struct listing *listing)
{
    const char *example = listing->example;
    char others[64] = "";
    if (listing->stray > 0)
        log_warning("%s: images outside of class folders are skipped: %lld", root, (long long)listing->stray);
    if (listing->ignored == 0) return;
    if (strncmp(example, "./", 2) == 0) example += 2;
    if (listing->ignored > listing->foreign)
        snprintf(others, sizeof others, ", and other files: %lld",
                 (long long)(listing->ignored - listing->foreign));
    if (listing->foreign > 0)
        log_warning("%s: images that are neither PNG, JPEG, WebP nor TIFF are skipped: %lld, such as %s; "
                    "`mogrify -format png FILE...` converts them%s", root, (long long)listing->foreign,
                    example, others);
    else
        log_warning("%s: files that are neither PNG, JPEG, WebP nor TIFF are skipped: %lld, such as %s", root,
                    (long long)listing->ignored, example);
}

void listing_free(struct listing *listing)
{
    text_list_free(listing->classes, (size_t)listing->class_count);
    free(listing->names);
    free(listing->files);
    free(listing->folders);
    free(listing->example);
    *listing = (struct listing){0};
}
