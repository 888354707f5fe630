/* settings.h: the settings of a run, from the configuration file and the command line. */
#pragma once

#include <stdio.h>

#include "base/status.h"
#include "conf/options.h"

/* Defaults, then the file (may be NULL), then "section.key=value" overrides. Unknown sections and keys, bad
 * values: refused with file:line (or "-s"), the reason and the nearest name, USAGE; every such error in the
 * file is reported, not only the first. Relative data paths are left as written: see settings_path. */
enum status settings_load(const char *file, const char *const *overrides, int override_count,
                          struct settings *settings);

/* Another configuration that provides defaults, from a checkpoint. */
struct settings_base {
    const char *name, *text;                            /* for messages, and as an INI file */
    bool (*takes)(const struct option *option);         /* which of its options count */
};
/* Built-in defaults, and the sources that override them in this order; each may be NULL. */
struct settings_sources {
    const struct settings_base *base;                   /* BAD_CHECKPOINT: the error is in the checkpoint */
    const char *file;
    const char *const *overrides;                       /* relative paths in them begin at the working
                                                         * folder */
    int override_count;
    enum status (*check)(const struct settings *settings);   /* for names defined on higher floors */
};
enum status settings_read(const struct settings_sources *sources, struct settings *settings);
/* Loads from text, for a checkpoint's configuration; `name` is for messages. */
enum status settings_load_text(const char *name, const char *text, struct settings *settings);
void settings_free(struct settings *settings);

/* A path from the configuration, made relative to the configuration file's folder: the caller frees it. */
char *settings_path(const struct settings *settings, const char *file, const char *path);

/* The option whose value is `file`, which a command is about to write; NULL: none. Paths are as for
 * settings_path. */
const struct option *settings_find_file(const struct settings *settings, const char *file, const char *path);

/* True if an option was set by file or command line (so that defaults may depend on other keys).
 * An "auto" that is the default anyway counts as not set, also where it was written down. */
bool settings_given(const struct settings *settings, const char *section, const char *key);
/* True if it is from the command line (-s). */
bool settings_on_command(const struct settings *settings, const char *section, const char *key);
/* Where an option's value came from, for messages: "imagenet.ini:12", "-s", or "default". */
const char *settings_where(const struct settings *settings, const char *section, const char *key);
/* Changes it to `where`, which settings then own; returns the previous one, for the caller: NULL: default or
 * derived. */
char *settings_swap_where(const struct settings *settings, const char *section, const char *key, char *where);
/* Reports what is wrong with an option's value: "FILE:LINE: section.key: ...", USAGE. */
enum status settings_refuse(const struct settings *settings, const char *section, const char *key,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Refuses a value that is none of `count` names: with the nearest one, or else with `list`, what lists
 * them ("`amptrain models` lists them"); NULL: with all of them. */
enum status settings_refuse_name(const struct settings *settings, const char *section, const char *key,
                                 const char *const *names, int count, const char *list);
/* Makes it the default, as if it had not been given. */
void settings_drop(struct settings *settings, const char *section, const char *key);
/* Sets a value that follows from others; --print-config says so. */
void settings_derive(struct settings *settings, const char *section, const char *key, const char *value);
void settings_derive_number(struct settings *settings, const char *section, const char *key, int64_t number);
void settings_derive_size(struct settings *settings, const char *section, const char *key,
                          struct image_size size);
/* Sets a value that the user gave elsewhere, as with an option of the command, `from`: refused by that name,
 * USAGE. */
enum status settings_take(struct settings *settings, const char *section, const char *key, const char *value,
                          const char *from);

/* The number that data.classes is; 0: it is none. */
int settings_classes(const struct settings *settings);

static inline bool settings_has_teacher(const struct settings *settings)
{
    return settings->train.teacher && *settings->train.teacher;
}

/* Micro-batches of each rank, or pipeline; while parallel.microbatches is auto, as if that were 1. */
int64_t settings_micro_batches(const struct settings *settings);

/* Prints an INI file that reads back the same (config.ini), with origins as comments if `origins`. */
void settings_print(const struct settings *settings, bool origins, struct text *out);
/* Prints an INI file that requests the same from any location: paths, relative to `file`, become absolute; a
 * derived value follows the requested one as a comment. */
void settings_print_movable(const struct settings *settings, const char *file, struct text *out);
/* Prints every value as resolved. */
void settings_print_resolved(const struct settings *settings, const char *file, struct text *out);

/* Adds a line "section.key: OLD, now NEW" for every option (not resumable) in which two settings differ;
 * false: there is none. */
bool settings_differ(const struct settings *old, const struct settings *now, struct text *differences);

/* The options as --help prints them, and as the generated part of amptrain.ini(5) (man macros). */
void settings_help(struct text *out);
void settings_manual(struct text *out);
