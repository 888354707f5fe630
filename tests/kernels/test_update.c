/* test_update: a step's update on every device there is, beside optimizer.h's sequence in plain steps. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/random.h"
#include "device/device.h"
#include "kernels/optimizer/update.h"

/* Behind our headers: it has a macro called fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof *(array)))

/* ---- A small network's parameters, in one piece of memory on the device, with a copy on the host ---- */

static const int64_t sizes[] = {70001, 1, 3, 24, 4096, 4097, 8191, 64, 4096, 4096};
static const int64_t statistics[] = {4097, 5, 1};    /* the last one is a counter */
#define PARAMS COUNT(sizes)
#define STATISTICS COUNT(statistics)

struct network {
    struct device *device;
    const struct update_code *code;
    char *host, *memory;
    size_t bytes;
    struct update_rates *rates;
    struct optimizer_param params[PARAMS];        /* in `memory` */
    struct update_average averages[STATISTICS];
    struct matrix_sharing *sharing;               /* of an optimizer with matrices */
    struct update update;
};

/* Room for `bytes`: the next multiple of 256, as in a store; NULL while it is only counted. */
static void *room(struct network *n, size_t bytes)
{
    size_t at = n->bytes;
    n->bytes += (bytes + 255) / 256 * 256;
    return n->memory ? n->memory + at : NULL;
}

#define SCRATCH_BYTES ((size_t)33 << 20)

/* Rows of those that muon takes for matrices: wide, square and tall. */
static const int64_t rows_of[PARAMS] = {[3] = 4, [4] = 64, [7] = 16, [8] = 64, [9] = 64};

static void network_place(struct network *n, const struct optimizer *optimizer, bool low, bool average)
{
    n->bytes = 0;
    float *scratch = optimizer->has_matrices ? room(n, SCRATCH_BYTES) : NULL;
    n->update.state = room(n, sizeof *n->update.state);
    n->update.scale = room(n, sizeof *n->update.scale);
    for (int i = 0; i < PARAMS; i++) {
        size_t bytes = (size_t)sizes[i] * sizeof(float);
        struct optimizer_param *p = &n->params[i];
        *p = (struct optimizer_param){.count = sizes[i], .decay = i % 3 != 1, .adapt = i % 3 != 1,
                                      .lr_scale = (double[]){1, 0.5, 4}[i / 2 % 3]};
        p->master = room(n, bytes);
        p->gradient = room(n, bytes);
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++) p->slots[s] = room(n, bytes);
        if (average) p->average = room(n, bytes);
        p->low_dtype = i % 2 ? BF16 : F16;
        if (low && i != 3) p->low = room(n, bytes / 2);
        p->rows = optimizer->has_matrices ? rows_of[i] : 0;
        p->alike = rows_of[i] == 64 ? 3 : 1;
        p->scratch = scratch;
    }
    for (int i = 0; i < STATISTICS; i++) {
        enum dtype dtype = i == STATISTICS - 1 ? I64 : F32;
        size_t bytes = (size_t)statistics[i] * dtype_bytes(dtype);
        n->averages[i] = (struct update_average){.dtype = dtype, .count = statistics[i]};
        n->averages[i].now = room(n, bytes);
        n->averages[i].average = room(n, bytes);
    }
}

/* The host's copy of what `memory` points at. */
static void *at_host(const struct network *n, const void *memory)
{
    return memory ? n->host + ((const char *)memory - n->memory) : NULL;
}

static struct optimizer_state *host_state(const struct network *n)
{
    return at_host(n, n->update.state);
}

static void network_fill(struct network *n)
{
    struct random random = random_open(1, PURPOSE_TEST, 0, 0);
    for (int i = 0; i < PARAMS; i++) {
        const struct optimizer_param *p = &n->params[i];
        float *master = at_host(n, p->master), *average = at_host(n, p->average);
        for (int64_t k = 0; k < p->count; k++) {
            master[k] = (float)random_normal(&random);
            if (average) average[k] = master[k];
        }
    }
    for (int i = 0; i < STATISTICS - 1; i++) {
        float *now = at_host(n, n->averages[i].now);
        for (int64_t k = 0; k < statistics[i]; k++) now[k] = (float)random_normal(&random);
    }
    *(int64_t *)at_host(n, n->averages[STATISTICS - 1].now) = INT64_C(1) << 40;
    host_state(n)->scaler.scale = 1024;
}

