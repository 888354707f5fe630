#include "session/step_fit.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/host.h"
#include "compile/memory/fit_batch.h"
#include "compile/memory/fit_memory.h"
#include "session/session_store.h"
#include "session/tiles.h"

#define BATCH_MAX 1048576       /* train.batch's */
#define SPARE_SHARE 32           /* of a GPU's free memory, one part is left for libraries ... */
#define HOST_SHARE 2             /* ... and of the host's for all else that runs there */

/* The run, with another batch and limit, on a device that is not open. */
struct variant {
    struct session session;
    struct settings settings;
};

static struct compile_options variant_options(void *context, int batch, bool training)
{
    struct variant *variant = context;
    variant->session.hyper.batch = batch;
    return step_options(&variant->session, training ? STEP_TRAINING : STEP_EVALUATION);
}

static int most_images(const struct session *session)
{
    const struct images *train = &session->data.train;
    int micro_batches = hyperparameters_micro_batches(&session->hyper), most = BATCH_MAX / micro_batches;
    return train->dataset && train->count / micro_batches < most ? (int)(train->count / micro_batches) : most;
}

enum status step_fit_batch(const struct session *session, int64_t limit, bool exact, int *batch)
{
    struct variant variant = {.session = *session, .settings = *session->settings};
    variant.settings.memory.limit = limit;
    variant.session.settings = &variant.settings;
    variant.session.device = NULL;
    variant.session.left = 0;
    const struct fit_batch_options options = {
        .graph = &session->graphs.training, .val_graph = &session->graphs.evaluation,
        .of_batch = variant_options, .context = &variant, .limit = limit,
        .micro_batches = hyperparameters_micro_batches(&session->hyper), .most = most_images(session),
        .exact = exact,
    };
    return fit_batch(&options, batch);
}

void step_fit_describe(const struct session *session, int64_t limit, struct text *words)
{
    int batch;
    if (step_fit_batch(session, limit, false, &batch) != OK)
        text_add(words, "a smaller train.batch needs less");
    else if (batch > 0) text_add(words, "the largest train.batch that fits is %d", batch);
    else text_add(words, "not even train.batch=%d fits", hyperparameters_micro_batches(&session->hyper));
}

/* Rounded up to a tenth of the unit that it is shown in, so that a limit of what is shown is enough. */
static int64_t round_up(int64_t bytes)
{
    double unit = 1;
    while ((double)bytes / unit >= 1024) unit *= 1024;
    return (int64_t)ceil(ceil((double)bytes / unit * 10) / 10 * unit);
}

static enum status refuse(const struct session *session, int64_t bytes, const char *least)
{
    int64_t limit = session_limit(session);
    char has[TEXT_BYTES], needs[TEXT_BYTES];
    text_bytes((uint64_t)limit, has);
    text_bytes((uint64_t)round_up(bytes), needs);
    if (strcmp(has, needs) == 0) {
        snprintf(has, sizeof has, "%" PRId64 " bytes", limit);
        snprintf(needs, sizeof needs, "%" PRId64 " bytes", bytes);
    }
    struct text advice = {0};
    step_fit_describe(session, limit, &advice);
    if (limit == session->left)
        fail(NO_DEVICE, "the device has only %s left for this run, which needs %s%s; %s",
             has, least, needs, advice.data);
    else
        fail(NO_DEVICE, "%s: memory.limit: %s is not enough, the run needs %s%s; %s",
             settings_where(session->settings, "memory", "limit"), has, least, needs, advice.data);
    text_free(&advice);
    return NO_DEVICE;
}

enum status step_fit_check(const struct session *session, const struct budget *taken)
{
    int64_t limit = session_limit(session);
    return limit == 0 || taken->total <= limit ? OK : refuse(session, taken->total, "");
}

enum status step_fit_check_bound(const struct session *session)
{
    const struct compile_options options = step_options(session, STEP_TRAINING);
    int64_t bytes = 0, limit = options.budget.total;
    if (limit > 0) TRY(fit_memory_bound(&session->graphs.training, &options, &bytes));
    return bytes <= limit ? OK : refuse(session, bytes, "at least ");
}

enum status step_fit_limit(struct session *session, int64_t *limit)
{
    size_t left, total;
    if (session_device_kind(session) == DEVICE_CPU) {
        host_memory(&left, &total);
        *limit = (int64_t)left / HOST_SHARE / (session->comm ? session->comm->local_count : 1);
        return OK;
    }
    if (!session->device) TRY(session_open_device(session));
    session->device->backend->memory.info(session->device, &left, &total);
    *limit = (int64_t)(left - left / SPARE_SHARE);
    return OK;
}

struct budget step_tiles_taken(const struct session *session, const struct program *program, int64_t arena)
{
    const struct store_options options = session_store_options(session, false);
    const struct tiles tiles = tiles_of(session);
    struct store_layout layout;
    store_lay_out(&session->graphs.training, &options, &layout);
    const struct budget before = {.store = layout.bytes, .input = tiles_bytes(&tiles),
                                  .batches = session_device_kind(session) == DEVICE_CUDA ? 2 : 1};
    store_layout_free(&layout);
    return budget_taken(&before, program, arena);
}

/* The bytes of an evaluation in batches of the current size. */
static enum status tiles_needed(const struct session *session, bool training, int64_t *bytes)
{
    const struct compile_options options = step_options(session, STEP_EVALUATION);
    struct compiled compiled;
    TRY(compile_plan(step_graph(session, STEP_EVALUATION), &options, &compiled));
    int64_t values = compiled.plan.arena_bytes;
    int64_t arena = budget_taken(&options.budget, &compiled.program, values).arena;
    const struct budget taken = training ? step_taken(session, &compiled.program, arena)
                                         : step_tiles_taken(session, &compiled.program, values);
    *bytes = taken.total;
    compiled_free(&compiled);
    return OK;
}

enum status step_fit_tiles(struct session *session, bool training)
{
    int64_t limit = session_limit(session), bytes = 0;
    char has[TEXT_BYTES], needs[TEXT_BYTES];
    session->tile_batch = tiles_of(session).batch;
    if (limit == 0) return OK;
    for (;; session->tile_batch /= 2) {
        TRY(tiles_needed(session, training, &bytes));
        if (bytes <= limit) return OK;
        if (session->tile_batch == 1) break;
    }
    return fail(NO_DEVICE, "%s: memory.limit: %s is not enough for tiles of %dx%d, which take %s; a smaller "
                "augment.val_tile needs less", settings_where(session->settings, "memory", "limit"),
                text_bytes((uint64_t)limit, has), session->data.val.w, session->data.val.h,
                text_bytes((uint64_t)bytes, needs));
}
