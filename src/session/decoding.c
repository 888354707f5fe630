#include "session/decoding.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "data/gpu_preprocessing.h"
#include "device/jpeg.h"
#include "compile/cost.h"
#include "kernels/op.h"
#include "session/step.h"

/* The engines are busy with so many calls at once, of so many images, even where threads that decode have the
 * processors: a third and a fourth call wait for them meanwhile. */
#define CALLERS 4
#define IMAGES 40
/* Larger images are left to workers: they are few, and engines take memory for the largest. */
#define SIDE_MAX 1024
/* ... so much for each call. */
#define CALL_BYTES ((int64_t)128 << 20)
/* Room for an image's pixels, on the average. */
#define IMAGE_BYTES ((int64_t)640 << 10)
/* The room is at most this share of memory.limit, and so many bytes, unless it is asked for. */
#define LIMIT_SHARE 16
#define ROOM_UNASKED ((int64_t)4 << 30)
/* An image takes at least as much in a cache: one that all fit into by this measure is what auto prefers. */
#define CACHED_BYTES ((int64_t)128 << 10)

/* The division is counted in these; fewer are not worth it. */
#define PARTS 16
#define PARTS_LEAST 2
#define PARTS_KEY "sixteenths of JPEG files decoded by the device"
#define MEASURED_SECONDS 0.5
/* While a step computes, engines wait for it: on an H200 they decode 18,900 images a second alone, 12,900
 * beside ResNet-18, 6,400 beside ResNet-50. */
#define BESIDE_A_STEP 1.5
/* The step waits for them as well: ResNet-50's loses a tenth. So they are for steps that workers alone may
 * not keep up with. A step is at most so much faster than it is modelled to be: on an H200, ResNet-50's by
 * 1.09, ResNet-18's by 1.14; VGG-16's by more, but that is not a step to wait for images. */
#define FASTER_MOST 1.2

struct decoding {
    struct device *device;
    struct decoder decoder;
    uint8_t *room;
    int64_t room_bytes, batch_bytes;
    int parts;
};

static const struct jpeg_backend *jpeg_of_build(enum device_kind kind)
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if ((*backend)->kind == kind) return (*backend)->jpeg;
    return NULL;
}

/* Why the device cannot decode; NULL: it can. */
static const char *refusal(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    if (!jpeg_of_build(DEVICE_CUDA)) return "this build has no nvJPEG";
    if (setup_device_kind(setup) != DEVICE_CUDA) return "run.device is the CPU";
    if (setup->channels != 3) return "it decodes to colours, and the images are grey";
    if (augment_is_varied(&setup->augment))
        return "a GPU does not do augment.jitter and augment.auto_augment";
    if (settings->loader.cache == CACHE_HOST || settings->loader.cache == CACHE_DEVICE)
        return "loader.cache keeps what workers decode";
    return NULL;
}

static int64_t batch_bytes(const struct setup *setup)
{
    return setup->batch * IMAGE_BYTES;
}

static int64_t room_bytes(const struct setup *setup)
{
    return (int64_t)loader_decoded_bytes(setup_prefetch(setup), (size_t)batch_bytes(setup));
}

/* Of the device's memory, as long as the engines have not taken theirs. */
static int64_t bytes_foreseen(const struct setup *setup)
{
    return room_bytes(setup) + CALLERS * CALL_BYTES;
}

/* Why it should not, unasked; NULL: it should. */
static const char *drawback(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    int64_t limit = setup_limit(setup), cached = setup->train.count * CACHED_BYTES;
    int64_t most = limit > 0 && limit / LIMIT_SHARE < ROOM_UNASKED ? limit / LIMIT_SHARE : ROOM_UNASKED;
    if (bytes_foreseen(setup) > most)
        return "the room for a batch's images would be much of the device's memory";
    if (settings->loader.cache != CACHE_NONE && cached <= (int64_t)setup_cache_limit(setup))
        return "there is memory to keep decoded images in";
    return NULL;
}

static bool has_files(const struct setup *setup)
{
    const struct dataset *dataset = setup->train.dataset;
    return dataset && dataset->decoded && dataset->format->read_file;
}

static bool is_allowed(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    bool asked = settings->loader.decode != DECODE_CPU && !settings->run.deterministic;
    return asked && has_files(setup) && !refusal(setup);
}

static bool is_wanted(const struct setup *setup)
{
    return is_allowed(setup) && (setup->settings->loader.decode == DECODE_GPU || !drawback(setup));
}

