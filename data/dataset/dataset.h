/* dataset.h: images and labels by index, independent of the file format; each format is one file and one
 * table row. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/shape.h"
#include "base/status.h"
#include "data/dataset/target.h"
#include "data/image/image.h"
#include "data/image/mask_classes.h"

/* More classes are treated as an error or an attack: each needs memory for its name. */
#define CLASSES_MAX 1000000

enum split { SPLIT_TRAIN, SPLIT_VAL };

/* The classes of masks. */
struct mask_options {
    const struct mask_classes *known;  /* of the training split; NULL: what follows */
    const char *palette;           /* a palette file (data/image/mask_classes.h); NULL: masks are numbers */
    const char *classes;           /* mask_class_names; NULL: auto */
    const char *classes_path;      /* as a path, resolved */
    bool ignore;                   /* 255 is MASK_IGNORE */
};

/* Settings that a table of images needs beside its own words; NULL each: none. */
struct table_options {
    const char *columns, *extension;   /* data.columns and data.extension */
    const char *root;                  /* the folder of its paths, resolved */
};

struct dataset_options {
    const char *path;              /* folder or file, already resolved; NULL: the format's default */
    enum split split;
    const char *installed;         /* the folder of data that ships with the program: digits/ is in it */
    /* The classes that define the numbering, from a checkpoint or the training split: classes of the files
     * get the number of their name there, and images of any other class are refused. NULL: the files' own. */
    char *const *class_names;
    int class_count;               /* of class_names */
    int classes;                   /* synthetic: how many; 0: default */
    int64_t synthetic_count;       /* synthetic: images; 0: default */
    int h, w, c;                   /* synthetic: size; 0: default; see dataset_channels */
    uint64_t seed;
    bool ignore_orientation;       /* image files: struct image_options */
    struct image_bands bands;
    enum target_kind target;       /* of labels that are wanted */
    struct mask_options masks;     /* for TARGET_MASK */
    struct table_options table;
};

struct dataset {
    const struct format *format;
    int64_t count;
    enum target_kind target;       /* set by formats that know others than classes */
    int classes;
    char **class_names;            /* [classes] */
    int *numbers;                  /* [classes of the files] their numbers in class_names; NULL: the same */
    bool numbered;                 /* the files name no classes: class_names are numbers, or were given */
    int h, w, c;                   /* h == w == 0: images may differ in size; c is always known */
    bool ignore_orientation;       /* struct image_options */
    struct image_bands bands;
    struct mask_classes *masks;    /* with TARGET_MASK; otherwise NULL */
    bool decoded;                  /* images are decoded from files, which takes time */
    void *state;                   /* the format's */
    bool held;                     /* a thread is still reading from it: closing it does nothing */
};

/* The identity of an image's contents. */
struct image_contents {
    int64_t bytes;                 /* of its file or its pixels; -1: it cannot be read */
    bool known;
    uint32_t crc;                  /* CRC-32C of them; 0 if it is not `known` */
};

/* The masks of a format. */
struct format_masks {
    /* The name for messages of the mask of image `index`, and its path if it is a file of its own; the caller
     * frees it. */
    char *(*path)(const struct dataset *dataset, int64_t index);
    /* Reader, like read_file and contents below. NULL: the file at the path is read. */
    bool (*read_file)(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                      struct reason *reason);
    void (*contents)(const struct dataset *dataset, int64_t index, struct image_contents *contents);
    /* Masks that are no files: in the place of read_file. */
    bool (*read)(const struct dataset *dataset, int64_t index, struct image *mask, struct reason *reason);
};

