#include "machine.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

static enum machine_vectors supported(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
#define HAS(name) __builtin_cpu_supports(name)
    bool avx2 = HAS("avx2") && HAS("fma") && HAS("bmi") && HAS("bmi2");
    if (avx2 && HAS("avx512f") && HAS("avx512bw") && HAS("avx512cd") && HAS("avx512dq") && HAS("avx512vl"))
        return MACHINE_AVX512;
    if (avx2) return MACHINE_AVX2;
#undef HAS
#endif
    return MACHINE_BASELINE;
}

static enum machine_vectors allowed(const char *limit)
{
    if (!limit) return MACHINE_AVX512;
    if (strcasecmp(limit, "sse41") == 0 || strcasecmp(limit, "avx") == 0) return MACHINE_BASELINE;
    return strncasecmp(limit, "avx2", strlen("avx2")) == 0 ? MACHINE_AVX2 : MACHINE_AVX512;
}

enum machine_vectors machine_vectors_within(const char *limit)
{
    enum machine_vectors most = allowed(limit), here = supported();
    return most < here ? most : here;
}

/* Asked for in each call of a function that is compiled for several. */
static enum machine_vectors chosen;

__attribute__((constructor)) static void machine_choose(void)
{
    const char *limit = getenv("ONEDNN_MAX_CPU_ISA"), *older_name = getenv("DNNL_MAX_CPU_ISA");
    chosen = machine_vectors_within(limit && *limit ? limit : older_name);
}

enum machine_vectors machine_vectors(void) { return chosen; }
