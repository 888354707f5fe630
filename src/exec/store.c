#include "exec/store.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/align.h"
#include "base/memory.h"
#include "base/random.h"
#include "compile/ir/kernel_plans.h"

#define STORE_ALIGNMENT 256
#define HUGE_PAGE ((size_t)2 << 20)

static const struct op_param *param_spec(const struct graph *graph, int param)
{
    return &graph->params[param].spec;
}

static int64_t param_count(const struct graph *graph, int param)
{
    return shape_count(param_spec(graph, param)->shape);
}

static int64_t store_reserve(int64_t *end, int64_t count, enum dtype dtype)
{
    int64_t begin = *end;
    *end += (int64_t)align_up((size_t)count * dtype_bytes(dtype), STORE_ALIGNMENT);
    return begin;
}

static bool has_average(const struct graph *graph, int param, const struct store_options *options)
{
    const struct parameter *parameter = &graph->params[param];
    return options->ema && (parameter->spec.role == ROLE_STATISTIC || program_param_trained(parameter));
}

static bool has_slot(const struct parameter *parameter, const struct optimizer *optimizer, int slot)
{
    if (!program_param_trained(parameter)) return false;
    return slot == 0 || !optimizer->has_matrices || parameter->rows == 0;
}

/* The parts lie one after another, each with its parameters in the graph's order, so that the
 * update walks a few long ranges: masters, optimizer state, averages, copies. */
void store_lay_out(const struct graph *graph, const struct store_options *options,
                   struct store_layout *layout)
{
    struct store_layout made = {.count = graph->param_count, .low = options->low};
    int slots = options->optimizer ? options->optimizer->slots : 0;
    made.params = memory_new((size_t)made.count, sizeof *made.params);
    for (int p = 0; p < made.count; p++) {
        struct store_slot *slot = &made.params[p];
        *slot = (struct store_slot){.low = STORE_NONE, .average = STORE_NONE};
        for (int s = 0; s < OPTIMIZER_MAX_SLOTS; s++) slot->slots[s] = STORE_NONE;
        slot->master = store_reserve(&made.bytes, param_count(graph, p), param_spec(graph, p)->dtype);
    }
    for (int s = 0; s < slots; s++)
        for (int p = 0; p < made.count; p++)
            if (has_slot(&graph->params[p], options->optimizer, s))
                made.params[p].slots[s] = store_reserve(&made.bytes, param_count(graph, p), F32);
    for (int p = 0; p < made.count; p++)
        if (has_average(graph, p, options))
            made.params[p].average =
                store_reserve(&made.bytes, param_count(graph, p), param_spec(graph, p)->dtype);
    made.copies = made.bytes;
    for (int p = 0; p < made.count; p++) {
        enum dtype dtype = program_param_dtype(graph, p, options->low);
        if (dtype != param_spec(graph, p)->dtype)
            made.params[p].low = store_reserve(&made.bytes, param_count(graph, p), dtype);
    }
    made.state = store_reserve(&made.bytes, (int64_t)sizeof(struct optimizer_state), U8);
    *layout = made;
}

void store_layout_free(struct store_layout *layout)
{
    free(layout->params);
    *layout = (struct store_layout){0};
}

enum status store_open(struct device *device, const struct graph *graph, const struct store_options *options,
                       struct store *store)
{
    struct store opened = {.device = device, .graph = graph};
    store_lay_out(graph, options, &opened.layout);
    size_t bytes = (size_t)opened.layout.bytes;
    opened.memory = device_allocate(device, bytes, "parameters and optimizer state");
    if (!opened.memory) {
        char needs[TEXT_BYTES], has[TEXT_BYTES];
        size_t left, total;
        device->backend->memory.info(device, &left, &total);
        store_layout_free(&opened.layout);
        return fail(NO_DEVICE, "parameters and optimizer state need %s, but the device has only %s free",
                    text_bytes(bytes, needs), text_bytes(left, has));
    }
    int64_t first = options->filled ? opened.layout.copies : 0;
    char *unknown = (char *)opened.memory + first;
    enum status status = device->backend->transfers.fill_zero(device, 0, unknown, bytes - (size_t)first);
    if (status == OK) status = device->backend->synchronize(device);
    if (status != OK) store_close(&opened);
    else *store = opened;
    return status;
}

