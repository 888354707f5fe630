/* settings.h: what a run is told to do: a struct whose members are the rows of options.def. */
#ifndef CONF_SETTINGS_H
#define CONF_SETTINGS_H

#include <stdio.h>

#include "base/field.h"
#include "base/status.h"

/* Values of the options that are choices, in the order in which options.def names them. */
enum { ON_ERROR_SKIP, ON_ERROR_STOP };                                      /* data.on_error */
enum { DECODE_AUTO, DECODE_CPU, DECODE_GPU };                               /* loader.decode */
enum { CACHE_AUTO, CACHE_NONE, CACHE_HOST, CACHE_DEVICE };                  /* loader.cache */
enum { AUTO_AUGMENT_NONE, AUTO_AUGMENT_TRIVIAL, AUTO_AUGMENT_RAND };        /* augment.auto_augment */
enum { ON_NAN_SKIP, ON_NAN_STOP };                                          /* train.on_nan */
enum { STRATEGY_AUTO, STRATEGY_KEEP, STRATEGY_RECOMPUTE, STRATEGY_OFFLOAD };/* memory.strategy */
enum { BEST_VAL_TOP1, BEST_VAL_LOSS };                                      /* checkpoint.best */

/* Words instead of numbers are stored as numbers: "auto" is 0 for counts and sizes, -1 for
 * model.dropout, augment.val_resize, amp.loss_scale (where "dynamic" is 0) and the numbers of [optimizer] whose
 * default depends on the optimizer. settings_given tells them from what the user asked for.
 *
 * options.def has one OPTION(section, name, TYPE, ...) row a key between SECTION and END lines;
 * here each becomes a member: settings.train.epochs. */
#define FIELD_TEXT_MEMBER char *
#define FIELD_PATH_MEMBER char *
#define FIELD_INT_MEMBER int64_t
#define FIELD_REAL_MEMBER double
#define FIELD_BOOL_MEMBER bool
#define FIELD_SIZE_MEMBER int64_t
#define FIELD_DURATION_MEMBER double
#define FIELD_CHOICE_MEMBER int
#define FIELD_REALS_MEMBER struct field_reals
#define FIELD_EVERY_MEMBER struct field_every

/* Where a value came from, for --print-config and messages. */
struct settings_origin {
    enum { FROM_DEFAULT, FROM_FILE, FROM_COMMAND, FROM_DERIVED } kind;
    char *where;                         /* "imagenet.ini:12" or NULL */
    char *asked;                         /* the value that a derived one stands for: "auto"; or NULL */
};

struct settings {
#define SECTION(section, help) struct {
#define OPTION(section, name, type, ...) FIELD_##type##_MEMBER name;
#define END(section) } section;
#include "conf/options.def"
#undef SECTION
#undef OPTION
#undef END
    struct settings_origin *origins;     /* where each option came from, in table order */
};

/* One row of the table as the rest of the program walks it. */
struct option {
    const char *section;
    struct field field;                  /* offset is within struct settings */
    int count;                           /* of a list: exactly so many numbers, or none; 0: any */
    bool later;                          /* known, but what differs from its default is refused */
    const char *works;                   /* later: further values that are not, "auto, cpu"; or "" */
    bool resumable;                      /* may differ when a run is resumed */
};
extern const struct option option_table[];          /* ended by a row whose section is NULL */
struct option_section { const char *name, *help; };
extern const struct option_section option_sections[];

/* Defaults, then the file (may be NULL), then "section.key=value" overrides. Unknown sections and
 * keys, bad values, values of options marked `later`: refused with file:line (or "-s"), the reason and the
 * nearest name, USAGE; every such mistake in the file is reported, not the first alone. Relative
 * data paths are left as written: see settings_path. */
enum status settings_load(const char *file, const char *const *overrides, int override_count,
                          struct settings *settings);
/* The same from text, for a checkpoint's configuration; `name` is for messages. */
enum status settings_load_text(const char *name, const char *text, struct settings *settings);
void settings_free(struct settings *settings);

/* A path from the configuration, made relative to the configuration file's folder: the caller frees it. */
char *settings_path(const struct settings *settings, const char *file, const char *path);

/* The option whose value is this file, which a command would write: NULL, none is. `file` as for
 * settings_path. */
const struct option *settings_find_file(const struct settings *settings, const char *file, const char *path);

/* Whether an option was set by file or command line (so that defaults may depend on other keys).
 * An "auto" that is the default anyway counts as not set, also where it was written down. */
bool settings_given(const struct settings *settings, const char *section, const char *key);
/* Where an option's value came from, for messages: "imagenet.ini:12", "-s", or "default". */
const char *settings_where(const struct settings *settings, const char *section, const char *key);
/* Reports what is wrong with an option's value: "FILE:LINE: section.key: ...", USAGE. */
enum status settings_refuse(const struct settings *settings, const char *section, const char *key,
                            const char *format, ...) __attribute__((format(printf, 4, 5)));
/* Sets a value that follows from others; --print-config says so. */
void settings_derive(struct settings *settings, const char *section, const char *key, const char *value);

/* As an INI file that reads back the same (config.ini); with origins as comments when `origins`. */
void settings_print(const struct settings *settings, bool origins, struct text *out);
/* As one that asks for the same wherever it lies: paths, written in `file`, begin at the root; a value that
 * follows from others stands behind what was asked for, as a comment. */
void settings_print_movable(const struct settings *settings, const char *file, struct text *out);

/* Adds a line "section.key: OLD, now NEW" for every option (not resumable) in which two settings differ;
 * false: there is none. */
bool settings_differ(const struct settings *old, const struct settings *now, struct text *differences);

/* The options as --help prints them, and as the generated part of amptrain.ini(5) (man macros). */
void settings_help(struct text *out);
void settings_manual(struct text *out);

#endif
