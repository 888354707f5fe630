/* data_case.h: what the tests of data/ share: image files made on the spot. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tests/support/files.h"

/* Bytes of a file, in memory that free() gives back. */
struct bytes {
    uint8_t *data;
    size_t count;
};

/* A PNG; `type` is libpng's colour type, `rows` what png_write_image wants, packed and big-endian.
 * A palette is 0, 1, 2, ... grey, with red the index doubled. */
struct bytes case_png(int w, int h, int depth, int type, bool interlaced, const uint8_t *pixels);

/* A JPEG of the best quality; `space` and `stored` are libjpeg's colour spaces of pixels and file. */
struct bytes case_jpeg(int w, int h, int space, int stored, bool progressive, const uint8_t *pixels);

/* Chroma is `down` times and `across` times coarser; a restart marker follows every `restart` blocks, 0:
 * none. */
struct jpeg_sampling {
    int down, across, restart;
    bool progressive;
};

/* A colour JPEG. */
struct bytes case_jpeg_sampled(int w, int h, struct jpeg_sampling sampling, const uint8_t *pixels);

/* The JPEG, which is freed, with an Exif segment after its first marker: `count` bytes of TIFF. */
struct bytes case_with_exif(struct bytes jpeg, const void *tiff, size_t count);
/* The JPEG file with an Orientation tag. */
struct bytes case_oriented(struct bytes jpeg, int orientation);

/* The PNG, which is freed, with an Orientation tag in an Exif chunk before its pixels or behind them. */
struct bytes case_oriented_png(struct bytes png, int orientation, bool behind);

/* An 8-bit RGB PNG of one colour. */
struct bytes case_plain_png(int w, int h, uint8_t red, uint8_t green, uint8_t blue);

/* Paths as in files.h. */
void case_write_bytes(const char *folder, const char *name, struct bytes bytes);   /* and frees them */
void case_write_gz(const char *folder, const char *name, const void *data, size_t count);
struct bytes case_read(const char *path);

/* $AMPTRAIN_DATA/NAME when it is there, otherwise the test that asks is skipped. The caller frees. */
char *case_data(const char *name);

/* Log lines are collected instead of printed, so that what is said can be looked at. */
void case_log_collect(void);
const char *case_log(void);          /* lines since case_log_collect, each ended by a newline */