void store_close(struct store *store)
{
    if (store->copied) {
        free(store->memory);
    } else {
        if (store->memory) device_release(store->device, store->memory, (size_t)store->layout.bytes);
        store_layout_free(&store->layout);
    }
    *store = (struct store){0};
}

static char *store_at(const struct store *store, int64_t offset)
{
    return (char *)store->memory + offset;
}

static bool is_in_host(const struct store *store)
{
    return store->copied || store->device->backend->kind == DEVICE_CPU;
}

static enum status store_up(struct store *store, int64_t offset, const void *host, size_t bytes)
{
    const struct device_backend *backend = store->device->backend;
    TRY(backend->transfers.upload(store->device, 0, store_at(store, offset), host, bytes));
    return backend->synchronize(store->device);
}

static enum status store_down(const struct store *store, int64_t offset, void *host, size_t bytes)
{
    const struct device_backend *backend = store->device->backend;
    if (store->copied) {
        memcpy(host, store_at(store, offset), bytes);
        return OK;
    }
    TRY(backend->transfers.download(store->device, 0, host, store_at(store, offset), bytes));
    return backend->synchronize(store->device);
}

/* Training waits for this, and most of the time goes into page faults: huge pages have a fifth of it. */
bool store_copy(const struct store *store, struct store *copy)
{
    int64_t state = store->layout.state;
    size_t bytes = align_up((size_t)store->layout.bytes, HUGE_PAGE);
    *copy = *store;
    copy->memory = aligned_alloc(HUGE_PAGE, bytes);
    if (!copy->memory) return false;
    madvise(copy->memory, bytes, MADV_HUGEPAGE);
    copy->copied = true;
    if (store_down(store, 0, copy->memory, (size_t)store->layout.copies) == OK &&
        store_down(store, state, store_at(copy, state), (size_t)(store->layout.bytes - state)) == OK)
        return true;
    store_close(copy);
    return false;
}

/* Four numbers of a parameter's initial values come from one draw of the stream (seed, parameter, attempt),
 * so that any of them can be made without the others. Attempts after the first replace values rejected by a
 * truncated normal. */
struct initial {
    uint64_t seed;
    int param;
    enum init init;
    double scale;            /* half width of a uniform, deviation of a normal */
    double limit;            /* of a truncated normal's absolute values */
};

/* A truncated normal accepts more than 60 % of the values drawn: the probability of that many rejections in a
 * row is below 1e-24. The last one is then clamped to the limit. */
#define ATTEMPTS_MAX 64

static struct initial initial_of(const struct graph *graph, int param, uint64_t seed)
{
    const struct op_param *spec = param_spec(graph, param);
    struct initial initial = {.seed = seed, .param = param, .init = spec->init, .limit = INFINITY};
    double in = (double)spec->fan_in, out = (double)spec->fan_out;
    switch (spec->init) {
    case INIT_ZERO: break;
    case INIT_ONE: break;
    case INIT_CONSTANT: break;
    case INIT_DIRAC:
    case INIT_WHITEN:
    case INIT_UNIFORM_FAN_IN: initial.scale = in > 0 ? 1 / sqrt(in) : 0; break;
    case INIT_KAIMING_FAN_OUT: initial.scale = sqrt(2 / out); break;
    case INIT_KAIMING_FAN_IN: initial.scale = sqrt(2 / in); break;
    case INIT_NORMAL: initial.scale = spec->init_arg; break;
    case INIT_TRUNCATED_NORMAL:
        initial.scale = spec->init_arg;
        initial.limit = 2;
        break;
    case INIT_XAVIER_UNIFORM: initial.scale = sqrt(6 / (in + out)); break;
    case INIT_KAIMING_UNIFORM: initial.scale = sqrt(6 / in); break;
    case INIT_UNIFORM_FAN_OUT: initial.scale = 1 / sqrt(out); break;
    }
    return initial;
}

static double store_unit_draw(uint32_t word)
{
    return (double)word / 4294967296.0;
}

