#include "settings.h"

#include <assert.h>
#include <ctype.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/memory.h"
#include "base/search_paths.h"
#include "conf/ini.h"
#include "conf/options.h"

/* More would be noise. */
#define MISTAKE_LIMIT 20

static struct settings_origin *settings_origin(const struct settings *settings,
                                               const struct option *option)
{
    return &settings->origins[option - option_table];
}

static struct settings settings_defaults(void)
{
    struct settings settings = {.origins = NULL};
    int count = 0;
    for (const struct option *option = option_table; option->section; option++, count++)
        option_reset(option, &settings);
    settings.origins = memory_new((size_t)count, sizeof *settings.origins);
    return settings;
}

void settings_free(struct settings *settings)
{
    for (const struct option *option = option_table; option->section; option++) {
        const struct field alone[] = {option->field, {.name = NULL}};
        field_release(alone, settings);
        if (!settings->origins) continue;
        free(settings_origin(settings, option)->where);
        free(settings_origin(settings, option)->asked);
    }
    free(settings->origins);
    *settings = (struct settings){.origins = NULL};
}

/* Sets one option and notes its origin; `where` is copied. */
static bool settings_set(struct settings *settings, const struct option *option, const char *value,
                         int kind, const char *where, struct reason *reason)
{
    if (!option_set(option, settings, value, reason)) return false;
    struct settings_origin *origin = settings_origin(settings, option);
    free(origin->where);
    origin->kind = kind;
    origin->where = text_copy(where);
    return true;
}

static enum status settings_refuse_section(const char *where, const char *section)
{
    struct text advice = {0};
    option_suggest_section(section, &advice);
    fail(USAGE, "%s: there is no section [%s]%s", where, section, advice.data ? advice.data : "");
    text_free(&advice);
    return USAGE;
}

static enum status settings_refuse_key(const char *where, const char *section, const char *key)
{
    struct text advice = {0};
    option_suggest_key(section, key, &advice);
    fail(USAGE, "%s: there is no key '%s' in [%s]%s", where, key, section,
         advice.data ? advice.data : "");
    text_free(&advice);
    return USAGE;
}

typedef bool option_filter(const struct option *option);

/* An auto that is the default, which does not override the base settings. */
static bool asks_nothing(const struct settings *settings, const struct option *option, const char *value)
{
    return settings_origin(settings, option)->kind != FROM_DEFAULT && strcmp(value, "auto") == 0 &&
           strcmp(option->field.initial, "auto") == 0;
}

static enum status settings_entry(struct settings *settings, const struct ini_entry *entry,
                                  const char *where, option_filter *takes)
{
    /* The section's own line has been refused already. */
    if (!option_section_known(entry->section))
        return entry->key ? OK : settings_refuse_section(where, entry->section);
    if (!entry->key) return OK;
    const struct option *option = option_find(entry->section, entry->key);
    if (!option) return settings_refuse_key(where, entry->section, entry->key);
    if ((takes && !takes(option)) || asks_nothing(settings, option, entry->value)) return OK;
    struct reason reason;
    if (settings_set(settings, option, entry->value, FROM_FILE, where, &reason)) return OK;
    return fail(USAGE, "%s: %s.%s: %s", where, entry->section, entry->key, reason.text);
}

/* `takes` NULL: all options count. Mistakes of the file itself are reported in between, in line order. */
static enum status settings_apply(struct settings *settings, struct ini *ini, option_filter *takes)
{
    int mistakes = 0;
    for (int i = 0; i < ini->count && mistakes < MISTAKE_LIMIT; i++) {
        ini_report(ini, ini->entries[i].line);
        char *where = text_format("%s:%d", ini->file, ini->entries[i].line);
        if (settings_entry(settings, &ini->entries[i], where, takes) != OK) mistakes++;
        free(where);
    }
    enum status status = ini_report(ini, INI_END);
    if (mistakes == MISTAKE_LIMIT) fail(USAGE, "%s: too many errors; the rest is not checked", ini->file);
    return mistakes ? USAGE : status;
}

/* An argument that is not SECTION.KEY=VALUE. */
static enum status settings_refuse_shape(const char *override)
{
    const struct option *option = option_named(override, (int)strcspn(override, "="));
    if (!option) return fail(USAGE, "-s %s: must be SECTION.KEY=VALUE", override);
    return fail(USAGE, "-s %s: must be SECTION.KEY=VALUE; did you mean %s.%s?", override, option->section,
                option->field.name);
}

