#include "compile/stage_mail.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/cuda_mail.h"

static void expect(struct comm_mail *mail, int64_t bytes)
{
    mail->messages++;
    mail->bytes += comm_mail_room((size_t)bytes);
}

void stage_mail(const struct program *program, struct comm_mail *from)
{
    for (int s = 0; s < program->stages; s++) from[s] = (struct comm_mail){0};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kind == INSTRUCTION_RECEIVE) expect(&from[at->peer], program->values[at->y].bytes);
        for (int s = 0; at->among_stages && s < program->stages; s++)
            if (s != program->stage) expect(&from[s], program->values[at->x[0]].bytes);
    }
}

int64_t stage_mail_bytes(const struct program *program)
{
    if (program->stages < 2) return 0;
    struct comm_mail *from = memory_new((size_t)program->stages, sizeof *from);
    stage_mail(program, from);
    size_t bytes = cuda_mail_bytes(from, program->stages);
    free(from);
    return (int64_t)bytes;
}
