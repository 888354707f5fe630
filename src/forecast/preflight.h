/* preflight.h: what the network between hosts, as it was measured, is expected to cost a step. */
#pragma once

#include "session/session.h"

/* Says it, and a setting that helps where that is much, on the first of ranks that exchange by TCP. The
 * forecast is that of `amptrain plan --hosts N --link RATE`. */
void preflight_say(const struct session *session);