static void network_upload(struct network *n)
{
    const struct device_backend *backend = n->device->backend;
    assert_int_equal(backend->transfers.upload(n->device, 0, n->memory, n->host, n->bytes), OK);
    assert_int_equal(backend->synchronize(n->device), OK);
}

static void network_download(struct network *n)
{
    const struct device_backend *backend = n->device->backend;
    assert_int_equal(backend->transfers.download(n->device, 0, n->host, n->memory, n->bytes), OK);
    assert_int_equal(backend->synchronize(n->device), OK);
}

static const struct scaler_settings dynamic = {
    .dynamic = true, .growth = 2, .backoff = 0.5, .growth_interval = 2, .min_scale = 1, .max_scale = 65536};
static const struct scaler_settings fixed = {.scale = 1024};

/* eps is large: where gradient and decay cancel, all but their last bits, nothing is to be made of those. */
static struct optimizer_settings settings_of(const struct optimizer *optimizer)
{
    struct optimizer_settings settings = optimizer->initial;
    settings.weight_decay = 0.01;
    settings.momentum = 0.9;
    if (settings.eps > 0) settings.eps = 1e-3;
    return settings;
}

/* Settings that a case may change before the network is opened. */
struct plan {
    const char *optimizer;
    struct optimizer_settings settings;
    const struct scaler_settings *scaling;
    int stop_at;
    bool low, average;
    const struct matrix_ranks *ranks;             /* NULL: no others */
};

static struct network *network_open(struct device *device, const struct plan *plan)
{
    const struct device_backend *backend = device->backend;
    struct network *n = memory_new(1, sizeof *n);
    n->device = device;
    n->code = backend->kind == DEVICE_CPU ? &update_cpu : ON_CUDA(update_cuda);
    assert_non_null(n->code);
    network_place(n, optimizer_find(plan->optimizer), plan->low, plan->average);
    n->memory = backend->memory.allocate(device, n->bytes);
    n->host = memory_new(n->bytes, 1);
    n->rates = backend->memory.host_allocate(device, sizeof *n->rates);
    assert_non_null(n->memory);
    assert_non_null(n->rates);
    network_place(n, optimizer_find(plan->optimizer), plan->low, plan->average);
    network_fill(n);
    network_upload(n);
    struct update *update = &n->update;
    update->optimizer = optimizer_find(plan->optimizer);
    update->settings = plan->settings;
    update->scaling = *plan->scaling;
    update->params = n->params;
    update->param_count = PARAMS;
    update->averages = n->averages;
    update->average_count = plan->settings.ema > 0 ? STATISTICS : 0;
    update->stop_at = plan->stop_at;
    update->rates = n->rates;
    update->device = device;
    update->stream = backend->stream(device, 0);
    if (update->optimizer->has_matrices) {
        const struct matrix_ranks alone = {.count = 1};
        update->sharing = n->sharing = matrix_sharing_open(plan->ranks ? plan->ranks : &alone,
                                                           backend->kind != DEVICE_CPU, n->params, PARAMS);
        assert_in_range(n->sharing->bytes, 1, SCRATCH_BYTES);
    }
    assert_int_equal(n->code->open(update), OK);
    return n;
}

static void network_close(struct network *n)
{
    const struct device_backend *backend = n->device->backend;
    n->code->close(&n->update);
    assert_null(n->update.tables);
    matrix_sharing_close(n->sharing);
    backend->memory.free(n->device, n->memory, n->bytes);
    backend->memory.host_free(n->device, n->rates, sizeof *n->rates);
    free(n->host);
    free(n);
}

/* Gradients of one step, the same on every device: normal numbers times `size`, and one that is `odd` where
 * that is not 0. */
