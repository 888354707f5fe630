#include "device/cuda_parts.h"

#include <nvjpeg.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "base/library.h"
#include "base/memory.h"
#include "device/cuda.h"
#include "device/cuda_tuning.h"

#define FUNCTIONS(X)                                                                                        \
    X(nvjpegGetProperty) X(nvjpegCreateExV2) X(nvjpegDestroy) X(nvjpegGetHardwareDecoderInfo)               \
    X(nvjpegJpegStateCreate) X(nvjpegJpegStateDestroy) X(nvjpegDecodeBatchedInitialize)                     \
    X(nvjpegDecodeBatchedPreAllocate) X(nvjpegDecodeBatched)

struct nvjpeg {
    FUNCTIONS(LIBRARY_MEMBER)
};
LIBRARY_ONCE(static, nvjpeg, LIBRARY_FILE("nvjpeg", NVJPEG_VER_MAJOR), FUNCTIONS)

/* A decoder state, and the lists of a batch, for one caller at a time. */
struct decode_slot {
    bool taken;
    nvjpegJpegState_t state;
    cudaStream_t stream;
    cudaEvent_t done;          /* whoever waits for it sleeps */
    const unsigned char **bytes;
    size_t *counts;
    nvjpegImage_t *images;
    int *indices;              /* of the images of this batch among those of the call */
    int initialised;           /* images that the state is ready for */
};

struct cuda_decoder {
    struct device *device;
    struct jpeg_bounds bounds;
    nvjpegHandle_t library;
    int engines;
    pthread_mutex_t lock;      /* over the rest */
    pthread_cond_t left;       /* a slot was released */
    struct decode_slot *slots;
    struct piece *pieces;      /* memory that the library holds */
    bool closed;               /* to further wishes for memory */
};

/* An allocation of the library. Releasing needs the size. */
struct piece {
    struct piece *next;
    void *memory;
    size_t bytes;
    bool host;
};

static const char *reason_of(nvjpegStatus_t status)
{
    switch (status) {
    case NVJPEG_STATUS_SUCCESS: return "no error";
    case NVJPEG_STATUS_NOT_INITIALIZED: return "not initialised";
    case NVJPEG_STATUS_INVALID_PARAMETER: return "a wrong parameter";
    case NVJPEG_STATUS_BAD_JPEG: return "a broken image";
    case NVJPEG_STATUS_JPEG_NOT_SUPPORTED: return "an image of a kind it does not know";
    case NVJPEG_STATUS_ALLOCATOR_FAILURE: return "no memory";
    case NVJPEG_STATUS_EXECUTION_FAILED: return "the GPU failed";
    case NVJPEG_STATUS_ARCH_MISMATCH: return "not for this GPU";
    case NVJPEG_STATUS_INTERNAL_ERROR: return "an internal error";
    case NVJPEG_STATUS_IMPLEMENTATION_NOT_SUPPORTED: return "not in this version";
    case NVJPEG_STATUS_INCOMPLETE_BITSTREAM: return "an image that ends too early";
    }
    return "an unknown error";
}

static bool jpeg_good(nvjpegStatus_t status, const char *trying, struct reason *reason)
{
    return status == NVJPEG_STATUS_SUCCESS || because(reason, "nvJPEG, %s: %s", trying, reason_of(status));
}

static bool cuda_good(cudaError_t error, const char *trying, struct reason *reason)
{
    return error == cudaSuccess || because(reason, "CUDA, %s: %s", trying, cudaGetErrorString(error));
}

/* Memory: the library's wishes are granted while it is opened, and no longer */

static int jpeg_allocate(struct cuda_decoder *decoder, void **memory, size_t bytes, bool host)
{
    pthread_mutex_lock(&decoder->lock);
    void *taken = NULL;
    if (!decoder->closed)
        taken = host ? decoder->device->backend->memory.host_allocate(decoder->device, bytes)
                     : device_allocate(decoder->device, bytes, "decoding of JPEG images");
    if (taken) {
        struct piece *piece = memory_new(1, sizeof *piece);
        *piece = (struct piece){decoder->pieces, taken, bytes, host};
        decoder->pieces = piece;
        *memory = taken;
    }
    pthread_mutex_unlock(&decoder->lock);
    return taken ? 0 : 1;
}

