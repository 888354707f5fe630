/* session_store.h: the store of a session's network. */
#pragma once

#include "compile/ir/program.h"
#include "exec/store.h"
#include "session/session.h"

/* Without training: no optimizer state and no averages. */
struct store_options session_store_options(const struct session *session, bool training);

/* For training, initialised. */
enum status session_store_open(const struct session *session, struct store *store);

/* The weights of `model.weights`, from which a run starts; OK where there are none. `store` NULL: whether
 * they could be loaded. */
enum status session_store_weights(const struct session *session, struct store *store);

/* Initialises convolutions with init=whiten (whiten.h); nothing without training images. */
enum status session_store_whiten(const struct session *session, struct store *store);

/* Distributes the parameters that each stage of a pipeline updates to all stages. `program`: a training step.
 * Called by all ranks after the same step; no effect without stages. */
enum status session_store_share(const struct session *session, const struct program *program,
                                struct store *store);
