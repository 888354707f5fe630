#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/directory.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "base/text.h"
#include "cmd/cmd.h"
#include "graph/model.h"

/* The comment on the first line of a model file, which describes it. */
static char *read_title(const char *path)
{
    char line[256] = "";
    struct reason reason;
    FILE *file = directory_stream(&directory_working, path, "r", &reason);
    if (!file) return NULL;
    bool read = fgets(line, sizeof line, file) != NULL;
    fclose(file);
    size_t marks = strspn(line, ";# ");
    line[strcspn(line, "\n")] = '\0';
    return read && marks > 0 ? text_copy(line + marks) : NULL;
}

/* The first folder that has the model is used. */
static void print_model(const struct search_paths *paths, const char *name)
{
    char *title = NULL, shown[256];
    for (int i = 0; paths->models[i] && !title; i++) {
        char *path = text_format("%s/%s.ini", paths->models[i], name);
        title = read_title(path);
        free(path);
    }
    printf("%-18s %s\n", name, text_visible(title ? title : "", shown, sizeof shown));
    free(title);
}

static enum status models_run(struct cmd *cmd)
{
    struct search_paths paths = search_paths_find();
    int count = 0;
    char **names = model_names((const char *const *)paths.models, &count);
    for (int i = 0; i < count; i++) print_model(&paths, names[i]);
    text_list_free(names, (size_t)count);
    if (count == 0) printf("no models found; searched %s\n", paths.models[0]);
    search_paths_free(&paths);
    return OK;
}

const struct command cmd_models = {
    .name = "models",
    .usage = "",
    .help = "Lists the installed models.",
    .run = models_run,
};
