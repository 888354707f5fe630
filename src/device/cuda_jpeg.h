/* cuda_jpeg.h: JPEG images decoded by nvJPEG, on the engines made for them where the GPU has such. */
#ifndef DEVICE_CUDA_JPEG_H
#define DEVICE_CUDA_JPEG_H

#include "device/jpeg.h"

extern const struct jpeg_backend cuda_jpeg;

/* ", nvJPEG 13.0.4": for --version. */
void cuda_jpeg_library(struct text *out);

#endif
