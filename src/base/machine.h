/* machine.h: functions compiled for several instruction sets; the fastest one that the CPU supports is
 * used. */
#pragma once

#define INLINE static inline __attribute__((always_inline))

/* The vectors of the code in use: those of every x86-64, or of another processor; 256 bits; 512. */
enum machine_vectors { MACHINE_BASELINE, MACHINE_AVX2, MACHINE_AVX512 };

/* The most that this CPU supports and ONEDNN_MAX_CPU_ISA allows, which limits oneDNN too. The same from
 * before main until the end. */
enum machine_vectors machine_vectors(void);

/* Vectors within a limit: SSE41, AVX, AVX2, AVX512_CORE and others, as oneDNN knows them, in small letters or
 * capitals; NULL, and what it does not know: none. */
enum machine_vectors machine_vectors_within(const char *limit);

/* Defines a function for each of them, and NAME, which calls one; ARGUMENTS are the names of PARAMETERS.
 *
 *     static EVERY_MACHINE(void, add, (float *sum, const float *x, int64_t count), (sum, x, count))
 *     {
 *         ...
 *     }
 *
 * Such functions must not contain OpenMP regions (which would be compiled for the baseline only) but be
 * called from them. */
#if defined(__x86_64__)
#define MACHINE_AVX2_TARGET "avx2,fma,bmi,bmi2"
#define MACHINE_AVX512_TARGET MACHINE_AVX2_TARGET ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"
#define EVERY_MACHINE(RESULT, NAME, PARAMETERS, ARGUMENTS)                                                  \
    RESULT NAME PARAMETERS;                                                                                 \
    INLINE RESULT NAME##_code PARAMETERS;                                                                   \
    __attribute__((target(MACHINE_AVX512_TARGET))) static RESULT NAME##_avx512 PARAMETERS                   \
    {                                                                                                       \
        return NAME##_code ARGUMENTS;                                                                       \
    }                                                                                                       \
    __attribute__((target(MACHINE_AVX2_TARGET))) static RESULT NAME##_avx2 PARAMETERS                       \
    {                                                                                                       \
        return NAME##_code ARGUMENTS;                                                                       \
    }                                                                                                       \
    RESULT NAME PARAMETERS                                                                                  \
    {                                                                                                       \
        switch (machine_vectors()) {                                                                        \
        case MACHINE_AVX512: return NAME##_avx512 ARGUMENTS;                                                \
        case MACHINE_AVX2: return NAME##_avx2 ARGUMENTS;                                                    \
        case MACHINE_BASELINE: break;                                                                       \
        }                                                                                                   \
        return NAME##_code ARGUMENTS;                                                                       \
    }                                                                                                       \
    INLINE RESULT NAME##_code PARAMETERS
#else
#define EVERY_MACHINE(RESULT, NAME, PARAMETERS, ARGUMENTS) RESULT NAME PARAMETERS
#endif