static void say_drawback(const struct setup *setup)
{
    const char *why = setup->settings->run.deterministic ? "run.deterministic" : refusal(setup);
    if (!why) why = drawback(setup);
    if (why) log_detail("loader.decode: workers decode: %s", why);
}

enum status decoding_check(const struct setup *setup)
{
    const struct settings *settings = setup->settings;
    const char *why = settings->loader.decode == DECODE_GPU ? refusal(setup) : NULL;
    if (why) return setup_refuse(setup, "loader", "decode", "'gpu' is not possible: %s", why);
    bool could = setup_device_kind(setup) == DEVICE_CUDA && has_files(setup);
    if (could && settings->loader.decode == DECODE_AUTO) say_drawback(setup);
    return OK;
}

int64_t decoding_bytes(const struct setup *setup)
{
    const struct decoding *decoding = setup->decoding;
    if (setup->device) return decoding ? decoding->room_bytes + decoding->decoder.bytes : 0;
    return is_wanted(setup) ? bytes_foreseen(setup) : 0;
}

struct loader_decoder decoding_of(const struct setup *setup)
{
    const struct decoding *decoding = setup->decoding;
    if (!decoding) return (struct loader_decoder){0};
    return (struct loader_decoder){
        .decoder = &decoding->decoder,
        .share = (double)decoding->parts / PARTS,
        .room = decoding->room,
        .batch_bytes = (size_t)decoding->batch_bytes,
    };
}

/* The division */

/* Loading for some time. */
struct pace {
    int64_t batches;           /* as many as there were time for; or the most there shall be */
    double images_per_s;
    double decoded;            /* by the device, of all */
};

static int count_decoded(const struct setup *setup, const struct batch *batch)
{
    const struct finish *images = batch->images;
    int count = 0;
    for (int i = 0; i < setup->batch; i++) count += !images[i].blank && images[i].place == FINISH_DECODED;
    return count;
}

/* Batches that were begun before are no measure. */
static enum status keep_pace(struct setup *setup, struct loader *loader, struct pace *pace)
{
    struct batch *batch;
    int64_t epoch = 0, batches = -setup_prefetch(setup) - 1, decoded = 0, most = pace->batches;
    double from = clock_seconds(), passed = 0;
    TRY(loader_start(loader, epoch, 0));
    while (passed < MEASURED_SECONDS && batches < most) {
        TRY(loader_next(loader, &batch, NULL));
        if (!batch) {
            TRY(loader_start(loader, ++epoch, 0));
            continue;
        }
        if (batches >= 0) decoded += count_decoded(setup, batch);
        loader_return(loader, batch);
        if (++batches == 0) from = clock_seconds();
        if (batches > 0) passed = clock_seconds() - from;
    }
    double images = (double)batches * (double)setup->batch;
    *pace = (struct pace){batches, images / passed, (double)decoded / images};
    return OK;
}

static enum status measure(struct setup *setup, int parts, struct pace *pace)
{
    struct loader *loader;
    setup->decoding->parts = parts;
    TRY(setup_measured_loader(setup, &loader));
    enum status status = keep_pace(setup, loader, pace);
    loader_close(loader);
    return status;
}

/* Images of which no GPU of today does more in a second. */
static enum status step_most(const struct setup *setup, double *images_per_s)
{
    struct program program;
    TRY(step_program(setup, STEP_TRAINING, &program));
    *images_per_s = FASTER_MOST * (double)setup->batch / cost_program(&program);
    program_free(&program);
    return OK;
}

/* None if workers do all that a step asks for; else so many that both are done at the same time; the device
 * can only be given what it can decode. The first time, files may come from a disk, by which no decoder
 * should be judged: then they are read again. */
static enum status measure_parts(struct setup *setup, double needed, int *parts)
{
    struct pace cold = {.batches = INT32_MAX}, workers, engines;
    TRY(measure(setup, PARTS, &cold));
    engines = workers = (struct pace){.batches = cold.batches};
    TRY(measure(setup, PARTS, &engines));
    TRY(measure(setup, 0, &workers));
    double device = engines.images_per_s / BESIDE_A_STEP;
    double share = device / (engines.decoded * device + workers.images_per_s);
    *parts = (int)(PARTS * (share < 1 ? share : 1) + 0.5);
    if (*parts * engines.decoded < PARTS_LEAST || workers.images_per_s >= needed) *parts = 0;
    log_detail("loader.decode: a step takes at most %.0f images a second", needed);
    log_detail("loader.decode: workers make %.0f images a second; with the device %.0f, of which it decodes "
               "%.0f %%", workers.images_per_s, engines.images_per_s, 100 * engines.decoded);
    return OK;
}

