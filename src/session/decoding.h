/* decoding.h: who decodes the JPEG files that are trained on, as loader.decode says: the loader's workers,
 * the device's engines, or both in a fixed division, which a checkpoint keeps. */
#ifndef SESSION_DECODING_H
#define SESSION_DECODING_H

#include "session/setup.h"

/* Refuses loader.decode=gpu where it cannot be; says why auto does without. */
enum status decoding_check(const struct setup *setup);

/* What it takes of the device's memory, known before any is taken; 0: workers decode. Images that are
 * decoded by the device are not kept by the host. */
int64_t decoding_bytes(const struct setup *setup);

/* Readies the device and settles the division, which may take two seconds where nobody did it before. After a
 * run's choices were read from its checkpoint, and before a loader is opened. */
enum status decoding_open(struct setup *setup);
void decoding_close(struct setup *setup);          /* accepts one that has none */

/* What a loader of training images is told. */
struct loader_decoder decoding_of(const struct setup *setup);

#endif
