/* machine.h: functions compiled for several instruction sets; the fastest one that the CPU supports is
 * used. */
#pragma once

/* Functions with this attribute are compiled for AVX-512, for AVX2 and for the baseline, and the dynamic
 * loader selects one. They must not contain OpenMP regions (which would be compiled for the baseline only)
 * but be called from them. With sanitizers, which do not work that early, there is one version. */
#if defined(__x86_64__) && defined(__GLIBC__) && defined(__GNUC__) && !defined(__clang__) && \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define EVERY_MACHINE __attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default")))
#else
#define EVERY_MACHINE
#endif
#define INLINE static inline __attribute__((always_inline))
