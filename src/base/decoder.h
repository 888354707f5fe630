/* decoder.h: the interface between a device that decodes JPEG images and the loader of a data set. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* An image to decode: a file that jpeg_plain accepts. */
struct decoder_image {
    const uint8_t *bytes;
    size_t count;
    int h, w;
    uint8_t *to;               /* device memory: interleaved RGB, rows without gaps; grey is replicated */
    bool good;                 /* output: it was decoded */
};

struct decoder {
    void *context;             /* first argument of the function */
    int engines;               /* hardware decoders, each of which decodes one image at a time */
    int callers;               /* threads that decode concurrently; others wait */
    int images;                /* number of images per call for best speed */
    int h, w;                  /* the largest image */
    int64_t bytes;             /* of device memory allocated for decoding */
    /* Thread-safe; blocks until the pixels are available on every stream. An image that cannot be decoded is
     * left to the caller. The pixels of an image do not depend on the others. */
    void (*decode)(void *context, struct decoder_image *images, int count);
};
