/* sum_tree.h: the order in which the results of a step's micro-batches are added.
 *
 * With T = 2^k q micro-batches, q odd, groups of q are summed sequentially, and the sums of the groups in a
 * balanced binary tree. A rank with T / R consecutive micro-batches, where R divides 2^k, computes a subtree,
 * which equals the tree of T / R; the ranks' sums then form the tree of R. So bits depend on T, not on R. */
#pragma once

#include <stdbool.h>

/* Maximum number of partial sums alive at once. */
#define SUM_TREE_DEPTH 33

/* The tree is walked with a stack of partial sums: micro-batch `i` of `count`, from 0 on, is pushed; then the
 * topmost two are replaced by their sum, sum_tree_joins() times. After the last one the stack holds the
 * sum. */
static inline int sum_tree_joins(int count, int i)
{
    int runs = count & -count, run = count / runs, in_run = i % run;
    int joins = in_run > 0;
    if (in_run + 1 == run)
        for (int runs_so_far = i / run + 1; runs_so_far % 2 == 0; runs_so_far /= 2) joins++;
    return joins;
}

/* True if `ranks` can share `count` micro-batches so that each has a subtree. */
static inline bool sum_tree_divides(int count, int ranks)
{
    return count == ranks || (count & -count) % ranks == 0;
}
