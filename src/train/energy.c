#include "train/energy.h"

#include <math.h>

#include "base/clock.h"

void energy_begin(const struct session *session, struct energy *energy)
{
    *energy = (struct energy){.read = session_joules(session), .read_at = clock_seconds()};
}

enum status energy_count(const struct session *session, bool last, struct energy *energy)
{
    bool due = last || clock_seconds() - energy->read_at >= 1;
    TRY(comm_broadcast(session->comm, 0, &due, sizeof due));
    energy->latest = NAN;
    if (!due) return OK;
    double now = session_joules(session), joules = now - energy->read;
    TRY(comm_sum(session->comm, &joules, 1));
    energy->read = now;
    energy->read_at = clock_seconds();
    energy->latest = joules;
    energy->joules += joules;
    return OK;
}
