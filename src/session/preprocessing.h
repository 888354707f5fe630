/* preprocessing.h: lets the device decode, cache and preprocess the images of batches, as far as it can. */
#pragma once

#include "session/session.h"

/* Opens the session's gpu_preprocessing and decoding, if they are used; loaders opened from now on use them.
 * `keeps`: images are used more than once, and are cached on the device according to loader.cache. NO_DEVICE
 * if memory does not suffice. */
enum status preprocessing_open(struct session *session, bool keeps);
