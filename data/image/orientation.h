/* orientation.h: the rotation and mirroring that the Exif Orientation tag of an image asks for. */
#pragma once

#include "data/image/image.h"

/* Exif's Orientation (CIPA DC-008, TIFF 6.0): on which sides of the image the first row and the first column
 * of the stored pixels are. 1 is upright, 2 to 4 are mirrored or upside down, 5 to 8 have rows and columns
 * swapped. */

/* 1 to 8; 1 if the file has no valid value. Of a JPEG the header alone is read, of a PNG and of a WebP the
 * heads of its chunks: Exif may come last (PNG, third edition, eXIf; RFC 9649). */
int orientation_of_jpeg(const uint8_t *bytes, size_t count);
int orientation_of_png(const uint8_t *bytes, size_t count);
int orientation_of_webp(const uint8_t *bytes, size_t count);

/* Applies the orientation to a whole image as stored. False, with the reason: no memory. */
bool orientation_turn(struct image *image, int orientation, struct reason *reason);

/* Converts a part of the h x w stored pixels to a part of the oriented image; and vice versa, h x w being the
 * stored pixels in both. */
struct box orientation_upright(int orientation, struct box stored, int h, int w);
struct box orientation_stored(int orientation, struct box upright, int h, int w);

/* The positions of stored pixels in an oriented buffer, in bytes: the first one; from one row of them to the
 * next, and from one pixel of a row to the next. */
struct strides {
    ptrdiff_t first, row, pixel;
};

/* For h x w stored pixels of c bytes, which fill the buffer. */
struct strides orientation_strides(int orientation, int h, int w, int c);
