/* bad_images.h: the unusable images of a run, each reported once and listed in the run folder. */
#pragma once

#include <stdbool.h>

#include "base/directory.h"
#include "data/dataset/dataset.h"

struct bad_images;
struct bad_source;

/* For two data sets, by enum split, which outlive it. `warn`: each of the first ones causes a warning;
 * otherwise the caller ends the run and reports the image. */
struct bad_images *bad_images_new(const struct dataset datasets[2], bool warn);
void bad_images_free(struct bad_images *bad);              /* accepts NULL */

/* Images of the training data that are held out, [count]: they are listed as validation images. */
void bad_images_hold_out(struct bad_images *bad, const bool *held, int64_t count);

/* From now on they are listed in a file of a directory that outlives this, created for the first one: lines
 * of which data (train, val), index there, path, reason, with tabs between them. Images that are already in
 * the file of a resumed run are neither listed nor reported again. */
void bad_images_list(struct bad_images *bad, const struct directory *in, const char *name);

/* How many are known, of all ranks as far as they have been exchanged, and those in that file. */
int64_t bad_images_count(struct bad_images *bad);

/* Exchange between ranks: the lines of images that this rank found since the last call, or that its file
 * contained, which the caller frees, or NULL; and the lines of other ranks, whose images are listed but not
 * reported again. */
void bad_images_share(struct bad_images *bad);             /* lines are kept from now on */
bool bad_images_pending(struct bad_images *bad);           /* there are some */
char *bad_images_collect(struct bad_images *bad);
void bad_images_add(struct bad_images *bad, const char *lines);

/* True if the image is known to be unusable. */
bool bad_images_known(const struct bad_source *source, int64_t index);

/* For one of the data sets: the context to report its images with, from any thread. */
struct bad_source *bad_images_source(struct bad_images *bad, const struct dataset *dataset);
void bad_images_report(void *source, int64_t index, const char *why);