static char *trimmed(const char *value)
{
    while (isspace((unsigned char)*value)) value++;
    char *copy = text_copy(value);
    size_t length = strlen(copy);
    while (length && isspace((unsigned char)copy[length - 1])) copy[--length] = '\0';
    return copy;
}

/* `section` and `key` lie in a copy of the override. */
static enum status settings_override_parts(struct settings *settings, const char *override,
                                           const char *section, const char *key, const char *value)
{
    char *where = text_format("-s %s", override);
    enum status status = OK;
    const struct option *option = option_find(section, key);
    struct reason reason;
    if (!option_section_known(section)) status = settings_refuse_section(where, section);
    else if (!option) status = settings_refuse_key(where, section, key);
    else if (!settings_set(settings, option, value, FROM_COMMAND, "-s", &reason))
        status = fail(USAGE, "%s: %s", where, reason.text);
    free(where);
    return status;
}

/* Converts a relative path, which is freed, to an absolute one. */
static char *path_whole(char *path)
{
    char *here = *path == '/' ? NULL : realpath(".", NULL);
    if (!here) return path;
    char *whole = text_format("%s/%s", strcmp(here, "/") == 0 ? "" : here, path);
    free(here);
    free(path);
    return whole;
}

/* A path from the command line: it is made absolute if `file` is in another folder than the working one. */
static char *override_value(const char *file, const char *section, const char *key, const char *given)
{
    const struct option *option = option_find(section, key);
    char *value = trimmed(given);
    if (!option || !option_is_path(option, value)) return value;
    char *path = search_paths_expand(value);
    free(value);
    return file && strchr(file, '/') ? path_whole(path) : path;
}

static enum status settings_override(struct settings *settings, const char *file, const char *override)
{
    size_t section_length = strcspn(override, ".="), key_length = strcspn(override, "=");
    if (override[section_length] != '.' || override[key_length] != '=')
        return settings_refuse_shape(override);
    char *section = text_format("%.*s", (int)section_length, override);
    char *key = text_format("%.*s", (int)(key_length - section_length - 1),
                            override + section_length + 1);
    char *value = override_value(file, section, key, override + key_length + 1);
    enum status status = settings_override_parts(settings, override, section, key, value);
    free(section);
    free(key);
    free(value);
    return status;
}

/* Rules that involve several options. */
static enum status settings_check(const struct settings *settings)
{
    enum status status = OK;
    const struct field_reals *mean = &settings->augment.mean, *std = &settings->augment.std;
    const struct field_reals *scale = &settings->augment.scale, *ratio = &settings->augment.ratio;
    if (settings->amp.min_scale > settings->amp.max_scale)
        status = fail(USAGE, "%s: amp.min_scale is above amp.max_scale",
                      settings_where(settings, "amp", "min_scale"));
    if (mean->count && std->count && mean->count != std->count)
        status = fail(USAGE, "%s: augment.mean has %d numbers, augment.std %d",
                      settings_where(settings, "augment", "mean"), mean->count, std->count);
    if (scale->count && scale->value[0] > scale->value[1])
        status = fail(USAGE, "%s: augment.scale: the smaller number must come first",
                      settings_where(settings, "augment", "scale"));
    if (ratio->count && ratio->value[0] > ratio->value[1])
        status = fail(USAGE, "%s: augment.ratio: the smaller number must come first",
                      settings_where(settings, "augment", "ratio"));
    if (settings->model.arch && settings->model.file)
        status = fail(USAGE, "%s: model.arch and model.file cannot be combined",
                      settings_where(settings, "model", "file"));
    return status;
}

static enum status settings_apply_base(struct settings *settings, const struct settings_base *base)
{
    struct ini ini;
    enum status status = ini_read_text(base->name, base->text, &ini);
    if (status == OK) {
        status = settings_apply(settings, &ini, base->takes);
        ini_free(&ini);
    }
    return status == OK ? OK : fail(BAD_CHECKPOINT, "%s: its configuration is invalid", base->name);
}

/* All errors are reported: names are checked even if values are invalid. */
static enum status settings_from(const struct settings_sources *sources, struct ini *ini,
                                 struct settings *settings)
{
    struct settings result = settings_defaults();
    enum status status = sources->base ? settings_apply_base(&result, sources->base) : OK;
    if (status == OK && ini) status = settings_apply(&result, ini, NULL);
    for (int i = 0; i < sources->override_count; i++)
        if (settings_override(&result, sources->file, sources->overrides[i]) != OK && status == OK)
            status = USAGE;
    if (settings_check(&result) != OK && status == OK) status = USAGE;
    if (sources->check && sources->check(&result) != OK && status == OK) status = USAGE;
    if (status == OK) *settings = result;
    else settings_free(&result);
    return status;
}

