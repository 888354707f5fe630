/* streams_within.c: as many weight gradients beside the chain as memory allows.
 *
 * All of them are at first. Where live bytes then exceed the limit, those that make something live longer
 * there join the chain: one for each stretch above the limit, the one that takes the least time, until the
 * limit is met or none is left. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/time/cost.h"
#include "compile/memory/plan.h"
#include "compile/ir/program_parts.h"
#include "compile/rewrite/rewrites.h"

/* A program that streams_arrange has arranged. */
struct arranged {
    const struct program *program;
    bool *joined;            /* by old number */
    const int *order;        /* by number: the old one */
    int *known;              /* happens_before */
};

/* The first instruction that would come after number j in the chain, if it joined, and comes before it. */
static int span_begin(const struct arranged *a, int j)
{
    for (int i = 0; i < j; i++)
        if (a->order[i] > a->order[j]) return i;
    return j;
}

/* The last instruction that would come before number j in the chain or that may start before j has ended. */
static int span_end(const struct arranged *a, int j)
{
    size_t streams = (size_t)a->program->streams;
    int last = j, stream = a->program->instructions[j].stream;
    for (int i = j + 1; i < a->program->count; i++) {
        bool ended = a->known[(size_t)i * streams + (size_t)stream] >= j;
        if (a->order[i] < a->order[j] || (!ended && a->program->instructions[i].stream == 0)) last = i;
    }
    return last;
}

/* Whether something joins the chain because of live bytes while instruction `peak` runs: if nothing prolongs
 * lives there, the last before it, because of which something else may not be computed in place. */
static bool join_at(const struct arranged *a, int peak)
{
    int best = -1, last = -1;
    double least = 0;
    for (int j = 0; j < a->program->count; j++) {
        const struct instruction *at = &a->program->instructions[j];
        if (at->stream == 0) continue;
        if (j < peak) last = j;
        if (span_begin(a, j) > peak || span_end(a, j) < peak) continue;
        double seconds = cost_seconds(a->program, at);
        if (best >= 0 && seconds >= least) continue;
        best = j;
        least = seconds;
    }
    if (best < 0) best = last;
    if (best >= 0) a->joined[a->order[best]] = true;
    return best >= 0;
}

/* Looks at the maximum of each stretch above the limit. */
static bool join_peaks(const struct arranged *a, int64_t limit)
{
    int64_t *live = plan_live_bytes(a->program);
    bool any = false;
    for (int i = 0, peak = -1; i < a->program->count; i++) {
        if (live[i] > limit && (peak < 0 || live[i] > live[peak])) peak = i;
        if (peak < 0 || (i + 1 < a->program->count && live[i + 1] > limit)) continue;
        if (join_at(a, peak)) any = true;
        peak = -1;
    }
    free(live);
    return any;
}

/* Arranges a copy; whether something has to join the chain. */
static bool try_arranging(const struct program *program, int count, enum stream_division by, int64_t limit,
                          bool *joined, int *order)
{
    struct program copy = program_copy(program);
    streams_arrange(&copy, count, by, joined, order);
    struct arranged a = {&copy, joined, order, happens_before(&copy)};
    bool again = join_peaks(&a, limit);
    free(a.known);
    program_free(&copy);
    return again;
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
