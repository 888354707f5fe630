#include "cmd/sweep_grid.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "conf/options.h"

#define NAME_MOST 200          /* bytes of a folder's name */
#define RUNS_MOST 100000

/* A key and its values. */
struct axis {
    char *key;                 /* "optimizer.lr" */
    char **values;             /* [count] */
    int count;
    bool drawn, whole;         /* from low to high instead; as integers */
    double low, high;
};

struct grid {
    struct axis *axes;
    int count;
};

static void axis_free(struct axis *axis)
{
    for (int i = 0; i < axis->count; i++) free(axis->values[i]);
    free(axis->values);
    free(axis->key);
}

static void grid_free(struct grid *grid)
{
    for (int i = 0; i < grid->count; i++) axis_free(&grid->axes[i]);
    free(grid->axes);
}

static void run_free(struct sweep_run *run)
{
    for (int k = 0; k < run->set_count; k++) free(run->sets[k]);
    free(run->sets);
    free(run->name);
    free(run->group);
}

void sweep_free(struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++) run_free(&sweep->runs[i]);
    free(sweep->runs);
    *sweep = (struct sweep){0};
}

static const struct option *option_of(const char *key)
{
    const char *dot = strchr(key, '.');
    if (!dot) return NULL;
    char *section = text_format("%.*s", (int)(dot - key), key);
    const struct option *option = option_find(section, dot + 1);
    free(section);
    return option;
}

static bool take_range(struct axis *axis, const struct option *option, const char *value)
{
    char *end;
    if (!option || (option->field.type != FIELD_REAL && option->field.type != FIELD_INT)) return false;
    axis->low = strtod(value, &end);
    if (end == value || strncmp(end, "..", 2) != 0) return false;
    const char *high = end + 2;
    axis->high = strtod(high, &end);
    axis->whole = option->field.type == FIELD_INT;
    return end != high && *end == '\0' && axis->low < axis->high;
}

static void take_values(struct axis *axis, const struct option *option, const char *value)
{
    bool list = option && option->field.type == FIELD_REALS;
    char divider = strchr(value, ';') ? ';' : list ? '\0' : ',';
    for (const char *at = value;;) {
        const char *end = divider ? strchr(at, divider) : NULL;
        size_t length = end ? (size_t)(end - at) : strlen(at);
        *array_push(axis->values, axis->count) = text_format("%.*s", (int)length, at);
        if (!end) return;
        at = end + 1;
    }
}

static enum status add_axis(struct grid *grid, const char *set, bool random)
{
    const char *equals = strchr(set, '=');
    if (!equals) return fail(USAGE, "sweep: -s %s: must be SECTION.KEY=VALUES", set);
    struct axis axis = {.key = text_format("%.*s", (int)(equals - set), set)};
    const struct option *option = option_of(axis.key);
    axis.drawn = take_range(&axis, option, equals + 1);
    if (!axis.drawn) take_values(&axis, option, equals + 1);
    *array_push(grid->axes, grid->count) = axis;
    if (axis.drawn && !random)
        return fail(USAGE, "sweep: -s %s: a range is for --random; name the values", set);
    return OK;
}

static void add_folds(struct grid *grid, int folds)
{
    struct axis axis = {.key = text_copy("data.fold")};
    for (int i = 1; i <= folds; i++)
        *array_push(axis.values, axis.count) = text_format("%d/%d", i, folds);
    *array_push(grid->axes, grid->count) = axis;
}

static bool varies(const struct axis *axis) { return axis->drawn || axis->count > 1; }

static bool is_repeat(const struct axis *axis)
{
    return strcmp(axis->key, "data.fold") == 0 || strcmp(axis->key, "run.seed") == 0;
}

/* The key without its section where no other one has that name. */
static const char *short_key(const struct grid *grid, const struct axis *axis)
{
    const char *own = strrchr(axis->key, '.');
    for (int i = 0; own && i < grid->count; i++) {
        const char *other = strrchr(grid->axes[i].key, '.');
        if (&grid->axes[i] != axis && other && strcmp(other, own) == 0) return axis->key;
    }
    return own ? own + 1 : axis->key;
}

/* Characters that a folder's name may not have, or a shell would want quoted, become "-". */
static void add_part(struct text *name, const char *key, const char *value)
{
    text_add(name, "%s%s=", name->length > 0 ? "," : "", key);
    for (const char *c = value; *c; c++)
        text_add(name, "%c", isalnum((unsigned char)*c) || strchr("._+-", *c) ? *c : '-');
}

static char *value_new(const struct axis *axis, int index, struct random *random)
{
    if (!axis->drawn) return text_copy(axis->values[index]);
    bool even = axis->low <= 0;
    double low = even ? axis->low : log(axis->low), high = even ? axis->high : log(axis->high);
    double value = random_between(random, low, high);
    if (!even) value = exp(value);
    return axis->whole ? text_format("%.0f", round(value)) : text_format("%.4g", value);
}

