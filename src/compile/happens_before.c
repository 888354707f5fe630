/* order.c: which instruction has ended when another starts: by its lane, or by what it waits for. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/build.h"

static void known_join(int *known, const int *other, int lanes)
{
    for (int l = 0; l < lanes; l++)
        if (other[l] > known[l]) known[l] = other[l];
}

/* All that was known at the start of `done`, and `done` itself, is known now. */
static void known_after(const struct program *program, int *table, int *known, int done)
{
    int lane = program->instructions[done].lane;
    known_join(known, table + (size_t)done * (size_t)program->lanes, program->lanes);
    if (done > known[lane]) known[lane] = done;
}

int *order_known(const struct program *program)
{
    size_t lanes = (size_t)program->lanes;
    int *table = memory_new((size_t)program->count * lanes, sizeof *table);
    int *latest = memory_new(lanes, sizeof *latest);
    for (size_t l = 0; l < lanes; l++) latest[l] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int *known = table + (size_t)i * lanes;
        for (size_t l = 0; l < lanes; l++) known[l] = -1;
        if (latest[at->lane] >= 0) known_after(program, table, known, latest[at->lane]);
        for (int w = 0; w < at->wait_count; w++) known_after(program, table, known, at->waits[w]);
        latest[at->lane] = i;
    }
    free(latest);
    return table;
}
