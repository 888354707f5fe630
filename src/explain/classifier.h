/* classifier.h: a network with its weights on a device, applied to images from files and memory, in batches
 * and in their order. */
#pragma once

#include "data/dataset/image_list.h"
#include "session/step.h"

/* The loader of a classifier, with its threads and its batches in host memory. It begins zeroed; what it was
 * first used for, session and step, it must be used for again. */
struct classifier_loader {
    struct loader *loader;
    struct dataset *dataset;     /* the list of images, in a run */
};
void classifier_loader_close(struct classifier_loader *kept);

/* Borrows what it works with. `step` is an evaluation of the session's network; the session has the names of
 * the classes (data.class_names) and the preprocessing. Open the session with the batch that
 * classifier_batch advises (train.batch). */
struct classifier {
    const struct session *session;
    const struct step *step;
    int64_t outputs;             /* of the step, of an image, in place of logits (layer_output.h); 0: these */
    struct classifier_loader *kept;      /* for the next run; NULL: each run has its own */
};

/* The batch for `count` images, of at most `most`: all batches are full, or nearly. */
int classifier_batch(int64_t count, int most);

/* The result for an image; pointers are valid until the callback returns. */
struct classified {
    enum status status;          /* OK; BAD_DATA: it cannot be used; FAILED: the logits are not finite */
    const char *problem;         /* why, without the image's name; NULL if OK */
    const float *logits;         /* [classes] if OK, or the step's outputs */
};

/* Reads the images on worker threads, runs the network on them, and calls `take` for each, in order. Ends
 * with the first failure of `take`, or of the device; an image's own problems are no failure. USAGE: the
 * network gives every pixel a class. */
enum status classifier_run(const struct classifier *classifier, const struct listed_image *images,
                           int64_t count,
                           enum status (*take)(void *context, int64_t image, const struct classified *what),
                           void *context);

/* A class and its probability. */
struct class_probability {
    int class;
    double probability;
};

/* The `count` most probable classes, from finite logits; the first of equal ones comes first. */
void classifier_top(const float *logits, int classes, int count, struct class_probability *top);
