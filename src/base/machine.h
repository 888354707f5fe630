/* machine.h: functions compiled for several instruction sets; the fastest one that the CPU supports is
 * used. */
#pragma once

/* A function so marked is compiled for AVX-512, for AVX2 and for any machine, and the loader picks
 * one. It must not hold OpenMP regions (they would be compiled for any machine only): the parallel
 * loop calls it. Sanitizers cannot run before the loader and get one version. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_MACHINE
#endif
#define INLINE static inline __attribute__((always_inline))
