#include "session/step_ranks.h"

#include <stdlib.h>

#include "base/memory.h"
#include "comm/shared_block.h"
#include "compile/parallel/stage_mail.h"
#include "compile/parallel/verify_ranks.h"

/* GPUs have no limit. A forecast, which has no ranks, is for those of one host. */
static size_t message_limit(const struct session *session)
{
    if (session_device_kind(session) != DEVICE_CPU) return 0;
    return session->comm ? session->comm->exchange->message_bytes : SHARED_MAIL_BYTES;
}

static enum status check_messages(const struct session *session, const struct program *programs)
{
    struct reason reason;
    for (int s = 0; session->hyper.stages > 1 && s < session->hyper.stages; s++)
        if (!stage_mail_fits(&programs[s], session->hyper.replicas, message_limit(session), &reason))
            return fail(USAGE, "stage %d: %s; more of parallel.microbatches make messages smaller", s,
                        reason.text);
    return OK;
}

static enum status verify(const struct session *session, const struct program *programs, int replicas)
{
    int ranks = replicas * session->hyper.stages;
    const struct program **all = memory_new((size_t)ranks, sizeof *all);
    struct reason reason;
    for (int r = 0; r < ranks; r++) all[r] = &programs[r];
    bool right = verify_ranks(all, replicas, session->hyper.stages, &reason);
    free(all);
    return right ? OK : fail(FAILED, "the programs of the ranks do not match: %s", reason.text);
}

/* Neither kernel plans nor limits change what is exchanged. */
enum status step_ranks_verify(const struct session *session)
{
    int replicas = session->hyper.replicas > 1 ? 2 : 1, ranks = replicas * session->hyper.stages;
    if (comm_rank(session->comm) > 0 || ranks == 1) return OK;
    struct program *programs = memory_new((size_t)ranks, sizeof *programs);
    struct compile_options options = step_options(session, STEP_TRAINING);
    options.kernel_plans.device = NULL;
    options.budget.total = 0;
    enum status status = compile_ranks(step_graph(session, STEP_TRAINING), &options, ranks, programs);
    if (status == OK) {
        status = check_messages(session, programs);
        if (status == OK) status = verify(session, programs, replicas);
        for (int r = 0; r < ranks; r++) program_free(&programs[r]);
    }
    free(programs);
    return status;
}
