/* liveness.c: computes the lifetime of each tensor, and which tensors may share memory. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/memory/plan.h"

struct uses {
    int *at;                 /* instruction numbers, ascending, the writer first */
    int count;
};

struct life {
    const struct program *program;
    int *known;              /* happens_before */
    int **stream_at;         /* by stream: its instructions, ascending */
    int *stream_count;
    struct uses *uses;       /* by value */
};

static void use_add(struct life *life, int value, int i)
{
    int placed = value_placed(life->program, value);
    struct uses *uses = &life->uses[placed];
    if (life->program->values[placed].home != HOME_ARENA) return;
    if (uses->count == 0 || uses->at[uses->count - 1] != i) *array_push(uses->at, uses->count) = i;
}

static struct life life_open(const struct program *program)
{
    struct life life = {.program = program, .known = happens_before(program)};
    life.stream_at = memory_new((size_t)program->streams, sizeof *life.stream_at);
    life.stream_count = memory_new((size_t)program->streams, sizeof *life.stream_count);
    life.uses = memory_new((size_t)program->value_count, sizeof *life.uses);
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        *array_push(life.stream_at[at->stream], life.stream_count[at->stream]) = i;
        FOR_OPERANDS(o, at)
            if (o->access != ACCESS_SHAPE) use_add(&life, o->value, i);
    }
    return life;
}

static void life_close(struct life *life)
{
    for (int l = 0; l < life->program->streams; l++) free(life->stream_at[l]);
    for (int v = 0; v < life->program->value_count; v++) free(life->uses[v].at);
    free(life->known);
    free(life->stream_at);
    free(life->stream_count);
    free(life->uses);
}

/* True if `use` has ended when `i` starts. */
static bool ended_before(const struct life *life, int use, int i)
{
    int stream = life->program->instructions[use].stream;
    return life->known[(size_t)i * (size_t)life->program->streams + (size_t)stream] >= use;
}

/* One past the last instruction of `stream` that may start before `use` has ended. The set of ended
 * instructions only grows along a stream, so the boundary is found by bisection. */
static int unordered_end(const struct life *life, int use, int stream)
{
    const int *at = life->stream_at[stream];
    int low = 0, high = life->stream_count[stream];
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (ended_before(life, use, at[middle])) high = middle;
        else low = middle + 1;
    }
    return low > 0 ? at[low - 1] + 1 : 0;
}

static int use_end(const struct life *life, int use)
{
    int end = use + 1;
    if (life->program->streams == 1) return end;
    for (int stream = 0; stream < life->program->streams; stream++) {
        int stream_end = unordered_end(life, use, stream);
        if (stream_end > end) end = stream_end;
    }
    return end;
}

/* True if `from` dies at instruction i: all its other uses have ended when i starts. */
static bool dies_at(const struct life *life, int from, int i)
{
    const struct uses *uses = &life->uses[from];
    bool used_here = false;
    for (int u = 0; u < uses->count; u++) {
        if (uses->at[u] == i) used_here = true;
        else if (!ended_before(life, uses->at[u], i)) return false;
    }
    return used_here;
}

static void place_over(const struct life *life, int i, struct in_place pair, struct lifetime *lifetimes)
{
    int from = pair.from, to = pair.to;
    if (from < 0 || to < 0) return;
    const struct value *source = &life->program->values[from], *target = &life->program->values[to];
    if (source->home != HOME_ARENA || target->home != HOME_ARENA || target->bytes > source->bytes) return;
    if (dies_at(life, from, i)) lifetimes[to].group = lifetimes[from].group;
}

void liveness(const struct program *program, bool share, struct lifetime *lifetimes)
{
    struct life life = life_open(program);
    for (int v = 0; v < program->value_count; v++) {
        const struct uses *uses = &life.uses[v];
        lifetimes[v] = (struct lifetime){.born = -1, .dead = -1, .group = v};
        if (uses->count == 0) continue;
        lifetimes[v].born = share ? uses->at[0] : 0;
        lifetimes[v].dead = share ? 0 : program->count;
        for (int u = 0; share && u < uses->count; u++) {
            int end = use_end(&life, uses->at[u]);
            if (end > lifetimes[v].dead) lifetimes[v].dead = end;
        }
    }
    for (int i = 0; share && i < program->count; i++)
        for (int p = 0; p < IN_PLACE_PAIRS; p++)
            place_over(&life, i, program->instructions[i].in_place[p], lifetimes);
    life_close(&life);
}
