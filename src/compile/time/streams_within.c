/* streams_within.c: as many weight gradients beside the chain as memory allows.
 *
 * All of them are at first. Where live bytes then exceed the limit, the last one before each maximum joins
 * the chain: its inputs live longer there, or something else is not computed in place. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/memory/plan.h"
#include "compile/rewrite/rewrites.h"

/* True if something joins the chain because of live bytes while instruction `peak` runs: the last weight
 * gradient before it, or else the first after it. order[i]: i's old number. */
static bool join_at(const struct program *program, int peak, const int *order, bool *joined)
{
    int last = -1;
    for (int i = 0; i < program->count && (i < peak || last < 0); i++)
        if (program->instructions[i].stream != 0) last = i;
    if (last >= 0) joined[order[last]] = true;
    return last >= 0;
}

/* Arranges a copy; whether something has to join because of the maximum of a stretch above the limit. */
static bool try_arranging(const struct program *program, int count, enum stream_division by, int64_t limit,
                          bool *joined, int *order)
{
    struct program copy = program_copy(program);
    streams_arrange(&copy, count, by, joined, order);
    int64_t *live = plan_live_bytes(&copy);
    bool any = false;
    for (int i = 0, peak = -1; i < copy.count; i++) {
        if (live[i] > limit && (peak < 0 || live[i] > live[peak])) peak = i;
        if (peak < 0 || (i + 1 < copy.count && live[i + 1] > limit)) continue;
        if (join_at(&copy, peak, order, joined)) any = true;
        peak = -1;
    }
    free(live);
    program_free(&copy);
    return any;
}

bool streams_can_part(const struct program *program)
{
    return program->training && program->all_micro_batches == 1 && program->stages == 1 &&
           program->host_bytes == 0;
}

enum status streams_within(struct program *program, int count, enum stream_division by, int64_t limit)
{
    bool part = limit > 0 && count > 1 && streams_can_part(program);
    bool *joined = memory_new((size_t)program->count, sizeof *joined);
    int *order = memory_new((size_t)program->count, sizeof *order);
    while (part && try_arranging(program, count, by, limit, joined, order)) {}
    streams_arrange(program, count, by, joined, order);
    free(joined);
    free(order);
    return OK;
}

enum status streams_assign(struct program *program, int count, enum stream_division by)
{
    return streams_within(program, count, by, 0);
}
