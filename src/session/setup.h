/* setup.h: settings become the things that a run is made of: images, network, numbers, device. */
#ifndef SESSION_SETUP_H
#define SESSION_SETUP_H

#include "amp/precision.h"
#include "conf/settings.h"
#include "data/loader.h"
#include "graph/model.h"
#include "compile/program.h"
#include "exec/store.h"
#include "exec/device_allocators.h"
#include "session/bad_images.h"
#include "session/schedule.h"

/* Images of one split as a run uses them. */
struct images {
    struct dataset *dataset;         /* NULL: there are none */
    int64_t *subset;                 /* indices in the dataset in file order; NULL: all */
    int64_t count;
    int h, w;                        /* of what the network gets */
    struct image_cache *cache;       /* of the dataset's; NULL: none */
};

/* What a command wants of the data. */
enum setup_data {
    DATA_NONE = 0,
    DATA_TRAIN = 1,
    DATA_VAL = 2,
    DATA_OPTIONAL = 4,   /* what is not there is not missed: sizes then follow the model file */
};

/* What stands in for data that are not opened: from a checkpoint's metadata. */
struct setup_hint {
    int h, w, channels;               /* of evaluation images */
    int val_resize;                   /* what evaluation resized to; -1: not known */
    char *const *class_names;
    int classes;
};

struct setup {
    struct settings *settings;
    const char *file;                 /* the configuration's path; NULL: none */
    struct dataset opened[2];         /* by enum split */
    struct image_cache *caches[2];    /* of the opened data sets, NULL: none */
    struct images train, val;
    struct bad_images *bad;           /* of them, those that loaders cannot use */
    struct augment augment;
    struct mix_settings mix;
    const struct setup_hint *hint;    /* NULL: none */
    int channels, classes;
    char **class_names;               /* [classes]; the data's, or numbers */
    struct graph graph;               /* on training images, as the model file has it */
    struct graph val_graph;           /* for evaluation images: its own when their size differs */
    bool own_val_graph;
    char *graph_text;                 /* of the network (graph/graph_text.h) */
    const struct precision_row *precision;
    struct scaler_settings scaling;
    const struct optimizer *optimizer;
    struct optimizer_settings optimizer_settings;
    struct schedule schedule;
    int batch, micro_batches;
    int64_t steps_per_epoch;
    struct device *device;            /* NULL until setup_device */
    struct cache *cache;              /* of the device's memory; NULL: it has none */
    struct pinned *pinned;            /* of host memory for copies */
    struct decoding *decoding;        /* by the device; NULL: workers decode all images */
    struct gpu_preprocessing *gpu_preprocessing; /* of images, on the device; NULL: loaders do it */
    int64_t left;                     /* the device turned out to have no more than this for the run;
                                       * 0: not known */
};

/* Opens data, builds the network and works out every number; touches no device, unless train.batch follows
 * from what a GPU has free. Defaults that
 * follow from other keys are noted in `settings` (settings_derive), which must outlive the setup.
 * `what`: bits of enum setup_data; `hint` may be NULL. Refused with key and place, USAGE or BAD_DATA. */
enum status setup_open(struct settings *settings, const char *file, unsigned what,
                       const struct setup_hint *hint, struct setup *setup);
void setup_close(struct setup *setup);        /* accepts a zeroed or half-built struct */

enum status setup_device(struct setup *setup);      /* nothing if it is open */
/* The kind that steps are made for, and its streams: the open device's, or the one that run.device names, if
 * this build has code for it. */
enum device_kind setup_device_kind(const struct setup *setup);
int setup_streams(const struct setup *setup);
bool setup_asks_cuda(const struct setup *setup);     /* run.device names a GPU: "cuda", "cuda:1" */

/* The most device memory that the run may take: memory.limit, or less where the device has less;
 * 0: no limit. */
int64_t setup_limit(const struct setup *setup);

/* For what looks at images more than once: has the loaders opened from now on keep them, as loader.cache
 * says. */
void setup_open_caches(struct setup *setup);

/* What images kept on the device for later epochs, as loader.cache says, take of its memory; 0: none are. */
int64_t setup_device_cache(const struct setup *setup);

/* The most that decoded images may take of the host's memory, as loader.cache_limit says. */
size_t setup_cache_limit(const struct setup *setup);

/* Batches that loaders make ready ahead. */
int setup_prefetch(const struct setup *setup);

/* Processors that this process may use. */
int setup_processors(void);

/* A loader of training images for timing, whatever loader.workers says, which reports no bad ones. Where a
 * device decodes. */
enum status setup_measured_loader(const struct setup *setup, struct loader **loader);

/* A loader over images; evaluation is in file order. What cannot be used is added to setup->bad. */
enum status setup_loader(const struct setup *setup, const struct images *images, bool training,
                         struct loader **loader);

/* A store for the network, initialised, with `model.weights` loaded; `training` with all that
 * updates need. */
enum status setup_store(const struct setup *setup, bool training, struct store *store);
struct store_options setup_store_options(const struct setup *setup, bool training);

/* Parts of setup_open, one file each. */
enum status setup_images(struct setup *setup, unsigned what);
enum status setup_network(struct setup *setup);
enum status setup_numbers(struct setup *setup);
enum status setup_check_cache(const struct setup *setup);

/* Reports what is wrong with an option's value: "FILE:LINE: section.key: ...", USAGE. */
enum status setup_refuse(const struct setup *setup, const char *section, const char *key,
                         const char *format, ...) __attribute__((format(printf, 4, 5)));

#endif
