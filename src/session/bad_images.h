/* bad_images.h: the unusable images of a run, each reported once and listed in the run folder. */
#pragma once

#include <stdbool.h>

#include "base/directory.h"
#include "data/dataset.h"

struct bad_images;

/* Of two data sets, by enum split, which outlive it. `warn`: each is worth a warning; otherwise it ends the
 * run, and whoever does that says why. */
struct bad_images *bad_images_new(const struct dataset datasets[2], bool warn);
void bad_images_free(struct bad_images *bad);              /* accepts NULL */

/* From now on they are listed in a file of a directory that outlives this, made when there is one to list:
 * lines of which data (train, val), index there, path, reason, with tabs between them. Those that the file
 * lists already, from before a run was resumed, are neither listed nor reported again. */
void bad_images_list(struct bad_images *bad, const struct directory *in, const char *name);

/* Several ranks tell each other: the lines of images that this one met since the last call, or that its file
 * had, for the caller to free, or NULL; and lines of others, whose images are listed and not said again. */
void bad_images_share(struct bad_images *bad);             /* from now on lines are kept to be taken */
bool bad_images_wait(struct bad_images *bad);              /* some do */
char *bad_images_take(struct bad_images *bad);
void bad_images_add(struct bad_images *bad, const char *lines);

/* Of one of the data sets: the context to report its images with, from any thread. */
struct bad_source;
struct bad_source *bad_images_source(struct bad_images *bad, const struct dataset *dataset);
void bad_images_report(void *source, int64_t index, const char *why);
