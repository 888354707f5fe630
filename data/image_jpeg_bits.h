/* image_jpeg_bits.h: a faster reader of Huffman-coded coefficients, put in place of libjpeg-turbo's own. */
#ifndef DATA_IMAGE_JPEG_BITS_H
#define DATA_IMAGE_JPEG_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include <jpeglib.h>

/* Bits that are looked up at once. */
#define BITS_LOOK 11
#define BITS_PATTERNS (1 << BITS_LOOK)

/* A Huffman code (ITU-T T.81, annexes C and F). */
struct bits_code {
    /* What a pattern of bits begins with. From the lowest bit up: 8 bits, the length of a coefficient's code
     * and value; 8 bits, the zeros before it, BITS_BEYOND where the block ends; 16 bits, the value. Where not
     * all of that is in the pattern: length 0, BITS_BEYOND zeros, 8 bits of symbol, 8 bits of code length,
     * which is 0 if not even the code is. */
    uint32_t one[BITS_PATTERNS];
    /* For who does not want them, as many coefficients as are there: 8 bits, the length of all; 8 bits, how
     * far they lead, BITS_BEYOND more if the block ends with them, BITS_BEYOND - 1 if there is none. */
    uint16_t many[BITS_PATTERNS];
    int32_t after[17];         /* by length: the first code that is not of it, in 16 bits */
    int32_t offset[17];        /* by length: from a code to the place of its symbol */
    const uint8_t *all;        /* symbols in order of their codes */
};
#define BITS_BEYOND 128

/* What was read and not used. */
struct bits_window {
    const uint8_t *at;         /* of what comes next */
    uint64_t bits;             /* from the uppermost bit down */
    int count;                 /* of them */
};

struct bits {
    struct bits_window window;
    const uint8_t *end;        /* of the data */
    const uint8_t *last_eight; /* where eight bytes can still be read */
    int made_up;               /* zeros after the end of the data that went into the window */
    int last_dc[MAX_COMPS_IN_SCAN];
    JDIMENSION column;         /* of the next MCU */
    JDIMENSION first, last;    /* columns whose coefficients are wanted */
    struct bits_code dc[2], ac[2];
};

/* After jpeg_start_decompress, of data that jpeg_mem_src was given all of. jpeg->client_data must point to
 * a struct bits that lives as long as the image is decoded, or to what begins with one. Of the image,
 * `count` columns of pixels from `from` on are wanted. Does nothing for what is not baseline, in one scan,
 * and without restarts: then, and of every error, libjpeg has the last word. */
void bits_take_over(j_decompress_ptr jpeg, int from, int count);

#endif