static void initial_words(const struct initial *initial, uint64_t attempt, int64_t draw, uint32_t words[4])
{
    struct random random = random_open(initial->seed, PURPOSE_INIT, (uint64_t)initial->param, attempt);
    random_words(&random, (uint64_t)draw, words);
}

static bool is_uniform(enum init init)
{
    switch (init) {
    case INIT_UNIFORM_FAN_IN:
    case INIT_XAVIER_UNIFORM:
    case INIT_KAIMING_UNIFORM:
    case INIT_UNIFORM_FAN_OUT:
    case INIT_DIRAC:
    case INIT_WHITEN: return true;
    case INIT_ZERO:
    case INIT_ONE:
    case INIT_CONSTANT:
    case INIT_KAIMING_FAN_OUT:
    case INIT_KAIMING_FAN_IN:
    case INIT_NORMAL:
    case INIT_TRUNCATED_NORMAL: break;
    }
    return false;
}

/* Values 4 * draw to 4 * draw + 3, of mean 0 and deviation or half width 1. */
static void initial_draw(const struct initial *initial, uint64_t attempt, int64_t draw, double out[4])
{
    uint32_t words[4];
    initial_words(initial, attempt, draw, words);
    if (is_uniform(initial->init)) {
        for (int i = 0; i < 4; i++) out[i] = 2 * store_unit_draw(words[i]) - 1;
        return;
    }
    for (int i = 0; i < 4; i += 2) {
        double radius = sqrt(-2 * log(1 - store_unit_draw(words[i])));
        double angle = 2 * 3.14159265358979323846 * store_unit_draw(words[i + 1]);
        out[i] = radius * cos(angle);
        out[i + 1] = radius * sin(angle);
    }
}

/* Where the limit is a deviation or more: a normal, until a value is within the limit. */
static double narrow_normal(const struct initial *initial, int64_t draw, int lane)
{
    double value = INFINITY;
    for (uint64_t attempt = 1; attempt < ATTEMPTS_MAX && fabs(value) > initial->limit; attempt++) {
        double values[4];
        initial_draw(initial, attempt, draw, values);
        value = values[lane] * initial->scale;
    }
    return fmax(-initial->limit, fmin(initial->limit, value));
}

/* Where the limit is less than a deviation: a uniform within the limit, whose values are accepted as often as
 * the normal's density there, over that in the middle, says. */
static double wide_normal(const struct initial *initial, int64_t draw, int lane)
{
    double value = 0;
    for (uint64_t attempt = 1; attempt < 2 * ATTEMPTS_MAX; attempt += 2) {
        uint32_t place[4], odds[4];
        initial_words(initial, attempt, draw, place);
        initial_words(initial, attempt + 1, draw, odds);
        value = initial->limit * (2 * store_unit_draw(place[lane]) - 1);
        double deviations = value / initial->scale;
        if (store_unit_draw(odds[lane]) < exp(-deviations * deviations / 2)) break;
    }
    return value;
}

static double truncated_normal(const struct initial *initial, int64_t draw, int lane)
{
    bool narrow = initial->scale <= initial->limit;
    return narrow ? narrow_normal(initial, draw, lane) : wide_normal(initial, draw, lane);
}

static void fill_random(const struct initial *initial, float *out, int64_t count)
{
#pragma omp parallel for schedule(static)
    for (int64_t draw = 0; draw < (count + 3) / 4; draw++) {
        double values[4];
        initial_draw(initial, 0, draw, values);
        for (int lane = 0; lane < 4 && 4 * draw + lane < count; lane++) {
            double value = values[lane] * initial->scale;
            if (fabs(value) > initial->limit) value = truncated_normal(initial, draw, lane);
            out[4 * draw + lane] = (float)value;
        }
    }
}

static void fill_constant(enum dtype dtype, void *out, int64_t count, double value)
{
    for (int64_t i = 0; i < count; i++) dtype_set(dtype, out, i, value);
}

