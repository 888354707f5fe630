/* cuda_parts.h: parts of the back end in separate files; for cuda.c and cuda_jpeg.c. */
#pragma once

#include "device/jpeg.h"

/* JPEG decoding by nvJPEG, on hardware decoders if the GPU has them. */
extern const struct jpeg_backend cuda_jpeg;

/* ", nvJPEG 13.0.4", or why there is none: for --version. */
void cuda_jpeg_library(struct text *out);
