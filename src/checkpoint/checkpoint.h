/* checkpoint.h: the complete state of a run in one safetensors file with checksums.
 *
 * Tensors: parameters and statistics under their own names, averages as "average/NAME", optimizer state as
 * "optimizer/SLOT/NAME". Metadata: format and version, position, optimizer and loss-scale state, class names
 * and the resolved configuration (escaped by text_escape), the run's identity, the identities of the
 * data, the network layer by layer, and the autotuner's choices. */
#pragma once

#include "checkpoint/position.h"
#include "conf/settings.h"
#include "data/dataset/dataset_identity.h"
#include "exec/store.h"
#include "format/safetensors.h"

#define CHECKPOINT_LAST "checkpoint-last.safetensors"
#define CHECKPOINT_PREVIOUS "checkpoint-previous.safetensors"
#define CHECKPOINT_BEST "checkpoint-best.safetensors"
#define CHECKPOINT_UNUSABLE "checkpoint-unusable.safetensors"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_FORMAT "amptrain-checkpoint"   /* of the metadata's "format" */
#define CHECKPOINT_SIGNATURE SAFETENSORS_SIGNATURE ",\"format\":\"" CHECKPOINT_FORMAT "\"*"
#define CHECKPOINT_TRAIN_IDENTITY "identity.train"
#define CHECKPOINT_VAL_IDENTITY "identity.val"
#define CHECKPOINT_AVERAGE "average/"
#define CHECKPOINT_OPTIMIZER "optimizer/"

/* The identity of a run, which its checkpoints share: random, and the same when it is resumed. */
#define CHECKPOINT_RUN 33   /* 32 hexadecimal digits and the end */

/* The state that a checkpoint saves. */
struct checkpoint_source {
    const char *run;             /* its identity; NULL: none */
    const struct store *store;
    const struct optimizer *optimizer;
    const struct settings *settings;
    const char *file;            /* the configuration's path, to which paths are relative; NULL: none */
    const struct graph *graph;   /* that is trained, not fused; NULL: not stored */
    char *const *class_names;
    int classes;
    const double *thresholds;    /* [classes] of labels; NULL: none */
    const struct mask_classes *masks;    /* of pixels; NULL: none */
    const char *teacher;         /* the checksum of the teacher's weights; NULL: none, or not known */
    int64_t train_images, val_images;
    const struct dataset_identity *identities[2];   /* of the data sets, by enum split; NULL: there is none */
    int h, w, channels;          /* of evaluation images */
    const char *algorithms;      /* the autotuner's choices as text; NULL: none */
    int threads;                 /* compute threads; 0 if results do not depend on them */
};

/* Writes FOLDER/checkpoint-last: a temporary file, synced and renamed; the last one becomes
 * checkpoint-previous. Whatever fails, a valid checkpoint remains under one of the two names. `also`:
 * additional names, terminated by NULL; NULL: none. They are set before it becomes the last one, so that a
 * run that dies in between sets them again when it is resumed. Failing to set one is only a warning. FAILED,
 * with all files as they were: another process has meanwhile taken the folder (directory_check). */
enum status checkpoint_save(const struct checkpoint_source *source, const struct position *position,
                            const struct directory *folder, const char *const *also);

/* Saves in a thread, from a copy of the state in host memory, while training goes on. `folder` must stay
 * as it is, and nothing else be saved in it, until checkpoint_end, which waits for the result. NULL, and
 * nothing is written, if host memory does not suffice for the copy or there is no thread. */
struct checkpoint_writing;
struct checkpoint_writing *checkpoint_begin(const struct checkpoint_source *source,
                                            const struct position *position,
                                            const struct directory *folder, const char *const *also);
bool checkpoint_over(const struct checkpoint_writing *writing);   /* checkpoint_end would not wait */
enum status checkpoint_end(struct checkpoint_writing *writing);

/* Opens a checkpoint and verifies every byte of it. */
bool checkpoint_open(const struct directory *in, const char *name, struct safetensors *file,
                     struct reason *reason);

/* The newest valid checkpoint of a folder: last, or else previous, which is reported. A last one that cannot
 * be used is renamed to CHECKPOINT_UNUSABLE, so that it never replaces the valid one. */
enum status checkpoint_open_newest(const struct directory *folder, struct safetensors *file);

