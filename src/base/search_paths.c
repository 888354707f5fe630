#include "base/search_paths.h"

#include <libgen.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/guest.h"
#include "base/memory.h"
#include "base/program_file.h"

/* Installed, both lie below the package's data folder; in the source tree they keep their paths. */
struct data_folders {
    char *models, *data;
};

/* The folder of the program, or of the shared library that this code is in; the caller frees it. */
static char *own_folder(void)
{
    char *path = program_file_library(), *folder = text_copy(path ? dirname(path) : ".");
    free(path);
    return folder;
}

/* The source tree of a program that lies in the build folder, or of a test two below it, where configure has
 * noted it; NULL: it is installed. The caller frees it. */
static char *source_folder(const char *folder)
{
    static const char *const above[] = {"", "../", "../../"};
    char *found = NULL;
    for (size_t i = 0; i < sizeof above / sizeof *above && !found; i++) {
        char line[PATH_MAX], *note = text_format("%s/%ssource-folder", folder, above[i]);
        FILE *file = fopen(note, "re");
        if (file && fgets(line, sizeof line, file)) {
            line[strcspn(line, "\n")] = '\0';
            found = text_copy(line);
        }
        if (file) fclose(file);
        free(note);
    }
    return found;
}

static struct data_folders folders_installed(const char *folder)
{
    return (struct data_folders){text_format("%s/models", folder), text_format("%s/data", folder)};
}

static struct data_folders folders_in_source(const char *source)
{
    return (struct data_folders){text_format("%s/conf/models", source), text_format("%s/data", source)};
}

static void search_paths_add(struct search_paths *paths, int *count, struct data_folders folders)
{
    paths->models[(*count)++] = folders.models;
    bool better = !paths->data || (access(paths->data, F_OK) != 0 && access(folders.data, F_OK) == 0);
    if (better) {
        free(paths->data);
        paths->data = folders.data;
    } else {
        free(folders.data);
    }
}

struct search_paths search_paths_find(void)
{
    struct search_paths paths = {0};
    int count = 0;
    const struct guest *guest = guest_now();
    const char *named = guest ? guest->data : getenv("AMPTRAIN_DATADIR");
    char *folder = own_folder(), *source = source_folder(folder);
    char *relative = text_format("%s/../share/amptrain", folder);
    if (named && *named) search_paths_add(&paths, &count, folders_installed(named));
    if (source) search_paths_add(&paths, &count, folders_in_source(source));
    search_paths_add(&paths, &count, folders_installed(relative));
    search_paths_add(&paths, &count, folders_installed(PKGDATADIR));
    free(relative);
    free(source);
    free(folder);
    return paths;
}

void search_paths_free(struct search_paths *paths)
{
    for (int i = 0; i < SEARCH_PATHS_MAX; i++) free(paths->models[i]);
    free(paths->data);
    *paths = (struct search_paths){0};
}

char *search_paths_expand(const char *path)
{
    const char *home = guest_now() ? NULL : getenv("HOME");
    bool begins = path[0] == '~' && (path[1] == '/' || path[1] == '\0');
    return begins && home && home[0] == '/' ? text_format("%s%s", home, path + 1) : text_copy(path);
}

char *search_paths_cache(void)
{
    const struct guest *guest = guest_now();
    if (guest) return text_copy(guest->cache);
    const char *cache = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    if (cache && cache[0] == '/') return text_format("%s/amptrain", cache);
    return home && home[0] == '/' ? text_format("%s/.cache/amptrain", home) : NULL;
}
