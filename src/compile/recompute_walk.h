/* recompute_walk.h: which activations are made again where, worked out for one choice after another.
 *
 * Choices that are compared differ in one activation or two, and what is made again then differs before few
 * instructions. So one choice is settled, and of another only those instructions are walked over. For this
 * folder only. */
#ifndef COMPILE_RECOMPUTE_WALK_H
#define COMPILE_RECOMPUTE_WALK_H

#include "compile/recompute.h"

/* A moment of the step: what is made again before instruction i, in order, and then that itself. */
#define MOMENT_ITSELF INT32_MAX
static inline int64_t moment_of(int i, int turn)
{
    return i * ((int64_t)1 << 32) + turn;
}

/* Numbers whose room is kept for the next ones. */
struct numbers {
    int64_t *at;
    int count, room;
};
void numbers_add(struct numbers *numbers, int64_t number);

/* Lists by number: those of k are items[first[k]] to items[first[k + 1]], in the order in which they came. */
struct lists {
    int *first, *items;
};
struct listed {
    int list, item;
};
struct lists lists_make(const struct listed *listed, int count, int list_count);
void lists_free(struct lists *lists);

/* What is made again before an instruction, where that is not what it was: agains.at[first] and those
 * behind. */
struct rewalked {
    int at, first, count;
};

struct walk {
    const struct program *program;
    struct remade remade;            /* who makes what, and who wants it */
    struct lists readers;            /* by value: backward instructions that read it, if it has a producer */
    struct lists users;              /* by value: producers that read it, to make something again */

    /* The settled choice. Behind the last instruction comes one more, without any. */
    enum remake *settled;            /* by instruction */
    struct numbers *agains;          /* by instruction: the producers that are called again before it */
    struct numbers *made;            /* by producer: the moments at which it is called again */
    int *kept;                       /* by value: the instruction from which on it stays; all along: -1 */

    /* The choice under way, and where it differs. */
    enum remake *remake;
    struct numbers set;              /* instructions for which it may be another */
    bool *is_set;
    struct rewalked *changes;        /* in order */
    int change_count, change_room;
    struct numbers agains_now;       /* of the changes, one behind another */
    struct numbers touched;          /* producers that are called at other moments, or chosen otherwise */
    struct numbers *made_now;        /* by producer, if it is touched */
    int *kept_now;                   /* by value, if `kept_round` is this round */
    int *kept_round, *touched_round, *change_round;
    int *change_of;                  /* by instruction, if `change_round` is this round: its change */
    int round;
    int *called_turn, turn;          /* by value: made again before the instruction at hand, if this turn */
    struct numbers next;             /* a heap of instructions still to be looked at */
    int64_t work;                    /* calls looked at so far */
};

/* The choice is to keep everything. */
struct walk *walk_open(const struct program *program);
/* Whether an instruction is a producer: what others do is not chosen. */
bool walk_has(const struct walk *walk, int i);
void walk_set(struct walk *walk, int i, enum remake remake);
void walk_play(struct walk *walk);
void walk_settle(struct walk *walk);   /* what was played last */
void walk_close(struct walk *walk);

/* When a producer is called again, as was played last. */
const struct numbers *walk_made(const struct walk *walk, int producer);

#endif