/* True if a folder contains a checkpoint, valid or not. */
bool checkpoint_exists(const struct directory *folder);

/* The serial number of the checkpoint in its run, by which the newer of two is found; 0: unknown, -1: it
 * cannot be read. */
int64_t checkpoint_serial(const struct directory *in, const char *name);

/* Reads the serial number of an open checkpoint; false: it is invalid. */
bool checkpoint_read_serial(const struct safetensors *file, int64_t *serial);

/* A new run's identity. */
enum status checkpoint_new_run(char run[CHECKPOINT_RUN]);

/* The identity of the run that wrote it; NULL: older versions had none. */
const char *checkpoint_run(const struct safetensors *file);

/* Checks that no checkpoint of the folder is known to be of another run than `file`; USAGE names it. Warns if
 * the best one is of an epoch after `file`, from which the run is to go on. */
enum status checkpoint_match_run(const struct safetensors *file, const struct directory *folder);

/* Checks that the tensors are those of this store's network and optimizer; BAD_CHECKPOINT names the first
 * mismatch. */
enum status checkpoint_match(const struct safetensors *file, const struct store *store,
                             const struct optimizer *optimizer);

/* The run's configuration as an INI file, which the caller frees; NULL: it has none. */
char *checkpoint_config(const struct safetensors *file);

/* ... with every value as resolved; the caller frees it with settings_free. */
enum status checkpoint_settings(const struct safetensors *file, struct settings *then);

/* For train.batch=auto: the number that the checkpoint's run has, and the memory that it was found for. */
void checkpoint_recall_batch(const struct safetensors *file, struct settings *now);

/* For parallel.microbatches=auto: the number that the checkpoint's run has. */
void checkpoint_recall_micro_batches(const struct safetensors *file, struct settings *now);

/* For run.threads=auto: the number that the checkpoint's run has, up to `most`. */
void checkpoint_recall_threads(const struct safetensors *file, int most, struct settings *now);

/* Checks that the run's configuration equals the current one, except for what may change; USAGE names every
 * difference. */
enum status checkpoint_match_settings(const struct safetensors *file, const struct settings *now);

/* Checks that the network is the same (checkpoint/network_identity.h), whatever the name of its file; USAGE
 * names the first differences. */
enum status checkpoint_match_network(const struct safetensors *file, const struct checkpoint_source *now);

/* Checks that it was trained on the same images and classes, wherever they are stored; BAD_DATA names the
 * first differences. */
enum status checkpoint_match_data(const struct safetensors *file, const struct checkpoint_source *now);

/* The identity of one of the data sets that it was trained on, for the caller to free; *known: there is one.
 * BAD_CHECKPOINT if it is damaged. Its class names are not set. */
enum status checkpoint_identity(const struct safetensors *file, enum split split,
                                struct dataset_identity *identity, bool *known);

/* True if it is of an older version, without identities, and holds out or selects images: other ones than
 * this version would. */
bool checkpoint_old_split(const struct safetensors *file, const struct settings *then);

/* Sets *same if the criterion for the best checkpoint is the same. */
enum status checkpoint_match_best(const struct safetensors *file, const struct settings *now, bool *same);

/* Fills the store (copies included) and the position. */
enum status checkpoint_restore(const struct safetensors *file, struct store *store,
                               const struct optimizer *optimizer, struct position *position);

/* The class names, for the caller to free with text_list_free; NULL and 0 when the file has none, or
 * more than any data set may have. */
void checkpoint_class_names(const struct safetensors *file, char ***names, int *count);

/* The meanings of masks, whose classes have these names: false if it has none. */
bool checkpoint_masks(const struct safetensors *file, char *const *names, int count,
                      struct mask_classes *masks);

/* The thresholds of `count` labels, which the caller frees; NULL: it has none, or of another number. */
double *checkpoint_thresholds(const struct safetensors *file, int count);

/* The autotuner's choices on the device; NULL: none. */
const char *checkpoint_algorithms(const struct safetensors *file);

/* The number of compute threads; 0: unknown, or results do not depend on it. */
int checkpoint_threads(const struct safetensors *file);

/* The size of evaluation images, at most 65536x65536xIMAGE_CHANNELS_MAX; zeros if the file has none. False,
 * with a reason, if it is invalid. */
bool checkpoint_input(const struct safetensors *file, int *h, int *w, int *channels, struct reason *reason);
