#include "input/decoding.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/memory.h"
#include "base/text.h"
#include "device/jpeg.h"
#include "input/caching.h"

/* So many concurrent calls, of so many images, keep the decoders busy even if decoding threads occupy the
 * processors: a third and a fourth call wait in the meantime. */
#define CALLERS 4
#define IMAGES 40
/* Larger images are left to workers: they are rare, and decoders allocate memory for the largest. */
#define SIDE_MAX 1024
/* ... so much for each call. */
#define CALL_BYTES ((int64_t)128 << 20)
/* Average memory for an image's pixels. */
#define IMAGE_BYTES ((int64_t)640 << 10)
/* Decoding memory is at most this share of memory.limit, and this many bytes, by default. */
#define LIMIT_SHARE 16
#define ROOM_UNASKED ((int64_t)4 << 30)
/* Minimum memory of an image in a cache: if all images fit by this measure, auto prefers the cache. */
#define CACHED_BYTES ((int64_t)128 << 10)

#define PARTS_KEY "sixteenths of JPEG files decoded by the device"

struct decoding {
    struct device *device;
    struct decoder decoder;
    uint8_t *room;
    int64_t room_bytes, batch_bytes;
    int parts;                   /* of DECODING_PARTS */
};

static const struct jpeg_backend *jpeg_of_build(enum device_kind kind)
{
    for (const struct device_backend *const *backend = device_backends; *backend; backend++)
        if ((*backend)->kind == kind) return (*backend)->jpeg;
    return NULL;
}

/* Why the device cannot decode; NULL: it can. */
static const char *refusal(const struct decoding_options *options)
{
    if (!jpeg_of_build(DEVICE_CUDA)) return "this build has no nvJPEG";
    if (options->kind != DEVICE_CUDA) return "run.device is the CPU";
    if (options->data->channels != 3) return "it decodes to RGB, but the images have other channels";
    if (options->data->bands.strict) return "data.channels and data.bands are found in files by the host";
    if (options->data->deep) return "images of more than 8 bits a sample are preprocessed on the host";
    if (options->cache == CACHE_HOST || options->cache == CACHE_DEVICE)
        return "loader.cache caches the images that CPU threads decode";
    return NULL;
}

static int64_t batch_bytes(const struct decoding_options *options)
{
    return options->batch * IMAGE_BYTES;
}

static int64_t room_bytes(const struct decoding_options *options)
{
    return (int64_t)loader_decoded_bytes(options->prefetch, (size_t)batch_bytes(options));
}

/* Device memory to be taken, before the decoders allocate theirs. */
static int64_t bytes_foreseen(const struct decoding_options *options)
{
    return room_bytes(options) + CALLERS * CALL_BYTES;
}

/* Why it should not by default; NULL: it should. */
static const char *drawback(const struct decoding_options *options)
{
    int64_t limit = options->memory_limit, cached = options->data->train.count * CACHED_BYTES;
    int64_t most = limit > 0 && limit / LIMIT_SHARE < ROOM_UNASKED ? limit / LIMIT_SHARE : ROOM_UNASKED;
    if (bytes_foreseen(options) > most)
        return "the buffers for a batch of images would be too large";
    if (options->cache != CACHE_NONE && cached <= (int64_t)caching_host_limit(options->cache_limit))
        return "all decoded images fit into host memory";
    return NULL;
}

static bool has_files(const struct decoding_options *options)
{
    const struct dataset *dataset = options->data->train.dataset;
    return dataset && dataset->decoded && dataset->format->read_file;
}

static bool is_allowed(const struct decoding_options *options)
{
    bool asked = options->decode != DECODE_CPU && !options->deterministic;
    return asked && has_files(options) && !refusal(options);
}

static bool is_wanted(const struct decoding_options *options)
{
    return is_allowed(options) && (options->decode == DECODE_GPU || !drawback(options));
}

static void say_drawback(const struct decoding_options *options)
{
    const char *why = options->deterministic ? "run.deterministic" : refusal(options);
    if (!why) why = drawback(options);
    if (why) log_detail("loader.decode: CPU threads decode: %s", why);
}

