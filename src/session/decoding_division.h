/* decoding_division.h: determines the share of JPEG files that the device decodes, by measuring the speed of
 * the device and of the loader's workers. */
#pragma once

#include "session/session.h"

/* Opens session->decoding, if the device is to decode, and decides the division, which takes two seconds
 * unless it is stored. To be called after a run's choices were read from its checkpoint, and before a loader
 * is opened. */
enum status decoding_division_open(struct session *session);