struct format {
    const char *name;
    const char *help;              /* one sentence: the meaning of `train` and `val` */
    bool one_size;                 /* all images have the same size, whatever the data */
    /* Reports failures itself (BAD_DATA). Counts come from file sizes checked against headers. */
    enum status (*open)(const struct dataset_options *options, struct dataset *dataset);
    /* Image `index` decoded into `image`, and its label. Thread-safe. With `choice`, images may be decoded in
     * part; formats may ignore it. False, with a reason that names the file, if the image cannot be used. */
    bool (*read)(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                 struct image *image, int *label, struct reason *reason);
    /* The label of image `index`, without reading the image. NULL: it is not known before. */
    int (*label)(const struct dataset *dataset, int64_t index);
    /* The labels of image `index`, 0 or 1 for each of [classes], and its number: for data sets whose target
     * is that. NULL: images have neither. */
    void (*labels)(const struct dataset *dataset, int64_t index, float *labels);
    double (*number)(const struct dataset *dataset, int64_t index);
    /* The hash of the name of the group that image `index` belongs to, 0: to none; NULL: there are none. */
    uint64_t (*group)(const struct dataset *dataset, int64_t index);
    /* The unchanged file of image `index`, in new memory (free() it), and its label. NULL: images are not
     * files. */
    bool (*read_file)(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                      int *label, struct reason *reason);
    /* Its name below the data set's root; NULL: images have none. */
    const char *(*image_name)(const struct dataset *dataset, int64_t index);
    /* Facts known of it without reading it; NULL: it has the bytes of its pixels. */
    void (*contents)(const struct dataset *dataset, int64_t index, struct image_contents *contents);
    /* Masks, with TARGET_MASK. NULL: there are none. */
    const struct format_masks *masks;
    /* Behind dataset_image_path; NULL: no image has one. */
    char *(*image_path)(const struct dataset *dataset, int64_t index);
    void (*close)(struct dataset *dataset);
};

extern const struct format *const format_table[];      /* ended by NULL: the list in formats.c */
const struct format *format_find(const char *name);

/* The channels of image files, for formats: 1 or 3, or as many as were asked for. */
static inline int dataset_channels(const struct dataset_options *options)
{
    return options->bands.strict || options->c == 1 ? options->c : 3;
}

/* The number of a class of the files, for formats. */
static inline int dataset_number(const struct dataset *dataset, int class)
{
    return dataset->numbers ? dataset->numbers[class] : class;
}

/* For dataset_open: numbers the classes of an opened data set as the options say; BAD_DATA names both lists
 * of classes. */
enum status dataset_number_classes(const struct dataset_options *options, struct dataset *dataset);

/* For dataset_open: finds the classes of an opened data set's masks: those that are known, a palette's, or as
 * options->masks says. To find classes=auto, or that masks have two values, all masks may be read. */
enum status dataset_define_masks(const struct dataset_options *options, struct dataset *dataset);

enum status dataset_open(const struct format *format, const struct dataset_options *options,
                         struct dataset *dataset);
void dataset_close(struct dataset *dataset);           /* accepts a zeroed struct */

/* The target of image `index`, if it is no class: its labels, or its number less `mean` over `std`. */
void dataset_target(const struct dataset *dataset, int64_t index, double mean, double std, float *target);

/* The hash of a group's name; 0: it is empty, and means none. */
uint64_t dataset_group(const char *name);

/* The path of an image, for messages; the caller frees it. NULL: it is not a separate file. */
char *dataset_image_path(const struct dataset *dataset, int64_t index);

/* How its image files are decoded. */
struct image_options dataset_image_options(const struct dataset *dataset);

/* For formats whose images are separate files: read, read_file and contents, by image_path and label. */
bool dataset_file_decode(const struct dataset *dataset, int64_t index, const struct image_choice *choice,
                         struct image *image, int *label, struct reason *reason);
bool dataset_file_read(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                       int *label, struct reason *reason);
void dataset_file_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents);

/* The size of an image, which is not decoded if it is a file, whether its samples have more than 8 bits, and
 * the pages of its file. False, with the reason. */
struct image_facts {
    struct image_size size;
    bool deep;
    int pages;
};
bool dataset_image_facts(const struct dataset *dataset, int64_t index, struct image_facts *facts,
                         struct reason *reason);

/* The bytes of the mask of image `index`, and what is known of it without reading it. */
bool dataset_mask_file(const struct dataset *dataset, int64_t index, uint8_t **bytes, size_t *count,
                       struct reason *reason);
void dataset_mask_contents(const struct dataset *dataset, int64_t index, struct image_contents *contents);
