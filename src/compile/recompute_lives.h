/* recompute_lives.h: from when to when the tensors of a step are alive as a choice has them made again.
 *
 * Tensors that may come to lie over one another, in place, are looked at together; those sets are small, and
 * only those are looked at anew in which something is made at another moment. For this folder only. */
#ifndef COMPILE_RECOMPUTE_LIVES_H
#define COMPILE_RECOMPUTE_LIVES_H

#include "compile/recompute_walk.h"

/* Bytes that are taken from one moment to another, both included. */
struct life {
    int64_t first, last;
    int64_t bytes;
};
struct life_list {
    struct life *at;
    int count, room;
};

struct lives_in_place;
struct lives_tensor;

struct lives {
    const struct walk *walk;
    int set_count;
    int *set_of;                     /* by value; -1: not in the arena */
    struct lists values;             /* by set */
    struct lists keepers;            /* by value: producers that make their output again from it, as saved */
    struct lives_in_place *pairs;
    struct lists pairs_of;           /* by set: from `pairs` */
    int64_t *first, *last;           /* by value: by those that read it itself, whatever is made again */

    /* Lives that no choice changes, in bytes: what begins and what ends with an instruction. */
    int64_t *begins, *ends;

    struct numbers changing;         /* sets whose lives a choice may change */
    struct life_list *settled;       /* by set */
    struct life_list *now;           /* by set, if it is among the touched */
    struct numbers touched;
    int *touched_round;

    struct lives_tensor *tensors;    /* of the set at hand */
    int tensor_count, tensor_room;
    int *tensor_first, *tensor_end;  /* by value: it itself and what was made of it again, by time */
    struct lives_in_place *joints;   /* of the set at hand, by time */
    int joint_count, joint_room;
    int64_t work;                    /* tensors looked at so far */
};

struct lives lives_open(const struct walk *walk);
void lives_play(struct lives *lives);     /* as the walk was played last */
void lives_settle(struct lives *lives);   /* that */
void lives_close(struct lives *lives);

#endif
