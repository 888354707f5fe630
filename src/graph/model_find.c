/* model_find.c: finds the file of a model by its name. */
#include "model_parts.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/memory.h"
#include "base/text.h"

#define SUFFIX ".ini"

char **model_names(const char *const *folders, int *count)
{
    struct names found = {0};
    for (int i = 0; folders && folders[i]; i++) {
        DIR *folder = opendir(folders[i]);
        if (!folder) continue;
        for (struct dirent *entry; (entry = readdir(folder));) {
            if (entry->d_name[0] == '.' || !text_ends_in(entry->d_name, SUFFIX)) continue;
            char *name = text_copy(entry->d_name);
            name[strlen(name) - strlen(SUFFIX)] = '\0';
            names_add(&found, name, 0);
            free(name);
        }
        closedir(folder);
    }
    char **names = text_list(found.name, found.count, found.count);
    text_list_sort(names, (size_t)found.count);
    *count = found.count;
    names_free(&found);
    return names;
}

static enum status unknown_arch(const struct model_options *options)
{
    int count;
    char **names = model_names(options->folders, &count);
    const char *near = text_nearest(options->arch, (const char *const *)names, count);
    enum status status =
        near ? fail(USAGE, "there is no model '%s'; did you mean '%s'?", options->arch, near)
             : fail(USAGE, "there is no model '%s'; `amptrain models` lists them", options->arch);
    text_list_free(names, (size_t)count);
    return status;
}

enum status model_find(const struct model_options *options, char **path)
{
    if (options->file) {
        *path = text_copy(options->file);
        return OK;
    }
    if (!options->arch) return fail(USAGE, "no model given; set model.arch or model.file");
    bool plain = model_name_is_valid(options->arch);
    for (int i = 0; plain && options->folders && options->folders[i]; i++) {
        char *candidate = text_format("%s/%s" SUFFIX, options->folders[i], options->arch);
        if (access(candidate, F_OK) == 0) {
            *path = candidate;
            return OK;
        }
        free(candidate);
    }
    return unknown_arch(options);
}

char *model_base_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    char *name = text_copy(slash ? slash + 1 : path);
    if (text_ends_in(name, SUFFIX)) name[strlen(name) - strlen(SUFFIX)] = '\0';
    return name;
}
