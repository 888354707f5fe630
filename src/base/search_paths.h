/* search_paths.h: the directories of installed models and data, and of the cache. */
#pragma once

#define SEARCH_PATHS_MAX 4

/* Folders in the order in which they are searched: $AMPTRAIN_DATADIR/models, then the source tree
 * for a program that runs from its build folder, then where `make install` put them. */
struct search_paths {
    char *models[SEARCH_PATHS_MAX + 1]; /* ended by NULL */
    char *data;                        /* the first that exists; never NULL */
};

/* From the environment and the program's own place. */
struct search_paths search_paths_find(void);
void search_paths_free(struct search_paths *paths);

/* The path with the user's home folder in place of a first "~" that stands alone or before "/"; or a copy.
 * The caller frees it. */
char *search_paths_expand(const char *path);

/* The user's cache folder, which is created by the first writer. NULL: there is none. The caller frees it. */
char *search_paths_cache(void);