/* What the division depends on. Not loader.workers, on which no bit of a batch does: it is measured with as
 * many as there would be without. */
static char *facts_of(const struct setup *setup, double needed)
{
    return text_format("%lld images to %d x %d, at most %.0f a second, %d processors",
                       (long long)setup->train.count, setup->train.h, setup->train.w, needed,
                       setup_processors());
}

/* What was chosen before, or -1. */
static int known_parts(const struct setup *setup, const char *facts)
{
    char *text = setup->device->backend->jpeg->chosen(setup->device, PARTS_KEY, facts);
    int parts = text ? atoi(text) : -1;
    free(text);
    return parts > PARTS ? PARTS : parts;
}

static void choose_parts(const struct setup *setup, const char *facts, int parts)
{
    char text[16];
    snprintf(text, sizeof text, "%d", parts);
    setup->device->backend->jpeg->choose(setup->device, PARTS_KEY, facts, text);
}

static enum status settle(struct setup *setup)
{
    bool asked = setup->settings->loader.decode == DECODE_GPU;
    double needed = 0;
    if (!asked) TRY(step_most(setup, &needed));
    char *facts = asked ? NULL : facts_of(setup, needed);
    int parts = asked ? PARTS : known_parts(setup, facts);
    enum status status = parts < 0 ? measure_parts(setup, needed, &parts) : OK;
    if (status == OK) choose_parts(setup, facts, parts);
    setup->decoding->parts = parts;
    free(facts);
    return status;
}

static bool ready(struct setup *setup, struct reason *reason)
{
    struct decoding *decoding = setup->decoding;
    const struct jpeg_bounds bounds = {.callers = CALLERS, .images = IMAGES, .h = SIDE_MAX, .w = SIDE_MAX};
    if (!setup->device->backend->jpeg->open(setup->device, &bounds, &decoding->decoder, reason)) return false;
    decoding->room = device_allocate(setup->device, (size_t)decoding->room_bytes, "decoded images");
    char bytes[TEXT_BYTES];
    return decoding->room || because(reason, "the device has not %s for decoded images",
                                     text_bytes((size_t)decoding->room_bytes, bytes));
}

/* Where the device cannot, workers do, unless that was not asked for. */
static enum status open_or_do_without(struct setup *setup)
{
    struct reason why;
    if (ready(setup, &why)) return settle(setup);
    if (setup->settings->loader.decode == DECODE_GPU)
        return fail(NO_DEVICE, "loader.decode: 'gpu' is not possible: %s", why.text);
    log_detail("loader.decode: workers decode: %s", why.text);
    setup->decoding->parts = 0;
    return OK;
}

/* A run stays with what it began with. */
static bool is_opened(const struct setup *setup)
{
    if (!is_allowed(setup)) return false;
    if (setup->settings->loader.decode == DECODE_GPU) return true;
    int parts = known_parts(setup, NULL);
    if (parts < 0 && drawback(setup)) choose_parts(setup, NULL, parts = 0);
    return parts != 0;
}

enum status decoding_open(struct setup *setup)
{
    if (setup->settings->run.deterministic && setup->settings->loader.decode == DECODE_GPU)
        log_info("loader.decode: workers decode, as run.deterministic asks for what they make of an image");
    if (!is_opened(setup)) return OK;
    struct decoding *decoding = memory_new(1, sizeof *decoding);
    *decoding = (struct decoding){.device = setup->device, .room_bytes = room_bytes(setup),
                                  .batch_bytes = batch_bytes(setup)};
    setup->decoding = decoding;
    enum status status = open_or_do_without(setup);
    if (status == OK && decoding->parts > 0) {
        log_detail("loader.decode: the device decodes %d of %d training images", decoding->parts, PARTS);
        return OK;
    }
    decoding_close(setup);
    return status;
}

void decoding_close(struct setup *setup)
{
    struct decoding *decoding = setup->decoding;
    if (!decoding) return;
    if (decoding->decoder.context) decoding->device->backend->jpeg->close(&decoding->decoder);
    if (decoding->room) device_release(decoding->device, decoding->room, (size_t)decoding->room_bytes);
    free(decoding);
    setup->decoding = NULL;
}
