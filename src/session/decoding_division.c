#include "session/decoding_division.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/host.h"
#include "base/log.h"
#include "base/memory.h"
#include "compile/time/cost.h"
#include "data/augment/gpu_preprocessing.h"
#include "input/decoding.h"
#include "session/session_loader.h"
#include "session/step.h"

#define PARTS_MIN 2            /* fewer are not worth it */
#define MEASURED_SECONDS 0.5
/* Beside decoders ResNet-50's step is a tenth slower. So they are used for steps with which workers alone may
 * not keep up. A step is at most this much faster than modelled: on an H200, ResNet-50's by 1.09,
 * ResNet-18's by 1.14; VGG-16's by more, but it does not wait for images. */
#define FASTER_MAX 1.2

/* Loading for some time. */
struct pace {
    int64_t batches;           /* as many as there were time for; or the most there shall be */
    double images_per_s;
    double decoded;            /* by the device, of all */
};

static int count_decoded(const struct session *session, const struct batch *batch)
{
    const struct image_record *images = batch->images;
    int count = 0;
    for (int i = 0; i < session->hyper.batch; i++)
        count += !images[i].blank && images[i].source == SOURCE_DECODED;
    return count;
}

/* Batches that were started before are not counted. */
static enum status keep_pace(struct session *session, struct loader *loader, struct pace *pace)
{
    struct batch *batch;
    int64_t epoch = 0, batches = -session_prefetch(session) - 1, decoded = 0, most = pace->batches;
    double from = clock_seconds(), passed = 0;
    TRY(loader_start(loader, epoch, 0));
    while (passed < MEASURED_SECONDS && batches < most) {
        TRY(loader_next(loader, &batch, NULL));
        if (!batch) {
            TRY(loader_start(loader, ++epoch, 0));
            continue;
        }
        if (batches >= 0) decoded += count_decoded(session, batch);
        loader_return(loader, batch);
        if (++batches == 0) from = clock_seconds();
        if (batches > 0) passed = clock_seconds() - from;
    }
    double images = (double)batches * (double)session->hyper.batch;
    *pace = (struct pace){batches, images / passed, (double)decoded / images};
    return OK;
}

static enum status division_measure(struct session *session, int parts, struct pace *pace)
{
    struct loader *loader;
    decoding_divide(session->decoding, parts);
    TRY(session_loader_open_measured(session, &loader));
    enum status status = keep_pace(session, loader, pace);
    loader_close(loader);
    return status;
}

/* More images per second than any current GPU processes. */
static enum status step_most(const struct session *session, double *images_per_s)
{
    struct program program;
    TRY(step_program(session, STEP_TRAINING, &program));
    *images_per_s = FASTER_MAX * (double)session->hyper.batch / cost_program(&program);
    program_free(&program);
    return OK;
}

/* None if workers keep up with the step; otherwise so many that both finish at the same time; limited to the
 * images that the device can decode. The first measurement may include disk reads, so it is repeated. */
static enum status measure_parts(struct session *session, double needed, int *parts)
{
    struct pace cold = {.batches = INT32_MAX}, workers, engines;
    TRY(division_measure(session, DECODING_PARTS, &cold));
    engines = workers = (struct pace){.batches = cold.batches};
    TRY(division_measure(session, DECODING_PARTS, &engines));
    TRY(division_measure(session, 0, &workers));
    double share = engines.images_per_s / (engines.decoded * engines.images_per_s + workers.images_per_s);
    *parts = (int)(DECODING_PARTS * (share < 1 ? share : 1) + 0.5);
    if (*parts * engines.decoded < PARTS_MIN || workers.images_per_s >= needed) *parts = 0;
    log_detail("loader.decode: the step consumes at most %.0f images/s", needed);
    log_detail("loader.decode: CPU threads decode %.0f images/s; with the GPU %.0f, of which it decodes "
               "%.0f %%", workers.images_per_s, engines.images_per_s, 100 * engines.decoded);
    return OK;
}

/* The facts that the division depends on. loader.workers is not among them, since no bit of a batch may
 * depend on it: the default number is measured. */
static char *facts_of(const struct session *session, double needed)
{
    const struct images *train = &session->data.train;
    return text_format("%lld images to %dx%d, at most %.0f images/s, %d processors",
                       (long long)train->count, train->h, train->w, needed, host_processors());
}

/* Every rank uses the smallest of all ranks' measured parts, so that an image's pixels do not depend on the
 * rank that loads it. */
static enum status agree_on_parts(const struct session *session, int *parts)
{
    int64_t least = *parts;
    TRY(comm_minimum(session->comm, &least));
    *parts = (int)least;
    return OK;
}

/* The division as configured, as stored, or as measured. */
static enum status choose_parts(struct session *session, int *parts)
{
    bool asked = session->settings->loader.decode == DECODE_GPU;
    double needed = 0;
    if (!asked) TRY(step_most(session, &needed));
    char *facts = asked ? NULL : facts_of(session, needed);
    *parts = asked ? DECODING_PARTS : decoding_chosen(session->device, facts);
    enum status status = *parts < 0 ? measure_parts(session, needed, parts) : OK;
    if (status == OK) status = agree_on_parts(session, parts);
    if (status == OK) decoding_choose(session->device, facts, *parts);
    free(facts);
    return status;
}

enum status decoding_division_open(struct session *session)
{
    int parts = 0;
    const struct decoding_options options = session_decoding_options(session);
    TRY(decoding_open(&options, &session->decoding));
    if (!session->decoding) return agree_on_parts(session, &parts);
    enum status status = choose_parts(session, &parts);
    if (status == OK && parts > 0) {
        decoding_divide(session->decoding, parts);
        log_detail("loader.decode: the device decodes %d of %d training images", parts, DECODING_PARTS);
        return OK;
    }
    decoding_close(session->decoding);
    session->decoding = NULL;
    return status;
}