static int jpeg_free(struct cuda_decoder *decoder, void *memory)
{
    pthread_mutex_lock(&decoder->lock);
    struct piece **at = &decoder->pieces;
    while (*at && (*at)->memory != memory) at = &(*at)->next;
    struct piece *piece = *at;
    if (piece) {
        *at = piece->next;
        if (piece->host) decoder->device->backend->memory.host_free(decoder->device, memory, piece->bytes);
        else device_release(decoder->device, memory, piece->bytes);
        free(piece);
    }
    pthread_mutex_unlock(&decoder->lock);
    return piece || !memory ? 0 : 1;
}

static int jpeg_device_allocate(void *decoder, void **memory, size_t bytes, cudaStream_t stream)
{
    return jpeg_allocate(decoder, memory, bytes, false);
}

static int jpeg_host_allocate(void *decoder, void **memory, size_t bytes, cudaStream_t stream)
{
    return jpeg_allocate(decoder, memory, bytes, true);
}

static int jpeg_stream_free(void *decoder, void *memory, size_t bytes, cudaStream_t stream)
{
    if (stream) cudaStreamSynchronize(stream);
    return jpeg_free(decoder, memory);
}

/* Slots */

/* A stream, and an event that sleeps. */
static bool stream_open(struct decode_slot *slot, struct reason *reason)
{
    int least, greatest;
    return cuda_good(cudaDeviceGetStreamPriorityRange(&least, &greatest), "reading priorities", reason) &&
           cuda_good(cudaStreamCreateWithPriority(&slot->stream, cudaStreamNonBlocking, greatest),
                     "creating a stream", reason) &&
           cuda_good(cudaEventCreateWithFlags(&slot->done, cudaEventBlockingSync | cudaEventDisableTiming),
                     "creating an event", reason);
}

/* Makes the slot's state ready for so many images at once. */
static nvjpegStatus_t slot_initialise(struct cuda_decoder *decoder, struct decode_slot *slot, int count)
{
    if (slot->initialised == count) return NVJPEG_STATUS_SUCCESS;
    nvjpegStatus_t status =
        nvjpeg()->nvjpegDecodeBatchedInitialize(decoder->library, slot->state, count, 1, NVJPEG_OUTPUT_RGBI);
    slot->initialised = status == NVJPEG_STATUS_SUCCESS ? count : 0;
    return status;
}

static bool slot_open(struct cuda_decoder *decoder, struct decode_slot *slot, struct reason *reason)
{
    const struct jpeg_bounds *bounds = &decoder->bounds;
    size_t count = (size_t)bounds->images;
    slot->bytes = memory_new(count, sizeof *slot->bytes);
    slot->counts = memory_new(count, sizeof *slot->counts);
    slot->images = memory_new(count, sizeof *slot->images);
    slot->indices = memory_new(count, sizeof *slot->indices);
    nvjpegHandle_t library = decoder->library;
    return stream_open(slot, reason) &&
           jpeg_good(nvjpeg()->nvjpegJpegStateCreate(library, &slot->state), "making a decoder", reason) &&
           jpeg_good(slot_initialise(decoder, slot, bounds->images), "readying a decoder", reason) &&
           jpeg_good(nvjpeg()->nvjpegDecodeBatchedPreAllocate(library, slot->state, bounds->images, bounds->w,
                                                              bounds->h, NVJPEG_CSS_444,
                                                              NVJPEG_OUTPUT_RGBI),
                     "taking memory for a decoder", reason);
}

static void slot_close(struct decode_slot *slot)
{
    if (slot->stream) cudaStreamSynchronize(slot->stream);
    if (slot->state) nvjpeg()->nvjpegJpegStateDestroy(slot->state);
    if (slot->done) cudaEventDestroy(slot->done);
    if (slot->stream) cudaStreamDestroy(slot->stream);
    free(slot->bytes);
    free(slot->counts);
    free(slot->images);
    free(slot->indices);
}

static struct decode_slot *slot_acquire(struct cuda_decoder *decoder)
{
    struct decode_slot *found = NULL;
    pthread_mutex_lock(&decoder->lock);
    for (;;) {
        for (int i = 0; i < decoder->bounds.callers && !found; i++)
            if (!decoder->slots[i].taken) found = &decoder->slots[i];
        if (found) break;
        pthread_cond_wait(&decoder->left, &decoder->lock);
    }
    found->taken = true;
    pthread_mutex_unlock(&decoder->lock);
    return found;
}

