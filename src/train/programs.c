#include "train/programs.h"

#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "exec/exec_checks.h"
#include "session/session_store.h"
#include "session/step_fit.h"

#define RUNGS 8              /* number of plans to try, each smaller than the preceding one */
#define STEP_DOWN 0.9        /* factor for a plan that could not be allocated although it seemed to fit */
#define SPARE_SHARE 64       /* fraction of the free memory left for libraries ... */
#define SPARE_MAX ((int64_t)256 << 20)

/* Bytes that an evaluation has in the arena of steps. */
static int64_t evaluation_arena(const struct programs *programs)
{
    const struct step *step = &programs->evaluation;
    if (!step->exec) return 0;
    const struct compile_options options = step_options(programs->session, STEP_EVALUATION);
    return budget_taken(&options.budget, &step->compiled.program, exec_plan(step->exec)->arena_bytes).arena;
}

static enum status programs_prepare(struct programs *programs)
{
    struct session *session = programs->session;
    struct store *store = programs->store;
    if (session->data.target == TARGET_MASK && session->data.val.dataset) TRY(step_fit_tiles(session, true));
    TRY(step_prepare(session, STEP_TRAINING, store, &programs->training));
    if (session->settings->run.verify_every > 0 && !exec_can_repeat(programs->training.exec))
        return settings_refuse(session->settings, "run", "verify_every",
                               "needs run.deterministic=yes on a GPU");
    if (session->data.val.dataset)
        TRY(step_prepare(session, STEP_EVALUATION, store, &programs->evaluation));
    int64_t arena = exec_plan(programs->training.exec)->arena_bytes;
    int64_t evaluation = evaluation_arena(programs);
    programs->bytes = step_taken(session, &programs->training.compiled.program,
                                 arena > evaluation ? arena : evaluation);
    return OK;
}

static enum status programs_place(struct programs *programs, struct text *shortage)
{
    TRY(exec_place(programs->training.exec, &(struct exec_memory){
        .arena_least = programs->bytes.arena, .shortage = shortage,
    }));
    if (!programs->evaluation.exec) return OK;
    return exec_place(programs->evaluation.exec, &(struct exec_memory){
        .lender = programs->training.exec, .shortage = shortage,
    });
}

/* All memory available to the run, including what it has now, which is only the store and
 * gpu_preprocessing. */
static int64_t bytes_to_have(const struct programs *programs)
{
    const struct session *session = programs->session;
    size_t left, total;
    if (session->cache) cache_trim(session->cache, 0);
    session->device->backend->memory.info(session->device, &left, &total);
    int64_t spare = (int64_t)left / SPARE_SHARE;
    if (spare > SPARE_MAX) spare = SPARE_MAX;
    int64_t held = programs->store->layout.bytes;
    if (session->gpu_preprocessing) held += session_preprocessing_bytes(session);
    return held + (int64_t)left - spare;
}

/* After a plan that could not be allocated completely. The limit is lowered with every try, whatever the
 * device reports as free. */
static void step_down(struct programs *programs)
{
    int64_t have = bytes_to_have(programs), less = (int64_t)(STEP_DOWN * (double)programs->bytes.total);
    bool retry = programs->session->left == 0 && have >= programs->bytes.total;
    if (!retry && have > less) have = less;
    programs->session->left = have > 1 ? have : 1;
}

static void say_stepped(const struct programs *programs)
{
    char took[TEXT_BYTES], limit[TEXT_BYTES];
    log_warning("the device has less free memory than planned; replanned for %s: the step takes %s "
                "(strategy %s), with the same results",
                text_bytes((uint64_t)programs->session->left, limit),
                text_bytes((uint64_t)programs->bytes.total, took),
                step_strategy(programs->session, &programs->training.compiled.program));
}

static void add_row(struct text *table, int64_t bytes, const char *what)
{
    char words[TEXT_BYTES];
    text_add(table, "\n%12s  %s", text_bytes((uint64_t)bytes, words), what);
}

/* `words`: the shortage of the last try. */
static enum status programs_refuse(const struct programs *programs, const struct text *words)
{
    const struct budget *bytes = &programs->bytes;
    struct text table = {0};
    add_row(&table, bytes->store, "parameters and optimizer state");
    add_row(&table, bytes->arena, "activations, gradients and workspaces");
    add_row(&table, bytes->input, "images, labels and results");
    if (bytes->exchange > 0) add_row(&table, bytes->exchange, "exchanges among GPUs (NCCL)");
    add_row(&table, bytes->total, "total");
    add_row(&table, bytes_to_have(programs), "available");
    text_add(&table, "\n");
    step_fit_describe(programs->session, bytes_to_have(programs), &table);
    fail(NO_DEVICE, "%s\nthe smallest plan found takes%s", words->data, table.data);
    text_free(&table);
    return NO_DEVICE;
}