static void draw_gradients(struct network *n, uint64_t step, double size, float odd)
{
    struct random random = random_open(2, PURPOSE_TEST, step, 0);
    for (int i = 0; i < PARAMS; i++) {
        float *gradient = at_host(n, n->params[i].gradient);
        for (int64_t k = 0; k < sizes[i]; k++) gradient[k] = (float)(size * random_normal(&random));
    }
    int last = (int)(step % PARAMS);
    float *gradient = at_host(n, n->params[last].gradient);
    if (odd != 0) gradient[sizes[last] - 1] = odd;
}

static void queue(struct network *n)
{
    assert_int_equal(n->code->count(&n->update), OK);
    assert_int_equal(n->code->apply(&n->update), OK);
    assert_int_equal(n->code->average(&n->update), OK);
}

static void set_rates(struct network *n, double lr, double momentum)
{
    int64_t updates = host_state(n)->updates;
    double ema = updates % 3 == 1 ? 1 : 0.1 * (double)(updates % 5);
    *n->rates = (struct update_rates){.updates = updates, .lr = {lr, lr}, .momentum = {momentum, momentum},
                                      .ema = {ema, ema}};
}

static void run_step(struct network *n, uint64_t step, double size, float odd)
{
    network_download(n);
    draw_gradients(n, step, size, odd);
    network_upload(n);
    set_rates(n, 0.01 * (double)(step + 1), 0.8);
    queue(n);
    network_download(n);
}

/* ---- The sequence in plain steps, on the host's copy ---- */

static double expect_decay(const struct network *n)
{
    return n->rates->ema[0];
}

/* True if training goes on from the average. */
static bool expect_return(const struct network *n)
{
    return n->update.settings.lookahead && n->rates->ema[0] < 1;
}

static void expect_average(const struct network *n, const struct optimizer_param *p)
{
    float *average = p->average;
    double ema = expect_decay(n);
    if (!average || n->update.settings.ema == 0) return;
    for (int64_t k = 0; k < p->count; k++) {
        average[k] = (float)(ema * average[k] + (1 - ema) * p->master[k]);
        if (expect_return(n)) p->master[k] = average[k];
    }
}

static void expect_statistics(const struct network *n)
{
    double ema = expect_decay(n);
    for (int i = 0; i < n->update.average_count; i++) {
        const struct update_average *a = &n->averages[i];
        for (int64_t k = 0; k < a->count; k++) {
            double now = dtype_get(a->dtype, at_host(n, a->now), k),
                   old = dtype_get(a->dtype, at_host(n, a->average), k);
            dtype_set(a->dtype, at_host(n, a->average), k,
                      a->dtype == I64 ? now : ema * old + (1 - ema) * now);
            if (expect_return(n)) dtype_set(a->dtype, at_host(n, a->now), k,
                                            dtype_get(a->dtype, at_host(n, a->average), k));
        }
    }
}

static struct optimizer_param host_param(const struct network *n, int i)
{
    struct optimizer_param p = n->params[i];
    p.master = at_host(n, p.master);
    p.gradient = at_host(n, p.gradient);
    for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++) p.slots[s] = at_host(n, p.slots[s]);
    p.average = at_host(n, p.average);
    p.low = at_host(n, p.low);
    return p;
}

static double expect_norm(const struct network *n)
{
    double squares = 0;
    for (int i = 0; i < PARAMS; i++) {
        struct optimizer_param p = host_param(n, i);
        for (int64_t k = 0; k < p.count; k++) squares += (double)p.gradient[k] * p.gradient[k];
    }
    return sqrt(squares) / host_state(n)->scaler.scale;
}

