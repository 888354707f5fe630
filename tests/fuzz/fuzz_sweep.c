/* Ranges and lists of sweep's options: a value that is drawn is in its range, a list's is in the list, runs
 * have different names, and more runs begin with the same ones. */
#include "fuzz.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/text.h"
#include "cmd/sweep_grid.h"

#define SETS_MAX 4

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    (void)argc, (void)argv;
    fuzz_begin();
    return 0;
}

/* A value of "KEY=LOW..HIGH" is between the two, and one of "KEY=A,B" a part of it. */
static void check_value(const char *set, const char *made)
{
    const char *given = strchr(set, '=') + 1, *value = strchr(made, '=') + 1, *dots = strstr(given, "..");
    fuzz_must(strncmp(set, made, (size_t)(given - set)) == 0);
    if (strstr(given, value)) return;
    char *end;
    double number = strtod(value, &end);
    fuzz_must(dots && *value != '\0' && *end == '\0');
    fuzz_must(number >= strtod(given, NULL) && number <= strtod(dots + 2, NULL));
}

static void check(const struct sweep_options *options, const struct sweep *sweep)
{
    fuzz_must(sweep->count > 0 && sweep->count <= SWEEP_RUNS_MOST);
    for (int i = 0; i < sweep->count; i++) {
        const struct sweep_run *run = &sweep->runs[i];
        fuzz_must(run->name[0] != '\0' && !strchr(run->name, '/'));
        fuzz_must(run->set_count == options->set_count + (options->folds > 0));
        for (int k = 0; k < options->set_count; k++) check_value(options->sets[k], run->sets[k]);
        for (int k = 0; k < i && i < 100; k++) fuzz_must(strcmp(sweep->runs[k].name, run->name) != 0);
    }
}

static void check_longer(struct sweep_options options, const struct sweep *sweep)
{
    struct sweep longer;
    options.random++;
    if (!fuzz_good(sweep_make(&options, &longer), "sweep")) return;
    fuzz_must(longer.count >= sweep->count);
    for (int i = 0; i < sweep->count; i++)
        fuzz_must(strcmp(longer.runs[i].name, sweep->runs[i].name) == 0);
    sweep_free(&longer);
}

/* Two bytes, random and folds; then the options, a line each. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *sets[SETS_MAX];
    if (size < 2) return 0;
    char *text = text_format("%.*s", (int)(size - 2), (const char *)data + 2), *rest = text;
    struct sweep_options options = {.sets = sets, .random = data[0] % 20,
                                    .folds = data[1] == 255 ? 1000000000 : data[1] % 5};
    struct sweep sweep;
    for (char *line; options.set_count < SETS_MAX && (line = strsep(&rest, "\n"));)
        sets[options.set_count++] = line;
    if (fuzz_good(sweep_make(&options, &sweep), "sweep")) {
        check(&options, &sweep);
        if (options.random > 0) check_longer(options, &sweep);
        sweep_free(&sweep);
    }
    free(text);
    return 0;
}
