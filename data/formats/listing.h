/* listing.h: the image files in a folder of class folders, listed by several threads and cached on disk. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* "CLASS/.../FILE" begins at `name` in the listing's names. */
struct listed {
    uint64_t name : 40, class : 24;
};

/* The state of a listed folder. Its modification time is not enough: tools that copy or unpack folders reset
 * it, but not the change time of the inode. */
struct listed_folder {
    size_t name;               /* "" for the root */
    int64_t modified, changed; /* st_mtim and st_ctim, in nanoseconds; 0: unknown */
    uint64_t inode, size;
};

struct listing {
    int64_t began;             /* when it was made: CLOCK_REALTIME in nanoseconds */
    char **classes;            /* the folders in the root, sorted bytewise */
    int class_count;
    char *names;               /* each ended by '\0' */
    size_t bytes, room;
    struct listed *files;      /* by class, and sorted in every folder */
    size_t count;
    struct listed_folder *folders;
    size_t folder_count;
    int64_t ignored;           /* files that are neither PNG, JPEG, WebP nor TIFF, ... */
    int64_t foreign;           /* ... those of them that are images of other formats, ... */
    int64_t stray;             /* images in the root, by content or extension, which are in no class */
    char *example;             /* ... and one of them in words: "CLASS/FILE (FORMAT)"; NULL: none */
};

/* Lists `root`; files are images if their first bytes say so, or if they cannot be read, which is reported
 * when they are used. A listing in the folder `cache` (NULL: none) is used instead if no folder has changed
 * since; a long listing is stored there. */
bool listing_make(const char *root, const char *cache, struct listing *listing, struct reason *reason);
/* Lists the images of a folder and of the folders in it, without classes; names begin with "./". Files with
 * an image's extension are among them, whatever is in them. */
bool listing_images(const char *folder, struct listing *listing, struct reason *reason);
/* Warns of the files that were ignored. */
void listing_warn(const char *root, const struct listing *listing);
void listing_free(struct listing *listing);            /* accepts a zeroed struct */

/* Reads the listing stored in the folder `cache`. True: it exists, and no folder has changed. */
bool listing_recall(const char *root, const char *cache, struct listing *listing);
void listing_remember(const char *root, const char *cache, const struct listing *listing);

/* The identity of the state of the folder `path`; all is 0 if it cannot be read. */
struct listed_folder listing_state(const char *path);
/* Adds a name. */
size_t listing_name(struct listing *listing, const char *name);
