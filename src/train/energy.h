/* energy.h: the energy that the devices of a run take, as far as they count it. */
#pragma once

#include "session/session.h"

struct energy {
    double read, read_at;        /* session_joules at the last count (NAN: not begun), and clock_seconds */
    double joules;               /* counted, of all ranks; NAN: unknown */
    double latest;               /* of these, those counted last; NAN: none, or unknown */
};

/* Counting begins. */
void energy_begin(const struct session *session, struct energy *energy);

/* Called by all ranks. Counters advance slowly, and reading them takes milliseconds: less than a second after
 * the last count nothing is counted, unless this is the `last` call. */
enum status energy_count(const struct session *session, bool last, struct energy *energy);
