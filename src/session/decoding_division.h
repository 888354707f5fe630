/* decoding_division.h: how many of the JPEG files that are trained on the device decodes, and how many the
 * loader's workers, by what both do in a second. */
#pragma once

#include "session/session.h"

/* Opens session->decoding, where the device is to decode, and decides the division, which may take two
 * seconds where nobody did it before. After a run's choices were read from its checkpoint, and before a
 * loader is opened. */
enum status decoding_division_open(struct session *session);
