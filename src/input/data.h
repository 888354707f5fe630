/* data.h: the images that a command works on, by split, with their classes and their augmentation. */
#pragma once

#include "conf/settings.h"
#include "data/dataset/dataset_identity.h"
#include "data/loader/loader.h"
#include "input/bad_images.h"
#include "input/sampled_sizes.h"
#include "input/train_sizes.h"

/* The images of one split that a run uses. */
struct images {
    struct dataset *dataset;         /* NULL: there are none */
    int64_t *subset;                 /* indices in the dataset in file order; NULL: all */
    int64_t count;
    int h, w;                        /* of what the network gets */
    struct image_cache *cache, *mask_cache;      /* of the dataset's; NULL: none */
};

/* The index in the data set of an image of `images`. */
static inline int64_t images_index(const struct images *images, int64_t place)
{
    return images->subset ? images->subset[place] : place;
}

struct data {
    struct dataset opened[2];         /* by enum split */
    struct sampled sampled[2];        /* of train and val, by enum split */
    struct image_cache *caches[2];    /* of the opened data sets, NULL: none (input/caching.h) */
    struct image_cache *mask_caches[2];
    struct dataset_identity *identities[2];   /* of the same; NULL until data_identify, or not opened */
    struct images train, val;
    struct bad_images *bad;           /* unusable images that loaders found */
    struct augment augment;
    struct train_sizes sizes;         /* of training images by epoch; train.h and w are the largest */
    struct mix_settings mix;
    int channels, classes;
    struct image_bands bands;         /* of image files, with data.channels and data.bands */
    bool deep;                        /* images have more than 8 bits a sample, as some of them show; they are
                                       * preprocessed on the host */
    char **class_names;               /* [classes]; the data's, or numbers */
    double *class_weights;            /* [classes], in the training loss; NULL: all 1 */
    enum target_kind target;          /* what is learned: with TARGET_NUMBER there is one class, the value */
    struct mask_classes *masks;       /* the classes of masks, with TARGET_MASK; NULL: none, or unknown */
    double value_mean, value_std;     /* of numbers, by which they are normalised; else 0 and 1 */
    double *thresholds;               /* [classes] probabilities from which on labels are predicted, chosen in
                                       * the last evaluation; NULL: 0.5 each */
};

/* The data that a command needs. */
enum data_wanted {
    DATA_NONE = 0,
    DATA_TRAIN = 1,
    DATA_VAL = 2,
    DATA_OPTIONAL = 4,   /* missing data are no error: sizes then follow the model file */
    DATA_ALONE = 8,      /* works without a network: images keep their channels, those of folders are RGB */
};

/* The description in a weights file: its network, and replacements for data that are not opened. */
struct data_hint {
    int h, w, channels;               /* of evaluation images; 0: not known */
    char *const *class_names;
    int classes;
    const double *thresholds;         /* as in struct data */
    const struct mask_classes *masks; /* likewise; NULL: unknown */
    const char *arch, *network;       /* its name and text (graph/graph_text.h); NULL: the model file's */
};

struct data_options {
    const char *file;                 /* the configuration's path, to which paths are relative; NULL: none */
    unsigned wanted;                  /* bits of enum data_wanted */
    const struct data_hint *hint;     /* NULL: none */
};

/* Opens the data sets, divides and sizes their images. Defaults that follow from the data are noted in
 * `settings` (settings_derive). The struct must stay where it is. Refused with key and place, USAGE or
 * BAD_DATA. */
enum status data_open(struct settings *settings, const struct data_options *options, struct data *data);
/* The format that data.format names, USAGE otherwise. */
enum status data_format(const struct settings *settings, const struct format **format);

/* True if data.val_fraction or data.fold holds out some of the training images. */
bool data_holds_out(const struct settings *settings);

/* The use of the images of data.train, each [count]: held out for validation, or trained on: of the
 * others data.limit, the first ones with data.shuffle=no. Refused with key and place, USAGE. */
struct data_selection {
    bool *held, *trained;
    int64_t held_count, trained_count;
};
enum status data_select(const struct dataset *dataset, const struct settings *settings,
                        struct data_selection *selection);
void data_selection_free(struct data_selection *selection);

/* True if data.class_weights has the loss weigh classes. */
bool data_weighs_classes(const struct settings *settings);

/* Makes the identities of the opened data sets, which takes a moment; once. */
void data_identify(struct data *data);

void data_close(struct data *data);           /* accepts a zeroed or half-built struct */

/* Numbers as class names, if the classes are unknown: as many as the network has. */
void data_number_classes(struct data *data, int classes);
