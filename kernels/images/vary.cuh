/* vary.cuh: changes pictures of bytes, and writes them as numbers. */
#pragma once

extern "C" {
#include "kernels/images/images.h"
}

/* Queues images first..first + count of a job, whose windows are the first of each pair of pictures. */
enum status queue_vary(const struct images_job *job, int first, int count);