/* Expects the results of the step whose gradients and rates are there. */
static void expect_step(struct network *n)
{
    struct optimizer_state *s = host_state(n);
    const struct optimizer_settings *settings = &n->update.settings;
    double scale = s->scaler.scale, norm = expect_norm(n);
    *(float *)at_host(n, n->update.scale) = s->scaler.scale;
    s->step++;
    s->grad_norm = (float)norm;
    s->skipped = !isfinite(norm);
    s->skipped_steps += s->skipped;
    scaler_update(&n->update.scaling, &s->scaler, s->skipped);
    if (s->skipped) return;
    s->updates++;
    s->lr = (float)n->rates->lr[0];
    s->momentum = (float)n->rates->momentum[0];
    double clip = settings->clip_norm > 0 ? fmin(1, settings->clip_norm / (norm + 1e-6)) : 1;
    for (int i = 0; i < PARAMS; i++) {
        struct optimizer_param p = host_param(n, i);
        n->update.optimizer->reference(settings, &p, p.lr_scale * n->rates->lr[0], n->rates->momentum[0],
                                       (float)(clip / scale), s->updates);
        expect_average(n, &p);
        if (p.low) dtype_convert(p.low_dtype, p.low, F32, p.master, (size_t)p.count);
    }
    expect_statistics(n);
}

/* ---- Comparisons ---- */

static void check_within(const char *what, const float *found, const float *expected, int64_t count,
                         float tolerance)
{
    for (int64_t i = 0; found && i < count; i++)
        if (!(fabsf(found[i] - expected[i]) <= tolerance * fmaxf(1, fabsf(expected[i]))))
            fail_msg("%s %lld: %.9g, not %.9g", what, (long long)i, found[i], expected[i]);
}

static void check_values(const char *what, const float *found, const float *expected, int64_t count)
{
    check_within(what, found, expected, count, 2e-5f);
}

/* The copy is that of the master beside it: those may differ between devices by their last bits. */
static void check_low(const struct optimizer_param *p)
{
    for (int64_t i = 0; p->low && i < p->count; i++) {
        uint16_t expected =
            p->low_dtype == F16 ? f16_from_float(p->master[i]) : bf16_from_float(p->master[i]);
        assert_int_equal(((const uint16_t *)p->low)[i], expected);
    }
}

static void check_state(const struct optimizer_state *a, const struct optimizer_state *b)
{
    assert_true(a->scaler.scale == b->scaler.scale);
    assert_int_equal(a->scaler.good_steps, b->scaler.good_steps);
    assert_int_equal(a->scaler.floor_overflows, b->scaler.floor_overflows);
    assert_int_equal(a->updates, b->updates);
    assert_int_equal(a->step, b->step);
    assert_int_equal(a->skipped, b->skipped);
    assert_int_equal(a->skipped_steps, b->skipped_steps);
    assert_true(a->lr == b->lr);
    assert_true(a->momentum == b->momentum);
    assert_int_equal(isfinite(a->grad_norm), isfinite(b->grad_norm));
    if (isfinite(b->grad_norm)) assert_true(fabsf(a->grad_norm - b->grad_norm) <= 1e-6f * b->grad_norm);
}

static void check_network(const struct network *found, const struct network *expected)
{
    check_state(host_state(found), host_state(expected));
    assert_true(*(float *)at_host(found, found->update.scale) ==
                *(float *)at_host(expected, expected->update.scale));
    for (int i = 0; i < PARAMS; i++) {
        struct optimizer_param a = host_param(found, i), b = host_param(expected, i);
        bool rounded = a.rows > 0 && found->device->backend->kind == DEVICE_CUDA;    /* products are */
        check_within("master", a.master, b.master, a.count, rounded ? 4e-3f : 2e-5f);
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++) check_values("slot", a.slots[s], b.slots[s], a.count);
        check_within("average", a.average, b.average, a.count, rounded ? 4e-3f : 2e-5f);
        if (host_state(found)->updates > 0) check_low(&a);
    }
    for (int i = 0; i < found->update.average_count; i++) {
        const struct update_average *a = &found->averages[i], *b = &expected->averages[i];
        if (a->dtype == F32) {
            check_values("statistic", at_host(found, a->now), at_host(expected, b->now), a->count);
            check_values("average", at_host(found, a->average), at_host(expected, b->average), a->count);
        } else {
            assert_memory_equal(at_host(found, a->average), at_host(expected, b->average),
                                (size_t)a->count * dtype_bytes(a->dtype));
        }
    }
}

/* ---- Cases, on every device ---- */

typedef void device_case(struct device *device);

