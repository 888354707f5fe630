/* verify_ranks.h: checks that the programs of all ranks, run together, do not deadlock. */
#pragma once

#include "compile/program.h"

/* programs[replicas * stages]: a replica's stages one after another. Played on their streams: with several,
 * both stages must have come to a message; with one, a message is put down until it is received. Every
 * message must be the one that is awaited, and every rank of a group must make the same collectives in the
 * same order. False: `reason` names ranks and instructions; of ranks that wait for each other, the ring. */
bool verify_ranks(const struct program *const *programs, int replicas, int stages, struct reason *reason);
