/* identity.h: the text that must be the same on all ranks of a run. */
#pragma once

#include "session/session.h"

/* One fact a line: version, settings, images (after data_identify), classes, network. */
void identity_text(const struct session *session, struct text *out);
