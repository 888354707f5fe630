/* decoding_division.h: determines the share of JPEG files that the device decodes, by measuring the speed of
 * the device and of the loader's workers. */
#pragma once

#include "session/session.h"

/* Opens session->decoding, where the device is to decode, and decides the division, which may take two
 * seconds where nobody did it before. After a run's choices were read from its checkpoint, and before a
 * loader is opened. */
enum status decoding_division_open(struct session *session);
