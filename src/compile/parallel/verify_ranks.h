/* verify_ranks.h: checks that the programs of all ranks, run together, do not deadlock. */
#pragma once

#include "compile/ir/program.h"

/* programs[replicas * stages]: a replica's stages one after another. Simulated on their streams: with
 * several, both stages must reach a message; with one, a message is buffered until it is received. Every
 * message must match its receive, and every rank of a group must make the same collectives in the same order.
 * False: `reason` names ranks and instructions; for a deadlock, the cycle. */
bool verify_ranks(const struct program *const *programs, int replicas, int stages, struct reason *reason);
