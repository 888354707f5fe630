#include "compile/memory/budget.h"

#include "compile/parallel/stage_mail.h"

static struct budget with_program(const struct budget *before, const struct program *program)
{
    struct budget budget = *before;
    budget.input += budget.batches * (program->images_bytes + program->targets_bytes);
    budget.input += program->results_bytes;
    if (budget.mail) budget.exchange += stage_mail_bytes(program);
    return budget;
}

struct budget budget_allowed(const struct budget *before, const struct program *program)
{
    struct budget budget = with_program(before, program);
    budget.arena = budget.total - budget.store - budget.input - budget.exchange;
    return budget;
}

struct budget budget_taken(const struct budget *before, const struct program *program, int64_t arena)
{
    struct budget budget = with_program(before, program);
    budget.arena = arena + budget.behind;
    budget.total = budget.store + budget.input + budget.exchange + budget.arena;
    return budget;
}
