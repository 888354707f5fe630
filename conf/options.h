/* options.h: the table of options, and the settings struct with a member for each row. */
#pragma once

#include "base/field.h"

/* Values of the options that are choices, in the order in which options.def names them. */
enum { TASK_AUTO, TASK_CLASSIFY, TASK_MULTILABEL, TASK_REGRESS, TASK_SEGMENT };   /* data.task */
enum { MASK_IGNORES_255, MASK_IGNORES_NONE };                               /* data.ignore */
enum { ON_ERROR_SKIP, ON_ERROR_STOP };                                      /* data.on_error */
enum { ORIENTATION_EXIF, ORIENTATION_IGNORE };                              /* data.orientation */
enum { ANNEAL_COS, ANNEAL_LINEAR };                                         /* schedule.anneal_strategy */
enum { FIT_BY_CROP, FIT_BY_LETTERBOX, FIT_BY_STRETCH };                     /* augment.fit */
enum { INTERPOLATION_BILINEAR, INTERPOLATION_BICUBIC };                     /* augment.interpolation */
enum { PAD_MODE_CONSTANT, PAD_MODE_REFLECT };                                   /* augment.pad_mode */
enum { LAYER_DECAY_BY_LAYER, LAYER_DECAY_BY_BLOCK };                            /* optimizer.layer_decay_by */
enum { DECODE_AUTO, DECODE_CPU, DECODE_GPU };                               /* loader.decode */
enum { CACHE_AUTO, CACHE_NONE, CACHE_HOST, CACHE_DEVICE };                  /* loader.cache */
enum { AUTO_AUGMENT_NONE, AUTO_AUGMENT_TRIVIAL, AUTO_AUGMENT_RAND,
       AUTO_AUGMENT_THREE };                                                /* augment.auto_augment */
enum { TRAIN_LOSS_AUTO, TRAIN_LOSS_CE, TRAIN_LOSS_BCE, TRAIN_LOSS_MSE, TRAIN_LOSS_L1,
       TRAIN_LOSS_HUBER, TRAIN_LOSS_DICE, TRAIN_LOSS_DICE_CE, TRAIN_LOSS_FOCAL,
       TRAIN_LOSS_TVERSKY };                                                /* train.loss */
enum { TRAIN_DISTILL_SOFT, TRAIN_DISTILL_HARD };                            /* train.distill */
enum { ON_NAN_SKIP, ON_NAN_STOP };                                          /* train.on_nan */
enum { STRATEGY_AUTO, STRATEGY_KEEP, STRATEGY_RECOMPUTE, STRATEGY_OFFLOAD };/* memory.strategy */
enum { PIPELINE_SCHEDULE_AUTO, PIPELINE_SCHEDULE_GPIPE, PIPELINE_SCHEDULE_1F1B,
       PIPELINE_SCHEDULE_ZERO_BUBBLE, PIPELINE_SCHEDULE_V };               /* parallel.schedule */
enum { WIRE_FP32, WIRE_STORAGE };                                           /* parallel.wire */
enum { STREAMS_MICROBATCHES, STREAMS_LAYERS };                              /* parallel.streams */
enum { BEST_AUTO, BEST_VAL_TOP1, BEST_VAL_LOSS };              /* checkpoint.best; others by their names */

/* Words instead of numbers are stored as numbers: "auto" is 0 for counts and sizes, -1 for
 * model.dropout, augment.val_resize, amp.loss_scale (where "dynamic" is 0) and the numbers of [optimizer]
 * whose default depends on the optimizer. settings_given tells them from what the user asked for.
 *
 * options.def has one OPTION(section, name, TYPE, ...) row a key between SECTION and END lines;
 * here each becomes a member: settings.train.epochs. */
#define FIELD_TEXT_MEMBER char *
#define FIELD_LIST_MEMBER char *
#define FIELD_PATH_MEMBER char *
#define FIELD_INT_MEMBER int64_t
#define FIELD_REAL_MEMBER double
#define FIELD_BOOL_MEMBER bool
#define FIELD_SIZE_MEMBER int64_t
#define FIELD_DURATION_MEMBER double
#define FIELD_CHOICE_MEMBER int
#define FIELD_REALS_MEMBER struct field_reals
#define FIELD_IMAGE_SIZE_MEMBER struct image_size
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

/* One row of the table. */
struct option {
    const char *section;
    struct field field;                  /* offset is within struct settings */
    int count;                           /* of a list: exactly so many numbers, or none; 0: any */
    bool words;                          /* of a path: it may also be auto, a number, or have a comma */
    bool resumable;                      /* may differ when a run is resumed */
};
extern const struct option option_table[];          /* ended by a row whose section is NULL */
struct option_section { const char *name, *help; };
extern const struct option_section option_sections[];

/* The row of a key, or NULL. */
const struct option *option_find(const char *section, const char *key);

/* The first row with this key, of `length` bytes, in any section, or NULL. */
const struct option *option_named(const char *key, int length);

/* The end of a message about an unknown name: "; did you mean 'lr'?", or where the key belongs, or
 * nothing. */
void option_suggest_section(const char *section, struct text *out);
void option_suggest_key(const char *section, const char *key, struct text *out);

/* True if this value of the option is a path. */
bool option_is_path(const struct option *option, const char *value);

/* True if any option is in this section. */
bool option_section_known(const char *section);

/* Parses a value into the option's member; false with the reason if it is invalid. The member may have
 * changed even then. An empty text is the default. */
bool option_set(const struct option *option, struct settings *settings, const char *value,
                struct reason *reason);
void option_reset(const struct option *option, struct settings *settings);

/* The member's value in a form that can be parsed; the caller frees it. */
char *option_value(const struct option *option, const struct settings *settings);
