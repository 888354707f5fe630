/* onnx_geometry.h: resizing, centre crop, borders and stretching of images of any size, as nodes of an ONNX
 * graph, with the bytes that data/augment makes of them. */
#pragma once

#include "data/augment/augment.h"
#include "format/onnx.h"

/* Writes nodes that bring "input", n x h x w x c bytes, which `planes` has as floats of n x c x h x w, to the
 * window's size as an evaluation does. Returns the value: whole numbers from 0 to 255, n x c x window. */
const char *onnx_geometry(struct onnx *onnx, const struct augment *augment, struct image_size window,
                          const char *planes);
