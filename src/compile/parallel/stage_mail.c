#include "compile/parallel/stage_mail.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"
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
        if (at->kind == INSTRUCTION_RECEIVE) expect(&from[at->peer], program->values[operand_y(at)].bytes);
        for (int s = 0; at->among_stages && s < program->stages; s++)
            if (s != program->stage) expect(&from[s], program->values[operand_x(at, 0)].bytes);
    }
}

/* Bytes of the largest message that an instruction sends; 0: it sends none. */
static int64_t message_bytes(const struct program *program, const struct instruction *at, int replicas)
{
    if (at->kind != INSTRUCTION_SEND && !instruction_is_collective(at)) return 0;
    int64_t bytes = program->values[operand_x(at, 0)].bytes;
    return at->kind == INSTRUCTION_ALL_TO_ALL ? bytes / replicas : bytes;
}

bool stage_mail_fits(const struct program *program, int replicas, size_t most, struct reason *reason)
{
    const char *largest = "";
    int64_t bytes = 0;
    char words[2][TEXT_BYTES];
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (message_bytes(program, at, replicas) <= bytes) continue;
        bytes = message_bytes(program, at, replicas);
        largest = at->name;
    }
    if (most == 0 || (size_t)bytes <= most) return true;
    return because(reason, "'%s' is a message of %s, but ranks send at most %s at once", largest,
                   text_bytes((uint64_t)bytes, words[0]), text_bytes(most, words[1]));
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
