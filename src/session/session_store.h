/* session_store.h: the store of a session's network. */
#pragma once

#include "exec/store.h"
#include "session/session.h"

struct store_options session_store_options(const struct session *session, bool training);

/* For training, initialised. */
enum status session_store_open(const struct session *session, struct store *store);

/* The weights of `model.weights`, from which a run starts; OK where there are none. */
enum status session_store_weights(const struct session *session, struct store *store);