enum status settings_read(const struct settings_sources *sources, struct settings *settings)
{
    struct ini ini;
    if (!sources->file) return settings_from(sources, NULL, settings);
    TRY(ini_scan(sources->file, &ini));
    enum status status = settings_from(sources, &ini, settings);
    ini_free(&ini);
    return status;
}

enum status settings_load(const char *file, const char *const *overrides, int override_count,
                          struct settings *settings)
{
    const struct settings_sources sources = {
        .file = file, .overrides = overrides, .override_count = override_count,
    };
    return settings_read(&sources, settings);
}

enum status settings_load_text(const char *name, const char *text, struct settings *settings)
{
    struct ini ini;
    ini_scan_text(name, text, &ini);
    enum status status = settings_from(&(struct settings_sources){.file = NULL}, &ini, settings);
    ini_free(&ini);
    return status;
}

char *settings_path(const struct settings *settings, const char *file, const char *path)
{
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (!path || *path == '/' || !slash) return text_copy(path);
    return text_format("%.*s/%s", (int)(slash - file), file, path);
}

const struct option *settings_find_file(const struct settings *settings, const char *file, const char *path)
{
    for (const struct option *option = option_table; option->section; option++) {
        char *value = option_value(option, settings), *named = settings_path(settings, file, value);
        bool same = option_is_path(option, value) && file_same(named, path);
        free(named);
        free(value);
        if (same) return option;
    }
    return NULL;
}

int settings_classes(const struct settings *settings)
{
    static const struct field number = {.name = "classes", .type = FIELD_INT, .min = 1, .max = 1000000};
    const char *text = settings->data.classes;
    struct reason reason;
    int64_t classes;
    return text && field_parse(&number, &classes, text, &reason) ? (int)classes : 0;
}

bool settings_given(const struct settings *settings, const char *section, const char *key)
{
    const struct option *option = option_find(section, key);
    assert(option);
    const struct settings_origin *origin = settings_origin(settings, option);
    if (origin->kind == FROM_DEFAULT || origin->kind == FROM_DERIVED) return false;
    if (!option->field.word || strcmp(option->field.initial, "auto") != 0) return true;
    char *value = option_value(option, settings);
    bool given = strcmp(value, "auto") != 0;
    free(value);
    return given;
}

bool settings_on_command(const struct settings *settings, const char *section, const char *key)
{
    return settings_origin(settings, option_find(section, key))->kind == FROM_COMMAND;
}

static const char *origin_text(const struct settings_origin *origin)
{
    if (origin->where) return origin->where;
    return origin->kind == FROM_DERIVED ? "derived" : "default";
}

const char *settings_where(const struct settings *settings, const char *section, const char *key)
{
    const struct option *option = option_find(section, key);
    assert(option);
    return origin_text(settings_origin(settings, option));
}

char *settings_swap_where(const struct settings *settings, const char *section, const char *key, char *where)
{
    struct settings_origin *origin = settings_origin(settings, option_find(section, key));
    char *before = origin->where;
    origin->where = where;
    return before;
}

enum status settings_refuse(const struct settings *settings, const char *section, const char *key,
                            const char *format, ...)
{
    char why[4 * REASON_SIZE];          /* lists of names are long */
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why, sizeof why, format, arguments);
    va_end(arguments);
    return fail(USAGE, "%s: %s.%s: %s", settings_where(settings, section, key), section, key, why);
}

enum status settings_refuse_name(const struct settings *settings, const char *section, const char *key,
                                 const char *const *names, int count, const char *list)
{
    char *value = option_value(option_find(section, key), settings);
    const char *near = text_nearest(value, names, count);
    struct text known = {0};
    if (near) text_add(&known, "; did you mean '%s'?", near);
    else if (list) text_add(&known, "; %s", list);
    else
        for (int i = 0; i < count; i++) text_add(&known, "%s%s", i ? ", " : ", only ", names[i]);
    enum status status = settings_refuse(settings, section, key, "there is no '%s'%s", value, known.data);
    text_free(&known);
    free(value);
    return status;
}