static void slot_release(struct cuda_decoder *decoder, struct decode_slot *slot)
{
    pthread_mutex_lock(&decoder->lock);
    slot->taken = false;
    pthread_cond_signal(&decoder->left);
    pthread_mutex_unlock(&decoder->lock);
}

/* Decoding */

/* So many of the slot's images, from `first` on: all or none. */
static bool decode_all(struct cuda_decoder *decoder, struct decode_slot *slot, int first, int count)
{
    if (slot_initialise(decoder, slot, count) != NVJPEG_STATUS_SUCCESS) return false;
    nvjpegStatus_t status =
        nvjpeg()->nvjpegDecodeBatched(decoder->library, slot->state, slot->bytes + first,
                                      slot->counts + first, slot->images + first, slot->stream);
    bool queued = cudaEventRecord(slot->done, slot->stream) == cudaSuccess;
    bool passed = queued && cudaEventSynchronize(slot->done) == cudaSuccess;
    if (status == NVJPEG_STATUS_SUCCESS && passed) return true;
    slot->initialised = 0;               /* "if the batch decoding fails", as nvJPEG's manual asks */
    return false;
}

static bool image_fits(const struct cuda_decoder *decoder, const struct decoder_image *image)
{
    return image->h <= decoder->bounds.h && image->w <= decoder->bounds.w;
}

/* Lists what can be decoded; how many. */
static int slot_fill(struct cuda_decoder *decoder, struct decode_slot *slot, struct decoder_image *images,
                     int count)
{
    int filled = 0;
    for (int i = 0; i < count; i++) {
        images[i].good = false;
        if (!image_fits(decoder, &images[i])) continue;
        slot->bytes[filled] = images[i].bytes;
        slot->counts[filled] = images[i].count;
        slot->images[filled] = (nvjpegImage_t){.channel = {images[i].to}, .pitch = {3 * (size_t)images[i].w}};
        slot->indices[filled++] = i;
    }
    return filled;
}

/* Where something is wrong with one of them, each for itself tells which. */
static void decode_up_to_bound(struct cuda_decoder *decoder, struct decode_slot *slot,
                               struct decoder_image *images, int count)
{
    int filled = slot_fill(decoder, slot, images, count);
    if (filled == 0) return;
    bool all = decode_all(decoder, slot, 0, filled);
    for (int i = 0; i < filled; i++)
        images[slot->indices[i]].good = all || (filled > 1 && decode_all(decoder, slot, i, 1));
}

static void cuda_jpeg_decode(void *context, struct decoder_image *images, int count)
{
    struct cuda_decoder *decoder = context;
    struct decode_slot *slot = slot_acquire(decoder);
    cudaSetDevice(decoder->device->index);
    for (int i = 0; i < count; i += decoder->bounds.images) {
        int rest = count - i, most = decoder->bounds.images;
        decode_up_to_bound(decoder, slot, images + i, rest < most ? rest : most);
    }
    slot_release(decoder, slot);
}

/* Opening */

/* Arithmetic units could decode, too, but they have the step to do. */
static bool engines_open(struct cuda_decoder *decoder, struct reason *reason)
{
    nvjpegDevAllocatorV2_t on_device = {jpeg_device_allocate, jpeg_stream_free, decoder};
    nvjpegPinnedAllocatorV2_t on_host = {jpeg_host_allocate, jpeg_stream_free, decoder};
    nvjpegStatus_t status =
        nvjpeg()->nvjpegCreateExV2(NVJPEG_BACKEND_HARDWARE, &on_device, &on_host, NVJPEG_FLAGS_DEFAULT,
                                   &decoder->library);
    unsigned engines = 0, cores = 0;
    if (status != NVJPEG_STATUS_SUCCESS) decoder->library = NULL;
    if (!jpeg_good(status, "looking for engines that decode", reason) ||
        !jpeg_good(nvjpeg()->nvjpegGetHardwareDecoderInfo(decoder->library, &engines, &cores),
                   "counting engines", reason))
        return false;
    decoder->engines = (int)(engines * cores);
    return decoder->engines > 0 || because(reason, "the GPU has no JPEG decoders");
}

