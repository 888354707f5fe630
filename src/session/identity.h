/* identity.h: what all ranks of a run must have alike, as text. */
#pragma once

#include "session/session.h"

/* One fact a line: version, settings, images, classes, network. */
void identity_text(const struct session *session, struct text *out);