/* In order k, c, r, s: filter k of its group has a one in the middle of channel k, and zeros. */
static void fill_dirac(const struct op_param *spec, float *out)
{
    int64_t channels = spec->shape.dim[1], filters = spec->shape.dim[0] / (int64_t)spec->init_arg;
    int64_t rows = 1, columns = 1;
    if (spec->shape.rank == 4) {
        rows = spec->shape.dim[2];
        columns = spec->shape.dim[3];
    }
    for (int64_t k = 0; k < spec->shape.dim[0]; k++) {
        float *filter = out + k * channels * rows * columns;
        if (k % filters >= channels) continue;
        memset(filter, 0, (size_t)(channels * rows * columns) * sizeof *filter);
        filter[(k % filters * rows + rows / 2) * columns + columns / 2] = 1;
    }
}

static void fill_initial(const struct graph *graph, int param, uint64_t seed, void *out)
{
    const struct op_param *spec = param_spec(graph, param);
    int64_t count = param_count(graph, param);
    if (spec->init == INIT_ZERO || spec->init == INIT_ONE) {
        fill_constant(spec->dtype, out, count, spec->init == INIT_ONE);
    } else if (spec->init == INIT_CONSTANT) {
        fill_constant(spec->dtype, out, count, spec->init_arg);
    } else {
        struct initial initial = initial_of(graph, param, seed);
        fill_random(&initial, out, count);
        if (spec->init == INIT_DIRAC) fill_dirac(spec, out);
    }
}

static size_t part_bytes(const struct store *store, int param)
{
    return (size_t)param_count(store->graph, param) * dtype_bytes(param_spec(store->graph, param)->dtype);
}

static size_t largest_part(const struct store *store)
{
    size_t largest = 0;
    for (int p = 0; p < store->layout.count; p++)
        if (part_bytes(store, p) > largest) largest = part_bytes(store, p);
    return largest;
}

static int64_t part_offset(const struct store *store, int param, enum store_part part)
{
    const struct store_slot *slot = &store->layout.params[param];
    switch (part) {
    case STORE_MASTER: return slot->master;
    case STORE_AVERAGE: return slot->average;
    case STORE_SLOT0: return slot->slots[0];
    case STORE_SLOT1: return slot->slots[1];
    case STORE_SLOT2: return slot->slots[2];
    }
    return STORE_NONE;
}

bool store_has(const struct store *store, int param, enum store_part part)
{
    return part_offset(store, param, part) != STORE_NONE;
}

/* True if the device holds a parameter as k, r, s, c, where torch has k, c, r, s. */
static bool held_channels_last(const struct store *store, int param)
{
    const struct parameter *parameter = &store->graph->params[param];
    const struct op *op = store->graph->nodes[parameter->node].op;
    const struct op_code *code = kernel_plans_code(store->device->backend->kind)(op);
    return code && code->channels_last && parameter->spec.shape.rank == 4;
}

/* [outer, rows, columns] becomes [outer, columns, rows]. */
static void store_transpose(const float *from, float *to, int64_t outer, int64_t rows, int64_t columns)
{
#pragma omp parallel for schedule(static) if (outer * rows * columns > 65536)
    for (int64_t o = 0; o < outer; o++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++)
                to[(o * columns + c) * rows + r] = from[(o * rows + r) * columns + c];
}

void store_to_torch(const struct store *store, int param, const float *held, float *torch)
{
    struct shape s = param_spec(store->graph, param)->shape;
    if (held_channels_last(store, param))
        store_transpose(held, torch, s.dim[0], s.dim[2] * s.dim[3], s.dim[1]);
    else memcpy(torch, held, (size_t)shape_count(s) * sizeof *torch);
}

static void store_from_torch(const struct store *store, int param, const float *torch, float *held)
{
    struct shape s = param_spec(store->graph, param)->shape;
    if (held_channels_last(store, param))
        store_transpose(torch, held, s.dim[0], s.dim[1], s.dim[2] * s.dim[3]);
    else memcpy(held, torch, (size_t)shape_count(s) * sizeof *held);
}

enum status store_read(const struct store *store, int param, enum store_part part, void *host)
{
    assert(store_has(store, param, part));
    int64_t offset = part_offset(store, param, part);
    if (!held_channels_last(store, param)) return store_down(store, offset, host, part_bytes(store, param));
    if (is_in_host(store)) {
        store_to_torch(store, param, (const float *)store_at(store, offset), host);
        return OK;
    }
    float *held = memory_new(part_bytes(store, param), 1);
    enum status status = store_down(store, offset, held, part_bytes(store, param));
    if (status == OK) store_to_torch(store, param, held, host);
    free(held);
    return status;
}