static int on_devices(device_case *function, bool captured)
{
    int done = 0;
    for (const struct device_backend *const *backend = device_backends; *backend; backend++) {
        struct reason reason;
        int count = (*backend)->count(&reason);
        if (captured && !(*backend)->capture.begin) continue;
        for (int index = 0; index < count; index++, done++) {
            struct device *device;
            assert_int_equal((*backend)->open(index, 1, &device), OK);
            function(device);
            device_close(device);
        }
    }
    return done;
}

static const struct {
    double size;
    float odd;
} steps[] = {{1, 0}, {50, 0}, {1, INFINITY}, {300, 0}, {1, NAN}, {1e-3, 0}, {1, -INFINITY}, {20, 0}};

static void follow_reference(struct device *device, const struct plan *plan)
{
    struct device *cpu;
    assert_int_equal(device_open("cpu", 1, &cpu), OK);
    struct network *found = network_open(device, plan), *expected = network_open(cpu, plan);
    for (int i = 0; i < COUNT(steps); i++) {
        run_step(found, (uint64_t)i, steps[i].size, steps[i].odd);
        draw_gradients(expected, (uint64_t)i, steps[i].size, steps[i].odd);
        *expected->rates = *found->rates;
        expect_step(expected);
        check_network(found, expected);
    }
    network_close(found);
    network_close(expected);
    device_close(cpu);
}

/* Clipped, averaged and with low copies; and with none of that. */
static void every_optimizer(struct device *device)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct plan plan = {(*o)->name, settings_of(*o), &dynamic, 0, false, false, NULL};
        follow_reference(device, &plan);
        plan.settings.clip_norm = 2;
        plan.settings.ema = 0.9;
        plan.settings.nesterov = true;
        plan.low = plan.average = true;
        follow_reference(device, &plan);
        plan.settings.lookahead = true;
        follow_reference(device, &plan);
    }
}

static void test_steps_follow_the_reference(void **state)
{
    (void)state;
    assert_true(on_devices(every_optimizer, false) > 0);
}

static struct plan full_plan(const char *optimizer)
{
    struct plan plan = {optimizer, settings_of(optimizer_find(optimizer)), &dynamic, 0, true, true, NULL};
    plan.settings.ema = 0.5;
    plan.settings.clip_norm = 1;
    return plan;
}

/* The memory behind the state and the scale, bit by bit. */
static void check_unchanged(const struct network *n, const char *before)
{
    size_t from = (size_t)((const char *)n->params[0].master - n->memory);
    assert_memory_equal(n->host + from, before + from, n->bytes - from);
}

static char *copy_of(const struct network *n)
{
    char *copy = memory_new(n->bytes, 1);
    memcpy(copy, n->host, n->bytes);
    return copy;
}

/* Only the scaler and the counters move when any gradient, wherever it lies, is not finite. */
static void overflows(struct device *device)
{
    const float odd[] = {INFINITY, -INFINITY, NAN};
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct plan plan = full_plan((*o)->name);
        struct network *n = network_open(device, &plan);
        run_step(n, 0, 10, 0);
        for (uint64_t step = 1; step <= PARAMS; step++) {
            draw_gradients(n, step, 1, odd[step % 3]);
            char *before = copy_of(n);
            run_step(n, step, 1, odd[step % 3]);
            check_unchanged(n, before);
            free(before);
            assert_int_equal(host_state(n)->skipped, 1);
            assert_int_equal(host_state(n)->skipped_steps, step);
        }
        assert_int_equal(host_state(n)->updates, 1);
        assert_true(host_state(n)->scaler.scale == 1024.0f / (1 << PARAMS));
        network_close(n);
    }
}

static void test_overflow_leaves_everything_untouched(void **state)
{
    (void)state;
    on_devices(overflows, false);
}

/* The largest floats' squares overflow a float, and their sum any float, but not the norm's double. */
static void large_gradients(struct device *device)
{
    struct plan plan = full_plan("sgd");
    struct network *n = network_open(device, &plan);
    run_step(n, 0, 1e37, 0);
    assert_int_equal(host_state(n)->skipped, 0);
    assert_true(isfinite(host_state(n)->grad_norm));
    network_close(n);
}

