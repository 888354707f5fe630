/* group.h: a subset of a run's ranks, which exchange among themselves in a training step. */
#pragma once

#include "comm/comm.h"

/* Ranks first, first + step, ...: `count` of them, including this one. */
struct group_ranks {
    int first, step, count;
};

/* Its exchanges are messages of the comm, which must outlive it. Of a comm's other functions it only has
 * watch and alive, of all its ranks, and broadcast, which all of them call at the same time, each in its
 * group. NULL gives NULL. */
struct comm *group_open(struct comm *comm, const struct group_ranks *ranks);
void group_close(struct comm *group);        /* accepts NULL */