static bool programs_fit(const struct programs *programs)
{
    return programs->session->left == 0 || programs->bytes.total <= programs->session->left;
}

/* `shortage` gets what the device has no memory for, if that is why it failed. A plan that is larger than
 * what is left is not tried. */
static enum status try_open(struct programs *programs, struct text *shortage)
{
    bool first = programs->session->left == 0;
    programs->bytes = (struct budget){0};
    TRY(programs_prepare(programs));
    if (first) TRY(step_fit_check(programs->session, &programs->bytes));
    if (!programs_fit(programs)) return NO_DEVICE;
    TRY(programs_place(programs, shortage));
    if (!first) say_stepped(programs);
    return OK;
}

static enum status open_all(struct programs *programs)
{
    struct text last = {0};
    programs->session->left = 0;
    for (int rung = 0; rung < RUNGS; rung++) {
        struct text shortage = {0};
        enum status status = try_open(programs, &shortage);
        if (status != OK) programs_close(programs);
        if (status == OK || (!shortage.data && programs_fit(programs))) {
            text_free(&last);
            return status;
        }
        if (!shortage.data) break;
        text_free(&last);
        last = shortage;
        step_down(programs);
    }
    enum status status = programs_refuse(programs, &last);
    text_free(&last);
    return status;
}

void programs_close(struct programs *programs)
{
    step_close(&programs->evaluation);
    step_close(&programs->training);
}

/* The bytes of a rank's programs, which differ among stages; `status` is OK if it has any. OK if all have. */
static enum status share_total(struct programs *programs, enum status status)
{
    int64_t least = status == OK ? -programs->bytes.total : INT64_MIN;
    TRY(comm_minimum(programs->session->comm, &least));
    if (least == INT64_MIN) return status == OK ? NO_DEVICE : status;
    programs->most_bytes = -least;
    return OK;
}

enum status programs_open(struct session *session, struct store *store, struct programs *programs)
{
    *programs = (struct programs){.session = session, .store = store};
    return open_all(programs);
}

enum status programs_share_total(struct programs *programs)
{
    return share_total(programs, OK);
}

/* Stages may have other layers then: all ranks get the current parameters from their owners. */
static enum status share_parameters(const struct programs *programs)
{
    const struct program *training = &programs->training.compiled.program;
    if (!training->node_stages) return OK;
    return session_store_share(programs->session, training, programs->store);
}

static enum status free_memory(struct programs *programs)
{
    programs_close(programs);
    TRY(comm_barrier(programs->session->comm));      /* no other rank reaches the memory any more */
    if (programs->session->cache) cache_trim(programs->session->cache, 0);
    return OK;
}

enum status programs_end(struct programs *programs)
{
    TRY(share_parameters(programs));
    return free_memory(programs);
}

enum status programs_reopen(struct programs *programs)
{
    return open_all(programs);
}

static enum status replan(struct programs *programs)
{
    TRY(free_memory(programs));
    return open_all(programs);
}

/* OK if it is so on all ranks. */
static enum status replan_for(struct programs *programs, int64_t limit)
{
    programs->session->settings->memory.limit = limit;
    programs->session->device->memory_limit = (size_t)limit;
    return share_total(programs, replan(programs));
}

static void say_limit(const struct programs *programs, int64_t limit)
{
    char took[TEXT_BYTES], words[TEXT_BYTES] = "auto";
    if (limit > 0) text_bytes((uint64_t)limit, words);
    log_info("memory.limit is now %s: the step takes %s (strategy %s), with the same results", words,
             text_bytes((uint64_t)programs->bytes.total, took),
             step_strategy(programs->session, &programs->training.compiled.program));
}

enum status programs_set_limit(struct programs *programs, int64_t limit, const char *where)
{
    struct settings *settings = programs->session->settings;
    int64_t before = settings->memory.limit;
    TRY(share_parameters(programs));
    char *place = settings_swap_where(settings, "memory", "limit", text_copy(where));
    enum status status = replan_for(programs, limit);
    if (status != OK) place = settings_swap_where(settings, "memory", "limit", place);
    free(place);
    if (status == OK) {
        say_limit(programs, limit);
        return OK;
    }
    log_warning("memory.limit is unchanged; the run continues");
    return replan_for(programs, before);
}
