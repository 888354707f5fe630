#include "session/step_ranks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/verify_ranks.h"

/* Neither kernel plans nor limits change what is exchanged. `first`: the first rank's program; NULL: this one
 * is. */
static enum status compile_rank(const struct session *session, int rank, const struct program *first,
                                struct program *program)
{
    struct compile_options options = step_options(session, STEP_TRAINING);
    if (first) options.cut = cut_like(first, &options.cut);
    options.lower.first_micro_batch = rank / session->hyper.stages * options.lower.micro_batches;
    options.cut.stage = rank % session->hyper.stages;
    options.kernel_plans.device = NULL;
    options.limit = 0;
    return compile(step_graph(session, STEP_TRAINING), &options, program);
}

static enum status verify(const struct session *session, const struct program *const *programs, int replicas)
{
    struct reason reason;
    if (verify_ranks(programs, replicas, session->hyper.stages, &reason)) return OK;
    return fail(FAILED, "the programs of the ranks do not match: %s", reason.text);
}

enum status step_ranks_verify(const struct session *session)
{
    int replicas = session->hyper.replicas > 1 ? 2 : 1, ranks = replicas * session->hyper.stages, made = 0;
    if (comm_rank(session->comm) > 0 || ranks == 1) return OK;
    struct program *programs = memory_new((size_t)ranks, sizeof *programs);
    const struct program **all = memory_new((size_t)ranks, sizeof *all);
    enum status status = OK;
    for (; status == OK && made < ranks; made += status == OK) {
        all[made] = &programs[made];
        status = compile_rank(session, made, made > 0 ? all[0] : NULL, &programs[made]);
    }
    if (status == OK) status = verify(session, all, replicas);
    for (int r = 0; r < made; r++) program_free(&programs[r]);
    free(programs);
    free(all);
    return status;
}