static void test_large_gradients_are_no_overflow(void **state)
{
    (void)state;
    on_devices(large_gradients, false);
}

static void stops(struct device *device)
{
    struct plan plan = full_plan("adamw");
    plan.scaling = &fixed;
    plan.stop_at = 2;
    struct network *n = network_open(device, &plan);
    run_step(n, 0, 1, INFINITY);
    run_step(n, 1, 1, 0);
    assert_int_equal(host_state(n)->updates, 1);
    for (uint64_t step = 2; step < 4; step++) run_step(n, step, 1, NAN);
    assert_int_equal(host_state(n)->scaler.floor_overflows, 2);
    struct optimizer_state before = *host_state(n);
    for (uint64_t step = 4; step < 6; step++) {
        draw_gradients(n, step, 1, 0);
        char *copy = copy_of(n);
        run_step(n, step, 1, 0);
        check_unchanged(n, copy);
        free(copy);
        assert_memory_equal(host_state(n), &before, sizeof before);
    }
    assert_int_equal(before.skipped, 1);
    assert_int_equal(before.step, 4);
    network_close(n);
}

static void test_nothing_changes_after_too_many_overflows(void **state)
{
    (void)state;
    on_devices(stops, false);
}

/* Rates are for the update after `updates`, and for the one after that: whichever comes. */
static void rates_of_two(struct device *device)
{
    struct plan plan = full_plan("sgd");
    struct network *n = network_open(device, &plan);
    draw_gradients(n, 0, 1, 0);
    network_upload(n);
    *n->rates = (struct update_rates){.updates = 0, .lr = {0.5, 0.25}, .momentum = {0.75, 0.125}};
    queue(n);
    network_download(n);
    assert_true(host_state(n)->lr == 0.5f);
    assert_true(host_state(n)->momentum == 0.75f);
    queue(n);
    network_download(n);
    assert_true(host_state(n)->lr == 0.25f);
    assert_true(host_state(n)->momentum == 0.125f);
    struct update_rates *others = device->backend->memory.host_allocate(device, sizeof *others);
    *others = (struct update_rates){.updates = 2, .lr = {0.0625, 4}};
    n->update.rates = others;
    queue(n);
    network_download(n);
    assert_true(host_state(n)->lr == 0.0625f);
    assert_int_equal(host_state(n)->updates, 3);
    network_close(n);
    device->backend->memory.host_free(device, others, sizeof *others);
}

static void test_rates_go_by_the_update(void **state)
{
    (void)state;
    on_devices(rates_of_two, false);
}

static void repeats(struct device *device)
{
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct plan plan = full_plan((*o)->name);
        struct network *a = network_open(device, &plan), *b = network_open(device, &plan);
        for (uint64_t step = 0; step < 3; step++) {
            run_step(a, step, 30, 0);
            run_step(b, step, 30, 0);
        }
        assert_memory_equal(a->host, b->host, a->bytes);
        network_close(a);
        network_close(b);
    }
}

static void test_the_same_bits_every_time(void **state)
{
    (void)state;
    on_devices(repeats, false);
}

/* ---- Ranks that share matrices, one after another on one device ---- */

#define RANKS 2
#define STEPS 3
#define MATRICES 5

/* The parts that each rank gives, which do not depend on the others': recorded first. */
struct tape {
    struct device *device;
    int rank, next;
    bool plays;
    void *parts[RANKS][MATRICES * STEPS];
};

static enum status exchange(void *context, const void *from, void *to, size_t bytes, void *stream)
{
    struct tape *tape = context;
    const struct device_backend *backend = tape->device->backend;
    int k = tape->next++;
    assert_true(k < MATRICES * STEPS);
    if (!tape->plays) {
        void *part = tape->parts[tape->rank][k] = memory_new(bytes, 1);
        TRY(backend->transfers.download(tape->device, 0, part, from, bytes));
        return backend->synchronize(tape->device);
    }
    for (int r = 0; r < RANKS; r++)
        if (r != tape->rank)
            TRY(backend->transfers.upload(tape->device, 0, (char *)to + (size_t)r * bytes, tape->parts[r][k],
                                          bytes));
    return backend->synchronize(tape->device);
}

