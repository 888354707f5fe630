#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cmd.h"
#include "train/places.h"

/* The comment on the first line of a model file, which says what it is. */
static void read_title(const char *path, char *title, int room)
{
    title[0] = '\0';
    FILE *file = fopen(path, "re");
    if (!file) return;
    if (fgets(title, room, file)) {
        title[strcspn(title, "\n")] = '\0';
        size_t skip = strspn(title, ";# ");
        memmove(title, title + (skip ? skip : strlen(title)), strlen(title + (skip ? skip : strlen(title))) + 1);
    }
    fclose(file);
}

static void print_model(const struct places *places, const char *name)
{
    char title[256] = "";
    for (int i = 0; places->models[i] && !title[0]; i++) {
        char *path = text_format("%s/%s.ini", places->models[i], name);
        read_title(path, title, sizeof title);
        free(path);
    }
    printf("%-18s %s\n", name, title);
}

static enum status run(struct cmd *cmd)
{
    (void)cmd;
    struct places places = places_find();
    int count = 0;
    char **names = model_names((const char *const *)places.models, &count);
    for (int i = 0; i < count; i++) {
        print_model(&places, names[i]);
        free(names[i]);
    }
    free(names);
    if (count == 0) printf("no model is installed; they are looked for in %s\n", places.models[0]);
    places_free(&places);
    return OK;
}

const struct command cmd_models = {
    .name = "models",
    .usage = "",
    .help = "Lists the installed models.",
    .run = run,
};
