/* preprocessing.h: lets the device decode, cache and preprocess the images of batches, as far as it can. */
#pragma once

#include "session/session.h"

/* Gives the session its gpu_preprocessing and decoding, where they are wanted; loaders opened from now on are
 * for them. `keeps`: images are looked at more than once, and lie on the device if loader.cache says so.
 * NO_DEVICE when memory does not suffice. */
enum status preprocessing_open(struct session *session, bool keeps);