void settings_drop(struct settings *settings, const char *section, const char *key)
{
    const struct option *option = option_find(section, key);
    assert(option);
    struct settings_origin *origin = settings_origin(settings, option);
    free(origin->where);
    free(origin->asked);
    *origin = (struct settings_origin){.kind = FROM_DEFAULT};
    option_reset(option, settings);
}

static bool try_derive(struct settings *settings, const char *section, const char *key, const char *value,
                       struct reason *reason)
{
    const struct option *option = option_find(section, key);
    assert(option);
    struct settings_origin *origin = settings_origin(settings, option);
    if (!origin->asked) origin->asked = option_value(option, settings);
    return settings_set(settings, option, value, FROM_DERIVED, NULL, reason);
}

void settings_derive(struct settings *settings, const char *section, const char *key, const char *value)
{
    struct reason reason;
    bool good = try_derive(settings, section, key, value, &reason);
    assert(good && "a derived value that its own row refuses");
}

enum status settings_take(struct settings *settings, const char *section, const char *key, const char *value,
                          const char *from)
{
    struct reason reason;
    if (try_derive(settings, section, key, value, &reason)) return OK;
    return fail(USAGE, "%s: %s", from, reason.text);
}

void settings_derive_number(struct settings *settings, const char *section, const char *key, int64_t number)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, number);
    settings_derive(settings, section, key, text);
}

void settings_derive_size(struct settings *settings, const char *section, const char *key,
                          struct image_size size)
{
    char text[32];
    snprintf(text, sizeof text, "%dx%d", size.h, size.w);
    settings_derive(settings, section, key, text);
}

/* The value of a path made absolute relative to `file`; the caller frees it. */
static char *path_from_root(const struct settings *settings, const char *file, char *value)
{
    char *whole = path_whole(settings_path(settings, file, value));
    free(value);
    return whole;
}

struct printing {
    bool origins;
    bool asked;                  /* derived values follow requested ones */
    bool whole_paths;
    const char *file;            /* to whose folder paths are relative */
};

static char *printed_value(const struct option *option, const struct settings *settings,
                           const struct printing *how)
{
    const char *asked = how->asked ? settings_origin(settings, option)->asked : NULL;
    char *value = asked ? text_copy(asked) : option_value(option, settings);
    bool path = option_is_path(option, value);
    return path && how->whole_paths ? path_from_root(settings, how->file, value) : value;
}

static void print_resolved(const struct option *option, const struct settings *settings, struct text *out)
{
    if (settings_origin(settings, option)->kind != FROM_DERIVED) return;
    char *value = option_value(option, settings);
    ini_add_comment(out, 4, value);
    free(value);
}

static void print(const struct settings *settings, const struct printing *how, struct text *out)
{
    const char *section = "";
    for (const struct option *option = option_table; option->section; option++) {
        if (strcmp(section, option->section) != 0)
            text_add(out, "%s[%s]\n", *section ? "\n" : "", option->section);
        section = option->section;
        char *value = printed_value(option, settings, how);
        text_add(out, "%s =%s", option->field.name, *value ? " " : "");
        ini_add_value(out, value);
        if (how->origins) ini_add_comment(out, 4, origin_text(settings_origin(settings, option)));
        if (how->asked) print_resolved(option, settings, out);
        text_add(out, "\n");
        free(value);
    }
}

void settings_print(const struct settings *settings, bool origins, struct text *out)
{
    print(settings, &(struct printing){.origins = origins}, out);
}

void settings_print_movable(const struct settings *settings, const char *file, struct text *out)
{
    print(settings, &(struct printing){.asked = true, .whole_paths = true, .file = file}, out);
}

void settings_print_resolved(const struct settings *settings, const char *file, struct text *out)
{
    print(settings, &(struct printing){.whole_paths = true, .file = file}, out);
}

bool settings_differ(const struct settings *old, const struct settings *now, struct text *differences)
{
    bool differ = false;
    for (const struct option *option = option_table; option->section; option++) {
        if (option->resumable) continue;
        char *before = option_value(option, old), *after = option_value(option, now);
        if (strcmp(before, after) != 0) {
            text_add(differences, "%s%s.%s: %.80s, now %.80s", differ ? "\n" : "", option->section,
                     option->field.name, *before ? before : "empty", *after ? after : "empty");
            differ = true;
        }
        free(before);
        free(after);
    }
    return differ;
}

int64_t settings_micro_batches(const struct settings *settings)
{
    int64_t streamed = settings->parallel.microbatches;
    return settings->train.accumulate * (streamed > 0 ? streamed : 1);
}
