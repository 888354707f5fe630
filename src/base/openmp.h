/* openmp.h: OpenMP's functions, also in a build without OpenMP, where one thread computes everything. */
#pragma once

#ifdef _OPENMP
#include <omp.h>
#else
static inline int omp_get_max_threads(void)
{
    return 1;
}

static inline int omp_get_num_threads(void)
{
    return 1;
}

static inline int omp_get_thread_num(void)
{
    return 0;
}

static inline void omp_set_num_threads(int count)
{
    (void)count;
}
#endif
