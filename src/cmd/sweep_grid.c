#include "cmd/sweep_grid.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "conf/options.h"
#include "data/formats/name_index.h"

#define NAME_MOST 200          /* bytes of a folder's name */

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

static bool read_number(const char *text, size_t length, double *number)
{
    char *copy = text_format("%.*s", (int)length, text), *end;
    *number = strtod(copy, &end);
    bool good = length > 0 && *end == '\0' && isfinite(*number);
    free(copy);
    return good;
}

static bool take_range(struct axis *axis, const struct option *option, const char *value)
{
    const char *dots = strstr(value, "..");
    if (!option || !dots) return false;
    axis->whole = option->field.type == FIELD_INT;
    if (!axis->whole && option->field.type != FIELD_REAL) return false;
    if (!read_number(value, (size_t)(dots - value), &axis->low)) return false;
    if (!read_number(dots + 2, strlen(dots + 2), &axis->high)) return false;
    bool whole = axis->low == rint(axis->low) && axis->high == rint(axis->high);
    return axis->low < axis->high && isfinite(axis->high - axis->low) && (whole || !axis->whole);
}

static void take_values(struct axis *axis, const struct option *option, const char *value)
{
    bool list = option && (option->field.type == FIELD_REALS || option->field.type == FIELD_LIST);
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
    for (int i = 0; i < grid->count; i++)
        if (strcmp(grid->axes[i].key, axis.key) == 0) {
            free(axis.key);
            return fail(USAGE, "sweep: -s %s: %s is given twice", set, grid->axes[i].key);
        }
    axis.drawn = take_range(&axis, option, equals + 1);
    if (!axis.drawn) take_values(&axis, option, equals + 1);
    *array_push(grid->axes, grid->count) = axis;
    if (axis.drawn && !random)
        return fail(USAGE, "sweep: -s %s: a range is for --random; name the values", set);
    return OK;
}

static enum status add_folds(struct grid *grid, int folds)
{
    if (folds > SWEEP_RUNS_MOST)
        return fail(USAGE, "sweep: --folds %d: there may be %d runs", folds, SWEEP_RUNS_MOST);
    for (int i = 0; i < grid->count; i++)
        if (strcmp(grid->axes[i].key, "data.fold") == 0)
            return fail(USAGE, "sweep: data.fold is given twice: with -s and by --folds");
    struct axis axis = {.key = text_copy("data.fold")};
    for (int i = 1; i <= folds; i++)
        *array_push(axis.values, axis.count) = text_format("%d/%d", i, folds);
    *array_push(grid->axes, grid->count) = axis;
    return OK;
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
static void add_word(struct text *name, const char *word)
{
    for (const char *c = word; *c; c++)
        text_add(name, "%c", isalnum((unsigned char)*c) || strchr("._+-", *c) ? *c : '-');
}

static void add_part(struct text *name, const char *key, const char *value)
{
    text_add(name, "%s", name->length > 0 ? "," : "");
    add_word(name, key);
    text_add(name, "=");
    add_word(name, value);
}

static char *value_new(const struct axis *axis, int index, struct random *random)
{
    if (!axis->drawn) return text_copy(axis->values[index]);
    bool even = axis->low <= 0;
    double low = even ? axis->low : log(axis->low), high = even ? axis->high : log(axis->high);
    double value = random_between(random, low, high);
    if (!even) value = exp(value);
    value = fmin(fmax(axis->whole ? round(value) + 0.0 : value, axis->low), axis->high);
    char *text = text_format(axis->whole ? "%.0f" : "%.4g", value);
    double rounded = strtod(text, NULL);
    if (rounded >= axis->low && rounded <= axis->high) return text;
    free(text);
    return text_format("%.17g", value);
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

/* The runs of a sweep by name. */
struct known {
    struct name_index index;
    char **names;
    int count;
};

static void known_free(struct known *known)
{
    name_index_free(&known->index);
    free(known->names);
}

/* The number of the run with the name of run `number`, which is added if there is none. */
static int known_add(struct known *known, const struct sweep *sweep, int number)
{
    char *name = sweep->runs[number].name;
    int found = (int)name_index_add(&known->index, known->names, name);
    if (found == known->count) *array_push(known->names, known->count) = name;
    return found;
}

/* Draw `number`, with all folds; nothing if it has been drawn before. */
static void add_draw(const struct grid *grid, int number, int folds, struct known *known, struct sweep *sweep)
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
        int own = sweep->count - 1;
        if (known_add(known, sweep, own) < own) run_free(&sweep->runs[--sweep->count]);
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
    struct known known = {.count = 0};
    int wanted = (int)fmin(options->random * (double)folds, combinations(grid));
    /* Until there seem to be no others. */
    for (int i = 0, last = 0; sweep->count < wanted && i < last + 1000 + 10 * sweep->count; i++) {
        int before = sweep->count;
        add_draw(grid, i, folds, &known, sweep);
        if (sweep->count > before) last = i;
    }
    known_free(&known);
}

static enum status check_names(const struct sweep *sweep)
{
    struct known known = {.count = 0};
    enum status status = OK;
    for (int i = 0; status == OK && i < sweep->count; i++) {
        const char *name = sweep->runs[i].name;
        if (strlen(name) > NAME_MOST)
            status = fail(USAGE, "sweep: the name of a run is too long for a folder: %s", name);
        else if (known_add(&known, sweep, i) < i)
            status = fail(USAGE, "sweep: two runs would have the folder %s", name);
    }
    known_free(&known);
    return status;
}

static enum status grid_make(const struct sweep_options *options, struct grid *grid)
{
    bool any = false;
    for (int i = 0; i < options->set_count; i++) TRY(add_axis(grid, options->sets[i], options->random > 0));
    if (options->folds > 0) TRY(add_folds(grid, options->folds));
    for (int i = 0; i < grid->count; i++) any = any || varies(&grid->axes[i]);
    if (!any) return fail(USAGE, "sweep: no key has several values: give -s SECTION.KEY=A,B or --folds N");
    double folds = options->folds > 1 ? options->folds : 1, all = combinations(grid);
    if (options->random > 0) all = fmin(all, options->random * folds);
    if (all > SWEEP_RUNS_MOST)
        return fail(USAGE, "sweep: %.0f %s are too many; --random N draws some", all,
                    options->random > 0 ? "runs" : "combinations");
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
