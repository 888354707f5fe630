#include "measure/bench_feed.h"

#include <math.h>

#include "base/clock.h"
#include "input/gpu_preprocessing.h"

/* Below this fraction of the slowest part's rate, that part is not the only bottleneck. */
#define TOGETHER_MIN 0.9

static enum status next(const struct session *session, const struct step *step, struct loader *loader,
                        struct batch **batch, double *wait_seconds)
{
    return step ? step_next(session, step, loader, batch, wait_seconds)
                : loader_next(loader, batch, wait_seconds);
}

enum status feed_next(const struct session *session, const struct step *step, struct loader *loader,
                      int64_t *epoch, struct batch **batch, double *wait_seconds)
{
    TRY(next(session, step, loader, batch, wait_seconds));
    if (*batch) return OK;
    TRY(loader_start(loader, ++*epoch, 0));
    TRY(next(session, step, loader, batch, wait_seconds));
    return *batch ? OK : fail(BAD_DATA, "bench: the data set is smaller than one batch");
}

static enum status drop_batches(struct loader *loader, int64_t *epoch, int batches)
{
    for (int i = 0; i < batches; i++) {
        struct batch *batch;
        TRY(feed_next(NULL, NULL, loader, epoch, &batch, NULL));
        loader_return(loader, batch);
    }
    return OK;
}

enum status feed_measure_loader(const struct session *session, struct loader *loader, int64_t *epoch,
                                int batches, double *images_per_s)
{
    TRY(drop_batches(loader, epoch, (int)session->settings->loader.prefetch + 2));
    double start = clock_seconds();
    TRY(drop_batches(loader, epoch, batches));
    *images_per_s = (double)batches * session->hyper.batch / fmax(1e-9, clock_seconds() - start);
    return OK;
}

/* The copies of a batch that a step makes, repeatedly. */
static enum status copy_batches(struct device *device, const struct program *program,
                                const struct exec_batch *batch, char *to, int batches)
{
    const struct device_backend *backend = device->backend;
    int stream = device->copy_stream;
    for (int i = 0; i < batches; i++) {
        if (batch->make) TRY(batch->make(batch->maker, batch->images, stream, to));
        else TRY(backend->transfers.upload(device, stream, to, batch->images, (size_t)program->images_bytes));
        TRY(backend->transfers.upload(device, stream, to + program->images_bytes, batch->labels,
                                      (size_t)program->targets_bytes));
    }
    return backend->synchronize(device);
}

static enum status time_copies(const struct session *session, const struct program *program,
                               const struct exec_batch *batch, int batches, double *images_per_s)
{
    struct device *device = session->device;
    size_t bytes = (size_t)(program->images_bytes + program->targets_bytes);
    char *to = device_allocate(device, bytes, "measured copies");
    if (!to) return fail(NO_DEVICE, "bench: not enough device memory for one more batch");
    enum status status = copy_batches(device, program, batch, to, 1);
    double start = clock_seconds();
    if (status == OK) status = copy_batches(device, program, batch, to, batches);
    *images_per_s = (double)batches * session->hyper.batch / fmax(1e-9, clock_seconds() - start);
    device_release(device, to, bytes);
    return status;
}

enum status feed_measure_copy(const struct session *session, const struct program *program,
                              struct loader *loader, int64_t *epoch, int batches, double *images_per_s)
{
    struct batch *batch;
    *images_per_s = 0;
    if (!session->device->waits) return OK;
    TRY(feed_next(NULL, NULL, loader, epoch, &batch, NULL));
    struct exec_batch given = gpu_preprocessing_batch(session->gpu_preprocessing, batch);
    enum status status = time_copies(session, program, &given, batches, images_per_s);
    loader_return(loader, batch);
    return status;
}

enum part { LOADER, COPY, COMPUTE, PARTS };

static const struct {
    const char *name, *subject;
} part_words[PARTS] = {
    [LOADER] = {"loader", "the loader"},
    [COPY] = {"copy", "copying"},
    [COMPUTE] = {"compute", "computing"},
};

static double rate_of(const struct feed *feed, enum part part)
{
    const double rates[PARTS] = {[LOADER] = feed->loader, [COPY] = feed->copy, [COMPUTE] = feed->compute};
    return rates[part];
}

/* The slowest part, or the slowest except one. */
static enum part slowest(const struct feed *feed, enum part except)
{
    enum part found = PARTS;
    for (enum part part = LOADER; part < PARTS; part++) {
        if (part == except || rate_of(feed, part) <= 0) continue;
        if (found == PARTS || rate_of(feed, part) < rate_of(feed, found)) found = part;
    }
    return found;
}

const char *feed_limit(const struct feed *feed)
{
    return part_words[slowest(feed, PARTS)].name;
}

void feed_explain(const struct feed *feed, struct text *out)
{
    enum part first = slowest(feed, PARTS), second = slowest(feed, first);
    double rate = rate_of(feed, first);
    const char *subject = part_words[first].subject;
    text_add(out, "The bottleneck is %s: %s alone is %.1f times as fast", subject, part_words[second].subject,
             rate_of(feed, second) / rate);
    if (feed->together < TOGETHER_MIN * rate)
        text_add(out, ", and the combination reaches %.0f %% of %s alone%s", 100 * feed->together / rate,
                 subject, feed->copy > 0 ? "" : ", because they share the processors");
    text_add(out, ".");
}