static struct network *run_rank(struct tape *tape, int rank, bool plays)
{
    const struct matrix_ranks ranks = {rank, RANKS, exchange, tape};
    struct plan plan = full_plan("muon");
    plan.ranks = &ranks;
    tape->rank = rank;
    tape->plays = plays;
    tape->next = 0;
    struct network *n = network_open(tape->device, &plan);
    for (uint64_t step = 0; step < STEPS; step++) run_step(n, step, 30, 0);
    assert_int_equal(tape->next, STEPS * matrix_sharing_rounds(n->sharing));
    return n;
}

static void shares(struct device *device)
{
    struct tape tape = {.device = device};
    struct plan plan = full_plan("muon");
    struct network *alone = network_open(device, &plan);
    for (uint64_t step = 0; step < STEPS; step++) run_step(alone, step, 30, 0);
    for (int rank = 0; rank < RANKS; rank++) network_close(run_rank(&tape, rank, false));
    for (int rank = 0; rank < RANKS; rank++) {
        struct network *n = run_rank(&tape, rank, true);
        size_t scratch = (size_t)((char *)n->update.state - n->memory);
        assert_memory_equal(n->host + scratch, alone->host + scratch, n->bytes - scratch);
        network_close(n);
    }
    network_close(alone);
    for (int rank = 0; rank < RANKS; rank++)
        for (int k = 0; k < tape.next; k++) free(tape.parts[rank][k]);
}

static void test_ranks_share_matrices(void **state)
{
    (void)state;
    on_devices(shares, false);
}

/* One captured graph, launched, does what queueing does: numbers of the update are the device's own. */
static void launches_captured(struct device *device)
{
    const struct device_backend *backend = device->backend;
    for (const struct optimizer *const *o = optimizer_table; *o; o++) {
        struct plan plan = full_plan((*o)->name);
        struct network *queued = network_open(device, &plan), *launched = network_open(device, &plan);
        for (uint64_t step = 0; step < 3; step++) run_step(queued, step, 30, 0);
        struct captured *captured;
        assert_int_equal(backend->capture.begin(device), OK);
        queue(launched);
        assert_int_equal(backend->capture.end(device, &captured), OK);
        for (uint64_t step = 0; step < 3; step++) {
            draw_gradients(launched, step, 30, 0);
            network_upload(launched);
            set_rates(launched, 0.01 * (double)(step + 1), 0.8);
            assert_int_equal(backend->capture.launch(device, captured), OK);
            network_download(launched);
        }
        assert_memory_equal(queued->host, launched->host, queued->bytes);
        backend->capture.free(captured);
        network_close(queued);
        network_close(launched);
    }
}

static void test_captured_updates(void **state)
{
    (void)state;
    if (on_devices(launches_captured, true) == 0) skip();
}

/* Nothing to train, nothing to average. */
static void nothing(struct device *device)
{
    struct plan plan = full_plan("lars");
    struct network *n = network_open(device, &plan);
    n->code->close(&n->update);
    n->code->close(&n->update);
    n->update.param_count = n->update.average_count = 0;
    assert_int_equal(n->code->open(&n->update), OK);
    run_step(n, 0, 1, 0);
    assert_int_equal(host_state(n)->updates, 1);
    assert_true(host_state(n)->grad_norm == 0);
    network_close(n);
}

static void test_no_parameters(void **state)
{
    (void)state;
    on_devices(nothing, false);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_steps_follow_the_reference),
        cmocka_unit_test(test_overflow_leaves_everything_untouched),
        cmocka_unit_test(test_large_gradients_are_no_overflow),
        cmocka_unit_test(test_nothing_changes_after_too_many_overflows),
        cmocka_unit_test(test_rates_go_by_the_update),
        cmocka_unit_test(test_the_same_bits_every_time),
        cmocka_unit_test(test_ranks_share_matrices),
        cmocka_unit_test(test_captured_updates),
        cmocka_unit_test(test_no_parameters),
    };
    return cmocka_run_group_tests_name("update", tests, NULL, NULL);
}
