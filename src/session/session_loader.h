/* session_loader.h: loaders of a session's images. */
#pragma once

#include "session/session.h"

enum loader_use { LOAD_TRAINING, LOAD_EVALUATION, LOAD_MIRRORED };

/* Over images of the session's data; evaluation is in file order, mirrored with each batch a second time
 * (struct loader_options). Images that cannot be used are added to data.bad. */
enum status session_loader_open(const struct session *session, const struct images *images,
                                enum loader_use use, struct loader **loader);

/* Of training images as fp32 numbers in host memory, all of them whatever the ranks, in small batches, which
 * reports no bad ones. */
enum status session_loader_open_numbers(const struct session *session, struct loader **loader);

/* Of training images for timing, whatever loader.workers says, which reports no bad ones. Where the device
 * decodes. */
enum status session_loader_open_measured(const struct session *session, struct loader **loader);