/* `indices`: of each axis's value. */
static void add_run(const struct grid *grid, const int *indices, struct random *random, struct sweep *sweep)
{
    struct text name = {0}, group = {0};
    struct sweep_run run = {.sets = NULL};
    for (int i = 0; i < grid->count; i++) {
        const struct axis *axis = &grid->axes[i];
        char *value = value_new(axis, indices[i], random);
        *array_push(run.sets, run.set_count) = text_format("%s=%s", axis->key, value);
        if (varies(axis)) add_part(&name, short_key(grid, axis), value);
        if (varies(axis) && !is_repeat(axis)) add_part(&group, short_key(grid, axis), value);
        sweep->repeats |= varies(axis) && is_repeat(axis);
        free(value);
    }
    run.name = name.data ? name.data : text_copy("");
    run.group = group.data ? group.data : text_copy("all");
    *array_push(sweep->runs, sweep->count) = run;
}

static bool is_known(const struct sweep *sweep, const char *name)
{
    for (int i = 0; i < sweep->count; i++)
        if (strcmp(sweep->runs[i].name, name) == 0) return true;
    return false;
}

/* The last axis turns over first. */
static void add_all(const struct grid *grid, struct sweep *sweep)
{
    int *indices = memory_new((size_t)grid->count, sizeof *indices), i = 0;
    while (i >= 0) {
        add_run(grid, indices, NULL, sweep);
        for (i = grid->count - 1; i >= 0 && ++indices[i] == grid->axes[i].count; i--) indices[i] = 0;
    }
    free(indices);
}

/* Draw `number`, with all folds; nothing if it has been drawn before. */
static void add_draw(const struct grid *grid, int number, int folds, struct sweep *sweep)
{
    int *indices = memory_new((size_t)grid->count, sizeof *indices);
    struct random random = random_open(0, PURPOSE_CHOICE, (uint64_t)number, 0);
    for (int i = 0; i < grid->count; i++)
        if (!grid->axes[i].drawn) indices[i] = (int)random_below(&random, (uint32_t)grid->axes[i].count);
    struct random values = random;
    for (int fold = 0; fold < folds; fold++) {
        random = values;
        if (folds > 1) indices[grid->count - 1] = fold;
        add_run(grid, indices, &random, sweep);
        struct sweep_run *run = &sweep->runs[--sweep->count];
        if (is_known(sweep, run->name)) run_free(run);
        else sweep->count++;
    }
    free(indices);
}

static double combinations(const struct grid *grid)
{
    double all = 1;
    for (int i = 0; i < grid->count; i++) all *= grid->axes[i].drawn ? INFINITY : grid->axes[i].count;
    return all;
}

static void add_random(const struct grid *grid, const struct sweep_options *options, struct sweep *sweep)
{
    int folds = options->folds > 1 ? options->folds : 1;
    double all = combinations(grid);
    int wanted = options->random * folds < all ? options->random * folds : (int)all;
    for (int i = 0; sweep->count < wanted && i < 100 * options->random + 1000; i++)
        add_draw(grid, i, folds, sweep);
}

static enum status check_names(const struct sweep *sweep)
{
    for (int i = 0; i < sweep->count; i++) {
        const char *name = sweep->runs[i].name;
        if (strlen(name) > NAME_MOST)
            return fail(USAGE, "sweep: the name of a run is too long for a folder: %s", name);
        for (int k = 0; k < i; k++)
            if (strcmp(sweep->runs[k].name, name) == 0)
                return fail(USAGE, "sweep: two runs would have the folder %s", name);
    }
    return OK;
}

static enum status grid_make(const struct sweep_options *options, struct grid *grid)
{
    bool any = false;
    for (int i = 0; i < options->set_count; i++) TRY(add_axis(grid, options->sets[i], options->random > 0));
    if (options->folds > 0) add_folds(grid, options->folds);
    for (int i = 0; i < grid->count; i++) any = any || varies(&grid->axes[i]);
    if (!any) return fail(USAGE, "sweep: no key has several values: give -s SECTION.KEY=A,B or --folds N");
    if (options->random == 0 && combinations(grid) > RUNS_MOST)
        return fail(USAGE, "sweep: %.0f combinations are too many; --random N draws some",
                    combinations(grid));
    return OK;
}

enum status sweep_make(const struct sweep_options *options, struct sweep *sweep)
{
    struct grid grid = {0};
    struct sweep made = {0};
    enum status status = grid_make(options, &grid);
    if (status == OK && options->random > 0) add_random(&grid, options, &made);
    else if (status == OK) add_all(&grid, &made);
    if (status == OK) status = check_names(&made);
    grid_free(&grid);
    if (status != OK) sweep_free(&made);
    else *sweep = made;
    return status;
}
