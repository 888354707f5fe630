/* session_store.h: the store of a session's network. */
#ifndef SESSION_SESSION_STORE_H
#define SESSION_SESSION_STORE_H

#include "exec/store.h"
#include "session/session.h"

struct store_options session_store_options(const struct session *session, bool training);

/* Initialised, with `model.weights` loaded; `training` with all that updates need. */
enum status session_store_open(const struct session *session, bool training, struct store *store);

#endif
