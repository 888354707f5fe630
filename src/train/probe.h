/* probe.h: a linear probe, which trains nothing but the last layers (train.freeze). Their input, the features
 * of all images, is computed once if nothing changes images from epoch to epoch; steps then read it. */
#pragma once

#include "exec/store.h"
#include "session/session.h"

/* Computes the session's features, if that is possible, which is reported; so is what prevents it where only
 * the last layers are trained. They have the bits that the frozen layers compute in an evaluation. If a stop
 * is requested meanwhile, the session remains without. The session's device is open, and the store has its
 * network's weights. */
enum status probe_open(struct session *session, struct store *store);