enum status store_write(struct store *store, int param, enum store_part part, const void *host)
{
    assert(store_has(store, param, part));
    int64_t offset = part_offset(store, param, part);
    if (!held_channels_last(store, param)) return store_up(store, offset, host, part_bytes(store, param));
    if (is_in_host(store)) {
        store_from_torch(store, param, host, (float *)store_at(store, offset));
        return OK;
    }
    float *held = memory_new(part_bytes(store, param), 1);
    store_from_torch(store, param, host, held);
    enum status status = store_up(store, offset, held, part_bytes(store, param));
    free(held);
    return status;
}

enum status store_read_state(const struct store *store, struct optimizer_state *state)
{
    return store_down(store, store->layout.state, state, sizeof *state);
}

enum status store_write_state(struct store *store, const struct optimizer_state *state)
{
    return store_up(store, store->layout.state, state, sizeof *state);
}

float *store_held(const struct store *store, int param)
{
    assert(is_in_host(store));
    return (float *)store_at(store, store->layout.params[param].master);
}

/* The low-precision copy of one parameter, if it has one, from its master in torch's order in host memory. */
static enum status refresh_one(struct store *store, int param, const void *master, void *scratch)
{
    const struct store_slot *slot = &store->layout.params[param];
    size_t count = (size_t)param_count(store->graph, param);
    if (slot->low == STORE_NONE) return OK;
    float *held = memory_new(count, sizeof *held);
    store_from_torch(store, param, master, held);
    dtype_convert(store->layout.low, scratch, F32, held, count);
    free(held);
    return store_up(store, slot->low, scratch, count * dtype_bytes(store->layout.low));
}

enum status store_init(struct store *store, uint64_t seed)
{
    void *host = memory_new(largest_part(store), 1), *scratch = memory_new(largest_part(store), 1);
    enum status status = OK;
    for (int p = 0; status == OK && p < store->layout.count; p++) {
        fill_initial(store->graph, p, seed, host);
        status = store_write(store, p, STORE_MASTER, host);
        if (status == OK && store_has(store, p, STORE_AVERAGE))
            status = store_write(store, p, STORE_AVERAGE, host);
        if (status == OK) status = refresh_one(store, p, host, scratch);
    }
    free(host);
    free(scratch);
    return status;
}

enum status store_refresh(struct store *store)
{
    void *host = memory_new(largest_part(store), 1), *scratch = memory_new(largest_part(store), 1);
    enum status status = OK;
    for (int p = 0; status == OK && p < store->layout.count; p++) {
        if (store->layout.params[p].low == STORE_NONE) continue;
        status = store_read(store, p, STORE_MASTER, host);
        if (status == OK) status = refresh_one(store, p, host, scratch);
    }
    free(host);
    free(scratch);
    return status;
}

enum status store_fill(struct store *store, const struct store *from)
{
    void *host = memory_new(largest_part(store), 1);
    enum status status = OK;
    for (int p = 0; status == OK && p < store->layout.count; p++) {
        status = store_read(from, p, STORE_MASTER, host);
        if (status == OK) status = store_write(store, p, STORE_MASTER, host);
    }
    free(host);
    return status == OK ? store_refresh(store) : status;
}

static enum status swap_one(struct store *store, int param, void *master, void *average)
{
    TRY(store_read(store, param, STORE_MASTER, master));
    TRY(store_read(store, param, STORE_AVERAGE, average));
    TRY(store_write(store, param, STORE_MASTER, average));
    TRY(store_write(store, param, STORE_AVERAGE, master));
    return refresh_one(store, param, average, master);
}

enum status store_swap_average(struct store *store)
{
    void *master = memory_new(largest_part(store), 1), *average = memory_new(largest_part(store), 1);
    enum status status = OK;
    for (int p = 0; status == OK && p < store->layout.count; p++)
        if (store_has(store, p, STORE_AVERAGE)) status = swap_one(store, p, master, average);
    free(master);
    free(average);
    return status;
}
