#include "train/programs.h"

#include "base/log.h"
#include "base/text.h"
#include "session/step_fit.h"

#define RUNGS 8              /* plans that are tried, each smaller than the last */
#define STEP_DOWN 0.9        /* of a plan for which there was no memory though there seemed to be */
#define SPARE_SHARE 64       /* of what is left, one part stays free for libraries ... */
#define SPARE_MOST ((int64_t)256 << 20)

static enum status prepare(struct run *run)
{
    const struct session *session = run->session;
    TRY(step_prepare(session, STEP_TRAINING, &run->store, &run->training));
    if (session->settings->run.verify_every > 0 && !exec_can_repeat(run->training.exec))
        return settings_refuse(session->settings, "run", "verify_every",
                            "on a GPU, steps only repeat with run.deterministic=yes");
    if (session->data.val.dataset) TRY(step_prepare(session, STEP_EVALUATION, &run->store, &run->evaluation));
    struct plan plan = *exec_plan(run->training.exec);
    int64_t evaluation = run->evaluation.exec ? exec_plan(run->evaluation.exec)->arena_bytes : 0;
    if (plan.arena_bytes < evaluation) plan.arena_bytes = evaluation;
    run->bytes = step_bytes(session, &run->training.program, &plan, run->store.layout.bytes);
    return OK;
}

static enum status place(struct run *run, struct text *shortage)
{
    TRY(exec_place(run->training.exec, &(struct exec_memory){
        .arena_least = run->bytes.arena, .shortage = shortage,
    }));
    if (!run->evaluation.exec) return OK;
    return exec_place(run->evaluation.exec, &(struct exec_memory){
        .lender = run->training.exec, .shortage = shortage,
    });
}

/* What the run could have, besides what it holds: nothing but the store and the gpu_preprocessing, now. */
static int64_t bytes_to_have(const struct run *run)
{
    const struct session *session = run->session;
    size_t left, total;
    if (session->cache) cache_trim(session->cache, 0);
    session->device->backend->memory.info(session->device, &left, &total);
    int64_t spare = (int64_t)left / SPARE_SHARE;
    if (spare > SPARE_MOST) spare = SPARE_MOST;
    int64_t held = run->store.layout.bytes;
    if (session->gpu_preprocessing) held += session_preprocessing_bytes(session);
    return held + (int64_t)left - spare;
}

/* After a plan of which not all memory could be had. The limit goes down with every try, whatever the device
 * says that it has. */
static void step_down(struct run *run)
{
    int64_t have = bytes_to_have(run), less = (int64_t)(STEP_DOWN * (double)run->bytes.total);
    bool retry = run->session->left == 0 && have >= run->bytes.total;
    if (!retry && have > less) have = less;
    run->session->left = have > 1 ? have : 1;
}

static void say_stepped(const struct run *run)
{
    char took[TEXT_BYTES], limit[TEXT_BYTES];
    log_warning("the device had not the memory that was planned for; planned again for the %s that it has "
                "left: the step takes %s (strategy %s), with the same results",
                text_bytes((uint64_t)run->session->left, limit), text_bytes((uint64_t)run->bytes.total, took),
                step_strategy(run->session, &run->training.program));
}

static void add_row(struct text *table, int64_t bytes, const char *what)
{
    char words[TEXT_BYTES];
    text_add(table, "\n%12s  %s", text_bytes((uint64_t)bytes, words), what);
}

/* `words`: what the last try was short of. */
static enum status refuse(const struct run *run, const struct text *words)
{
    const struct step_bytes *bytes = &run->bytes;
    struct text table = {0};
    add_row(&table, bytes->store, "parameters and optimizer state");
    add_row(&table, bytes->arena, "activations, gradients and workspaces");
    add_row(&table, bytes->batch, "images, labels and results");
    add_row(&table, bytes->total, "together");
    add_row(&table, bytes_to_have(run), "can be had");
    text_add(&table, "\n");
    step_fit_say(run->session, bytes_to_have(run), &table);
    fail(NO_DEVICE, "%s\nthe smallest step that was found takes%s", words->data, table.data);
    text_free(&table);
    return NO_DEVICE;
}

static bool fits(const struct run *run)
{
    return run->session->left == 0 || run->bytes.total <= run->session->left;
}

/* `shortage` gets what the device has no memory for, if that is why it failed. A plan that is larger than
 * what is left is not tried. */
static enum status try_open(struct run *run, struct text *shortage)
{
    bool first = run->session->left == 0;
    run->bytes = (struct step_bytes){0};
    TRY(prepare(run));
    if (first) TRY(step_fit_check(run->session, &run->bytes));
    if (!fits(run)) return NO_DEVICE;
    TRY(place(run, shortage));
    if (!first) say_stepped(run);
    run->state = *exec_state(run->training.exec);
    return OK;
}

enum status programs_open(struct run *run)
{
    struct text last = {0};
    run->session->left = 0;
    for (int rung = 0; rung < RUNGS; rung++) {
        struct text shortage = {0};
        enum status status = try_open(run, &shortage);
        if (status != OK) programs_close(run);
        if (status == OK || (!shortage.data && fits(run))) {
            text_free(&last);
            return status;
        }
        if (!shortage.data) break;
        text_free(&last);
        last = shortage;
        step_down(run);
    }
    enum status status = refuse(run, &last);
    text_free(&last);
    return status;
}

void programs_close(struct run *run)
{
    step_close(&run->evaluation);
    step_close(&run->training);
}

static bool read_limit(const struct run *run, int64_t *limit)
{
    const struct run_options *options = run->options;
    struct settings fresh;
    if (!options->config) return false;
    if (settings_load(options->config, options->sets, options->set_count, &fresh) != OK) {
        log_warning("the configuration cannot be read again: the run goes on as it is");
        return false;
    }
    /* With train.batch=auto there is one, though it is not in the file. */
    bool own = fresh.memory.limit > 0 || fresh.train.batch > 0;
    *limit = own ? fresh.memory.limit : run->session->settings->memory.limit;
    settings_free(&fresh);
    return *limit != run->session->settings->memory.limit;
}

static enum status reopen(struct run *run, int64_t limit)
{
    programs_close(run);
    if (run->session->cache) cache_trim(run->session->cache, 0);
    run->session->settings->memory.limit = limit;
    run->session->device->memory_limit = (size_t)limit;
    return programs_open(run);
}

static void say_limit(const struct run *run, int64_t limit)
{
    char took[TEXT_BYTES], words[TEXT_BYTES] = "auto";
    if (limit > 0) text_bytes((uint64_t)limit, words);
    log_info("memory.limit is now %s: the step takes %s (strategy %s), with the same results", words,
             text_bytes((uint64_t)run->bytes.total, took),
             step_strategy(run->session, &run->training.program));
}

enum status programs_reread(struct run *run)
{
    int64_t before = run->session->settings->memory.limit, limit;
    if (!read_limit(run, &limit)) return OK;
    if (reopen(run, limit) == OK) {
        say_limit(run, limit);
        return OK;
    }
    log_warning("memory.limit stays what it was, and the run goes on");
    return reopen(run, before);
}
