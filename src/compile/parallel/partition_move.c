/* partition_move.c: local search. partition_search finds the division of least time by a formula, in which
 * all waiting costs the same; here stages wait for each other in the order of the schedule's blocks. */
#include "compile/parallel/partition_move.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

#define LESS 0.999           /* a move must reduce the time to less than this fraction */

struct moving {
    const struct partition_problem *problem;
    struct partition_sums sums;
    struct partition_chunk *chunks, *tried;
    double seconds;          /* of `chunks` */
};

/* Sets `tried` to `chunks` with the boundaries before chunks [from, to) moved back by `by` blocks. False if a
 * chunk would have no blocks or end where none may. */
static bool shift(const struct moving *m, int from, int to, int by)
{
    int count = partition_chunks(m->problem);
    memcpy(m->tried, m->chunks, (size_t)count * sizeof *m->tried);
    for (int s = from; s < to; s++) {
        m->tried[s - 1].end = m->tried[s].first += by;
        if (m->tried[s].first < 1 || m->tried[s].first >= m->problem->count) return false;
        if (!partition_may_end(m->problem, m->tried[s].first)) return false;
    }
    return m->tried[from - 1].first < m->tried[from - 1].end && m->tried[to - 1].first < m->tried[to - 1].end;
}

static bool fits(const struct moving *m, int from, int to)
{
    const struct partition_problem *problem = m->problem;
    for (int s = from - 1; s < to && problem->limit > 0; s++)
        if (problem->bytes(problem->context, &m->tried[s], s) > problem->limit) return false;
    return true;
}

static bool try_shift(struct moving *m, int from, int to, int by)
{
    if (!shift(m, from, to, by)) return false;
    double seconds = partition_step(&m->sums, m->tried);
    if (seconds >= LESS * m->seconds || !fits(m, from, to)) return false;
    memcpy(m->chunks, m->tried, (size_t)partition_chunks(m->problem) * sizeof *m->chunks);
    m->seconds = seconds;
    return true;
}

/* Tries all positions of neighbouring boundaries at their present distances. */
static bool try_all(struct moving *m, int from, int to)
{
    bool moved = false;
    for (int at = 1; at < m->problem->count; at++)
        if (try_shift(m, from, to, at - m->chunks[from].first)) moved = true;
    return moved;
}

void partition_move(const struct partition_problem *problem, struct partition_chunk *chunks)
{
    int count = partition_chunks(problem);
    struct moving m = {.problem = problem, .sums = partition_sums_make(problem), .chunks = chunks,
                       .tried = memory_new((size_t)count, sizeof *chunks)};
    m.seconds = partition_step(&m.sums, chunks);
    for (bool moved = true; moved;) {
        moved = false;
        for (int from = 1; from < count; from++)
            for (int to = from + 1; to <= count; to++) moved = try_all(&m, from, to) || moved;
    }
    partition_sums_free(&m.sums);
    free(m.tried);
}