static void decoder_free(struct cuda_decoder *decoder)
{
    for (int i = 0; i < decoder->bounds.callers; i++) slot_close(&decoder->slots[i]);
    if (decoder->library) nvjpeg()->nvjpegDestroy(decoder->library);
    while (decoder->pieces) jpeg_free(decoder, decoder->pieces->memory);
    pthread_cond_destroy(&decoder->left);
    pthread_mutex_destroy(&decoder->lock);
    free(decoder->slots);
    free(decoder);
}

static void cuda_jpeg_close(struct decoder *decoder)
{
    if (decoder->context) decoder_free(decoder->context);
    *decoder = (struct decoder){0};
}

static int64_t bytes_taken(const struct cuda_decoder *decoder)
{
    int64_t bytes = 0;
    for (const struct piece *piece = decoder->pieces; piece; piece = piece->next)
        if (!piece->host) bytes += (int64_t)piece->bytes;
    return bytes;
}

static bool cuda_jpeg_open(struct device *device, const struct jpeg_bounds *bounds, struct decoder *result,
                           struct reason *reason)
{
    struct reason why;
    struct cuda_decoder *decoder = memory_new(1, sizeof *decoder);
    *decoder = (struct cuda_decoder){.device = device, .bounds = *bounds};
    decoder->slots = memory_new((size_t)bounds->callers, sizeof *decoder->slots);
    pthread_mutex_init(&decoder->lock, NULL);
    pthread_cond_init(&decoder->left, NULL);
    bool good = nvjpeg_open(&why) && engines_open(decoder, &why);
    for (int i = 0; i < bounds->callers && good; i++) good = slot_open(decoder, &decoder->slots[i], &why);
    if (!good) {
        decoder_free(decoder);
        return because(reason, "%s: %.180s", cuda_facts(device)->name, why.text);
    }
    decoder->closed = true;
    *result = (struct decoder){
        .context = decoder,
        .engines = decoder->engines,
        .callers = bounds->callers,
        .images = bounds->images,
        .h = bounds->h,
        .w = bounds->w,
        .bytes = bytes_taken(decoder),
        .decode = cuda_jpeg_decode,
    };
    return true;
}

/* Choices */

void cuda_jpeg_library(struct text *out)
{
    int major = 0, minor = 0, patch = 0;
    struct reason why;
    if (!nvjpeg_open(&why)) {
        text_add(out, ", no nvJPEG (%s)", why.text);
        return;
    }
    nvjpeg()->nvjpegGetProperty(MAJOR_VERSION, &major);
    nvjpeg()->nvjpegGetProperty(MINOR_VERSION, &minor);
    nvjpeg()->nvjpegGetProperty(PATCH_LEVEL, &patch);
    text_add(out, ", nvJPEG %d.%d.%d", major, minor, patch);
}

/* A choice's key in the file; the caller frees it. */
static char *key_new(const struct device *device, const char *what, const char *facts)
{
    struct text key = {0};
    text_add(&key, "%s", cuda_facts(device)->name);
    cuda_jpeg_library(&key);
    text_add(&key, ", %s, %s", what, facts);
    return key.data;
}

static char *jpeg_chosen(struct device *device, const char *what, const char *facts)
{
    char *choice = cuda_choice(device, what);
    if (choice || !facts) return choice;
    char *key = key_new(device, what, facts);
    struct tuning *tuning = tuning_open();
    const char *remembered = tuning_find(tuning, key);
    if (remembered) choice = text_copy(remembered);
    tuning_close(tuning);
    free(key);
    return choice;
}

static void jpeg_choose(struct device *device, const char *what, const char *facts, const char *choice)
{
    cuda_choose(device, what, choice);
    if (!facts) return;
    char *key = key_new(device, what, facts);
    struct tuning *tuning = tuning_open();
    const char *remembered = tuning_find(tuning, key);
    if (!remembered || strcmp(remembered, choice) != 0) tuning_set(tuning, key, choice);
    tuning_close(tuning);
    free(key);
}

const struct jpeg_backend cuda_jpeg = {
    .open = cuda_jpeg_open,
    .close = cuda_jpeg_close,
    .chosen = jpeg_chosen,
    .choose = jpeg_choose,
};