const char *decoding_refusal(const struct decoding_options *options)
{
    if (options->decode == DECODE_GPU) return refusal(options);
    bool could = options->kind == DEVICE_CUDA && has_files(options);
    if (could && options->decode == DECODE_AUTO) say_drawback(options);
    return NULL;
}

int64_t decoding_bytes(const struct decoding_options *options)
{
    return is_wanted(options) ? bytes_foreseen(options) : 0;
}

int64_t decoding_bytes_held(const struct decoding *decoding)
{
    return decoding ? decoding->room_bytes + decoding->decoder.bytes : 0;
}

uint8_t *decoding_room(const struct decoding *decoding)
{
    return decoding ? decoding->room : NULL;
}

struct loader_decoder decoding_of(const struct decoding *decoding)
{
    if (!decoding) return (struct loader_decoder){0};
    return (struct loader_decoder){
        .decoder = &decoding->decoder,
        .share = (double)decoding->parts / DECODING_PARTS,
        .room = decoding->room,
        .batch_bytes = (size_t)decoding->batch_bytes,
    };
}

void decoding_divide(struct decoding *decoding, int parts)
{
    decoding->parts = parts;
}

int decoding_chosen(struct device *device, const char *facts)
{
    char *text = device->backend->jpeg->chosen(device, PARTS_KEY, facts);
    int parts = text ? atoi(text) : -1;
    free(text);
    return parts > DECODING_PARTS ? DECODING_PARTS : parts;
}

void decoding_choose(struct device *device, const char *facts, int parts)
{
    char text[16];
    snprintf(text, sizeof text, "%d", parts);
    device->backend->jpeg->choose(device, PARTS_KEY, facts, text);
}

static bool ready(struct decoding *decoding, struct reason *reason)
{
    struct device *device = decoding->device;
    const struct jpeg_bounds bounds = {.callers = CALLERS, .images = IMAGES, .h = SIDE_MAX, .w = SIDE_MAX};
    if (!device->backend->jpeg->open(device, &bounds, &decoding->decoder, reason)) return false;
    decoding->room = device_allocate(device, (size_t)decoding->room_bytes, "decoded images");
    char bytes[TEXT_BYTES];
    return decoding->room || because(reason, "the device does not have %s for decoded images",
                                     text_bytes((size_t)decoding->room_bytes, bytes));
}

/* A run keeps its initial choice. */
static bool is_opened(const struct decoding_options *options)
{
    if (!is_allowed(options)) return false;
    if (options->decode == DECODE_GPU) return true;
    int parts = decoding_chosen(options->device, NULL);
    if (parts < 0 && drawback(options)) decoding_choose(options->device, NULL, parts = 0);
    return parts != 0;
}

/* If the device cannot decode, workers do, unless loader.decode=gpu. */
enum status decoding_open(const struct decoding_options *options, struct decoding **decoding)
{
    struct reason why;
    *decoding = NULL;
    if (options->deterministic && options->decode == DECODE_GPU)
        log_info("loader.decode: CPU threads decode, because of run.deterministic");
    if (!is_opened(options)) return OK;
    struct decoding *made = memory_new(1, sizeof *made);
    *made = (struct decoding){.device = options->device, .room_bytes = room_bytes(options),
                              .batch_bytes = batch_bytes(options)};
    if (ready(made, &why)) {
        *decoding = made;
        return OK;
    }
    decoding_close(made);
    if (options->decode == DECODE_GPU)
        return fail(NO_DEVICE, "loader.decode: gpu is not possible: %s", why.text);
    log_detail("loader.decode: CPU threads decode: %s", why.text);
    return OK;
}

void decoding_close(struct decoding *decoding)
{
    if (!decoding) return;
    if (decoding->decoder.context) decoding->device->backend->jpeg->close(&decoding->decoder);
    if (decoding->room) device_release(decoding->device, decoding->room, (size_t)decoding->room_bytes);
    free(decoding);
}
