/* checkpoint.h: the complete state of a run in one safetensors file with checksums.
 *
 * Tensors: parameters and statistics under their own names, averages as "average/NAME", optimizer state as
 * "optimizer/SLOT/NAME". Metadata: format and version, position, optimizer and loss-scale state, class names
 * and the resolved configuration (escaped by text_escape), the network layer by layer, and the autotuner's
 * choices. */
#pragma once

#include "conf/settings.h"
#include "exec/store.h"
#include "session/position.h"
#include "format/safetensors.h"

#define CHECKPOINT_LAST "checkpoint-last.safetensors"
#define CHECKPOINT_PREVIOUS "checkpoint-previous.safetensors"
#define CHECKPOINT_BEST "checkpoint-best.safetensors"
#define CHECKPOINT_UNUSABLE "checkpoint-unusable.safetensors"
#define CHECKPOINT_VERSION 1
#define CHECKPOINT_AVERAGE "average/"
#define CHECKPOINT_OPTIMIZER "optimizer/"

/* The state that a checkpoint saves. */
struct checkpoint_source {
    const struct store *store;
    const struct optimizer *optimizer;
    const struct settings *settings;
    const char *file;            /* the configuration's path, from which paths begin; NULL: none */
    const struct graph *graph;   /* that is trained, not fused; NULL: not told */
    char *const *class_names;
    int classes;
    int64_t train_images, val_images;
    uint32_t train_checksum, val_checksum;   /* dataset_checksum; 0 where there is no such data set */
    int h, w, channels;          /* of evaluation images */
    const char *algorithms;      /* the autotuner's choices as text; NULL: none */
    int threads;                 /* that compute; 0 where results do not depend on them */
};

/* Writes FOLDER/checkpoint-last: a temporary file, synced and renamed; what was last becomes
 * checkpoint-previous. Whatever fails, a good checkpoint stays under one of the two names. `also`: other
 * names that it gets, ended by NULL; NULL: none. It has those before it is the last one: a run that dies
 * in between comes this way again when it is resumed. That one cannot be given is said, and no failure. */
enum status checkpoint_save(const struct checkpoint_source *source, const struct position *position,
                            const struct directory *folder, const char *const *also);

/* Opens a checkpoint and verifies every byte of it. */
bool checkpoint_open(const struct directory *in, const char *name, struct safetensors *file,
                     struct reason *reason);

/* The newest good checkpoint of a folder: last, or else previous, and then says so. A last one that cannot
 * be used gets the name CHECKPOINT_UNUSABLE, so that it never takes the good one's place. */
enum status checkpoint_open_newest(const struct directory *folder, struct safetensors *file);

/* Whether a folder holds a checkpoint, good or bad. */
bool checkpoint_exists(const struct directory *folder);

/* How many checkpoints a run had written when it wrote this one, by which the newer of two is told; 0: the
 * file does not say, -1: it cannot be read. */
int64_t checkpoint_serial(const struct directory *in, const char *name);

/* The same of an open one; false: what it says is no such number. */
bool checkpoint_read_serial(const struct safetensors *file, int64_t *serial);

/* That the tensors are those of this store's network and optimizer; BAD_CHECKPOINT names the first
 * that is not. */
enum status checkpoint_match(const struct safetensors *file, const struct store *store,
                             const struct optimizer *optimizer);

/* The configuration that the run had, every value as it came to be; settings_free is the caller's. */
enum status checkpoint_settings(const struct safetensors *file, struct settings *then);

/* For train.batch=auto: the number that the checkpoint's run has, and the memory that it was found for. */
void checkpoint_recall_batch(const struct safetensors *file, struct settings *now);

/* For parallel.microbatches=auto: the number that the checkpoint's run has. */
void checkpoint_recall_micro_batches(const struct safetensors *file, struct settings *now);

/* For run.threads=auto: as many as the checkpoint's run has, up to `most`. */
void checkpoint_recall_threads(const struct safetensors *file, int most, struct settings *now);

/* That the run was configured as it is now, except for what may change; USAGE names every difference. */
enum status checkpoint_match_settings(const struct safetensors *file, const struct settings *now);

/* That the network is the same, layer by layer, whatever its file is called; USAGE names the first layer that
 * is not. */
enum status checkpoint_match_graph(const struct safetensors *file, const struct graph *graph);

/* That it learned from the same images of the same classes, wherever they lie; BAD_DATA. */
enum status checkpoint_match_data(const struct safetensors *file, const struct checkpoint_source *now);

/* Whether what makes a checkpoint the best one is the same. */
enum status checkpoint_match_best(const struct safetensors *file, const struct settings *now, bool *same);

/* Fills the store (copies included) and the position. */
enum status checkpoint_restore(const struct safetensors *file, struct store *store,
                               const struct optimizer *optimizer, struct position *position);

/* The class names, for the caller to free with text_list_free; NULL and 0 when the file has none, or
 * more than any data set may have. */
void checkpoint_class_names(const struct safetensors *file, char ***names, int *count);

/* The autotuner's choices on the device; NULL: none. */
const char *checkpoint_algorithms(const struct safetensors *file);

/* How many threads computed; 0: the file does not say, or results do not depend on them. */
int checkpoint_threads(const struct safetensors *file);

/* The size of evaluation images, at most 65536x65536xIMAGE_CHANNELS_MAX; zeros when the file does not say.
 * False and why when it says something else. */
bool checkpoint_input(const struct safetensors *file, int *h, int *w, int *channels, struct reason *reason);
