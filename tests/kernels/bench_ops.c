/* bench_ops: milliseconds and GFLOP/s (GB/s where there are no weights) of every phase and precision, by each
 * of the algorithms that there are for it.
 *
 *   bench_ops                                         every op on its examples, large ones too
 *   bench_ops OP "SETTINGS" NxHxWxC [NxHxWxC]...      one op on one shape */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "tests/support/op_case.h"

#define SECONDS 0.3
#define RUNS_MAX 1000

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* A multiply and an add for every weight at every output position. */
static double flops(const struct op_case *c)
{
    if (c->param_count == 0 || c->params[0].shape.rank < 2) return 0;
    int64_t positions = c->y.shape.n * c->y.shape.h * c->y.shape.w;
    return 2.0 * (double)shape_count(c->params[0].shape) * (double)positions;
}

static double bytes(const struct call *call)
{
    double sum = 0;
    for (int i = 0; i < call->x_count; i++) {
        if (call->x[i].data) sum += (double)tensor_bytes(&call->x[i]);
        if (call->d_x[i].data) sum += (double)tensor_bytes(&call->d_x[i]);
    }
    if (call->y.data) sum += (double)tensor_bytes(&call->y);
    if (call->d_y.data) sum += (double)tensor_bytes(&call->d_y);
    return sum;
}

/* The fastest run's seconds, the first not counted: on a busy machine the others measure its company. */
static double measure(const struct op_code *code, struct call *call)
{
    double best = 1e9;
    size_t size = op_code_workspace(code, call);
    if (size && posix_memalign(&call->workspace, 64, size) != 0) abort();
    enum status (*function)(const struct call *) = op_case_function(code, call->phase);
    function(call);
    int runs = 0;
    for (double begin = now(); runs < RUNS_MAX && (runs < 3 || now() - begin < SECONDS); runs++) {
        double start = now();
        function(call);
        double seconds = now() - start;
        if (seconds < best) best = seconds;
    }
    free(call->workspace);
    return best;
}

static bool is_variant(const struct call *call, const char *variant)
{
    return !variant || op_variant_is(call->kernel_plan->name, variant);
}

static void bench_phase(struct op_case *c, const struct op_code *code, void *kernel_plan, enum phase phase)
{
    static const char *const names[PHASE_COUNT] = {"forward", "backward", "data",
                                                   "params", "update", "recompute"};
    struct op_case_storage storage;
    struct call call = op_case_call(c, phase, &storage);
    if (!op_case_function(code, phase)) return;
    if (op_case_plan(code, kernel_plan, &call) != OK || !is_variant(&call, c->variant)) return;
    double seconds = measure(code, &call), work = flops(c);
    printf("  %-5s %-9s %9.3f ms %8.1f %s  %s\n", dtype_table[c->dtype].name, names[phase], 1e3 * seconds,
           1e-9 * (work > 0 ? work : bytes(&call)) / seconds, work > 0 ? "GFLOP/s" : "GB/s   ",
           call.kernel_plan ? call.kernel_plan->name : "");
}

/* `variant`: NULL for what would be chosen. */
static void bench(const struct op *op, const struct op_example *example, enum dtype dtype,
                  const char *variant)
{
    struct reason reason;
    struct op_case *c = op_case_open(op, example, dtype, true, 1, &reason);
    if (!c) {
        fprintf(stderr, "bench_ops: %s\n", reason.text);
        return;
    }
    const struct op_code *code = op_cpu(op);
    void *kernel_plan;
    c->variant = variant;
    op_case_prepare(code, &kernel_plan);
    for (enum phase phase = PHASE_FORWARD; phase < PHASE_COUNT; phase++)
        bench_phase(c, code, kernel_plan, phase);
    op_case_release(kernel_plan);
    op_case_close(c);
}

/* Each algorithm by itself where there are several. */
static void bench_variants(const struct op *op, const struct op_example *example, enum dtype dtype)
{
    const char *const *variants = op_cpu(op)->variants;
    if (!variants) bench(op, example, dtype, NULL);
    for (int i = 0; variants && variants[i]; i++) bench(op, example, dtype, variants[i]);
}

static void bench_all(const struct op *op, const struct op_example *example)
{
    const enum dtype dtypes[] = {F32, BF16, F16};
    printf("%s %s", op->name, example->settings);
    char text[SHAPE_TEXT];
    for (int i = 0; i < example->x_count; i++) printf(" %s", shape_text(example->x[i], text));
    printf("\n");
    for (int i = 0; i < (op->precision == CLASS_FULL ? 1 : 3); i++) bench_variants(op, example, dtypes[i]);
}

static void bench_list(const struct op *op, const struct op_example *examples)
{
    for (; examples && examples->settings; examples++) bench_all(op, examples);
}

static int bench_one(int count, char **words)
{
    const struct op *op = op_find(words[0]);
    struct op_example example = {.settings = words[1], .x_count = count - 2};
    if (!op || example.x_count < 1 || example.x_count > 4) {
        fprintf(stderr, "usage: bench_ops [OP SETTINGS NxHxWxC [NxHxWxC]...]\n");
        return USAGE;
    }
    for (int i = 0; i < example.x_count; i++) {
        long long n, h, w, c;
        if (sscanf(words[2 + i], "%lldx%lldx%lldx%lld", &n, &h, &w, &c) != 4) {
            fprintf(stderr, "bench_ops: '%s' is not NxHxWxC\n", words[2 + i]);
            return USAGE;
        }
        example.x[i] = shape_nhwc(n, h, w, c);
    }
    bench_all(op, &example);
    return OK;
}

int main(int argc, char **argv)
{
    if (argc > 2) return bench_one(argc - 1, argv + 1);
    for (const struct op *const *op = op_table; *op; op++) {
        bench_list(*op, (*op)->examples);
        bench_list(*op, (*op)->large);
    }
    return OK;
}
