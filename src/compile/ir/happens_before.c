/* happens_before.c: computes which instructions have ended when another one starts, by stream order or
 * waits. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"

static void known_join(int *known, const int *other, int streams)
{
    for (int l = 0; l < streams; l++)
        if (other[l] > known[l]) known[l] = other[l];
}

/* Everything that had ended at the start of `done`, and `done` itself, has ended now. */
static void known_after(const struct program *program, int *table, int *known, int done)
{
    int stream = program->instructions[done].stream;
    known_join(known, table + (size_t)done * (size_t)program->streams, program->streams);
    if (done > known[stream]) known[stream] = done;
}

int *happens_before(const struct program *program)
{
    size_t streams = (size_t)program->streams;
    int *table = memory_new((size_t)program->count * streams, sizeof *table);
    int *latest = memory_new(streams, sizeof *latest);
    for (size_t l = 0; l < streams; l++) latest[l] = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        int *known = table + (size_t)i * streams;
        for (size_t l = 0; l < streams; l++) known[l] = -1;
        if (latest[at->stream] >= 0) known_after(program, table, known, latest[at->stream]);
        for (int w = 0; w < at->wait_count; w++) known_after(program, table, known, at->waits[w]);
        latest[at->stream] = i;
    }
    free(latest);
    return table;
}
