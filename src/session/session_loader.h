/* session_loader.h: loaders of a session's images. */
#pragma once

#include "session/session.h"

/* The number of threads that read images: loader.workers, or one for every processor, divided among the ranks
 * of this host: decoding and computing alternate. */
int session_workers(const struct session *session);

/* Options for reading images that belong to no data set of the session. */
static inline struct image_options session_image_options(const struct session *session)
{
    return (struct image_options){session->data.channels,
                                  session->settings->data.orientation == ORIENTATION_IGNORE,
                                  session->data.bands};
}

/* The targets that training steps have with a class for every pixel. */
struct mask_targets session_mask_targets(const struct session *session);

/* Over images of the session's data: of an evaluation, in file order, in these views; NULL: of training.
 * Images that cannot be used are added to data.bad. Batches of a linear probe have features. */
enum status session_loader_open(const struct session *session, const struct images *images,
                                const struct loader_views *views, struct loader **loader);

/* Over images of the session's data, for computing features (probe.h): in file order, each preprocessed as in
 * training or validation, to which it belongs. */
enum status session_loader_open_features(const struct session *session, const struct images *images,
                                         struct loader **loader);

/* Over other images, which are preprocessed as in an evaluation, in their order and in these views. Those
 * that cannot be used are reported as struct loader_options says. `*loader` is NULL, or one that was opened
 * here for the same session, data set and views, which then has other images: it goes on, or is replaced.
 * `in_memory`: no image is a file. */
enum status session_loader_open_list(const struct session *session, struct dataset *dataset, bool in_memory,
                                     const struct loader_views *views,
                                     void (*bad_image)(void *context, int64_t index, const char *why),
                                     void *context, struct loader **loader);

/* A loader of all training images, in the size that `images` has, on every rank, as fp32 numbers in host
 * memory, in small batches, which reports no bad images. */
enum status session_loader_open_numbers(const struct session *session, const struct images *images,
                                        struct loader **loader);

/* A loader of training images for timing, independent of loader.workers, which reports no bad images; for
 * decoding on the device. */
enum status session_loader_open_measured(const struct session *session, struct loader **loader);
