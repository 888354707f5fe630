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
    bool good;                 /* afterwards: the pixels are there */
};

struct decoder {
    void *context;             /* what the function gets first */
    int engines;               /* made for nothing else, that decode an image each */
    int callers;               /* threads that decode at once; others wait until one of them is done */
    int images;                /* of one call, at best */
    int h, w;                  /* the largest image */
    int64_t bytes;             /* of the device's memory, taken for this */
    /* Any thread; sleeps until the pixels are there for every stream. An image that is not good is left to
     * somebody else. The same image gives the same pixels in any company. */
    void (*decode)(void *context, struct decoder_image *images, int count);
};
