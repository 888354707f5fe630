/* offload.c: decides which activations are moved to the host, and when they are copied out and back.
 *
 * Copies out are queued in the order in which their tensors are written, copies back in the order in which
 * they are needed; both are scheduled along the modelled time of the step. A tensor's memory is free from the
 * instruction at which its copy out has certainly ended, and which waits for it, to the one at which the copy
 * back begins. */
#include "compile/memory/offload.h"

#include <stdlib.h>

#include "base/memory.h"
#include "compile/ir/program_parts.h"
#include "compile/time/cost.h"
#include "compile/memory/plan.h"

#define HOST_ALIGNMENT 256
#define MIN_SHARE 1000
#define MARGIN 1.15              /* safety factor of the modelled times of copies */

/* A tensor that may be moved. */
struct trip {
    int value;
    int written;             /* by this instruction; its copy out is queued behind it */
    int last;                /* the last reader before it is moved */
    int next;                /* the first reader after that */
    bool taken;
    int gone, back;          /* instructions before which its memory becomes free, and is needed again */
    double out_end, back_begin;
};

struct offloading {
    struct program *program;
    int value_count;         /* before anything is moved */
    struct trip *trips;      /* in the order in which they are written */
    int count;
    double *begin;           /* by instruction: its modelled begin; of the end: the step's */
    int64_t *alive;          /* live bytes by instruction, before anything is moved */
    int64_t *now;            /* and with what is moved */
    int64_t *leaves;         /* and what leaves with each instruction, less what comes back */
    int64_t excess;          /* sum of the excess of `now` over the limit */
    bool may_wait;           /* computing may wait for copies ... */
    double waiting;          /* ... and at most this long for one */
};

static void times_note(struct offloading *o)
{
    const struct program *program = o->program;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        o->begin[i + 1] = o->begin[i] + (at->op ? cost_seconds(program, at) : 0);
    }
}

static int compare_written(const void *a, const void *b)
{
    const struct trip *left = a, *right = b;
    return left->written != right->written ? left->written - right->written : left->value - right->value;
}

/* First and last use of each value on either side of where its micro-batch's backward begins. */
static void trips_find(struct offloading *o, int64_t least)
{
    const struct program *program = o->program;
    struct trip *of = memory_new((size_t)program->value_count, sizeof *of);
    bool after = false;
    for (int v = 0; v < program->value_count; v++) of[v] = (struct trip){v, -1, -1, -1, false, 0, 0, 0, 0};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (i > 0 && at->micro_batch != program->instructions[i - 1].micro_batch) after = false;
        if (at->phase != PHASE_FORWARD) after = true;
        FOR_READS(use, at) {
            struct trip *trip = &of[use->value];
            if (!after) trip->last = i;
            else if (trip->next < 0) trip->next = i;
        }
        FOR_WRITES(use, at)
            if (!after) of[use->value].written = of[use->value].last = i;
    }
    for (int v = 0; v < program->value_count; v++) {
        const struct value *value = &program->values[v];
        bool kept = value->kind == KIND_ACTIVATION || value->kind == KIND_SAVED;
        if (of[v].written >= 0 && of[v].next > of[v].last && kept && value->home == HOME_ARENA &&
            value->bytes >= least)
            *array_push(o->trips, o->count) = of[v];
    }
    if (o->count > 0) qsort(o->trips, (size_t)o->count, sizeof *o->trips, compare_written);
    free(of);
}

static struct offloading offloading_open(struct program *program, int64_t least)
{
    struct offloading o = {.program = program, .value_count = program->value_count};
    size_t count = (size_t)program->count + 1;
    o.begin = memory_new(count, sizeof *o.begin);
    o.alive = plan_live_bytes(program);
    o.now = memory_new(count, sizeof *o.now);
    o.leaves = memory_new(count, sizeof *o.leaves);
    times_note(&o);
    int64_t most = 0;
    for (int i = 0; i < program->count; i++)
        if (o.alive[i] > most) most = o.alive[i];
    trips_find(&o, least > 0 ? least : most / MIN_SHARE);
    return o;
}

static void offloading_close(struct offloading *o)
{
    free(o->trips);
    free(o->begin);
    free(o->alive);
    free(o->now);
    free(o->leaves);
}

/* The first instruction from `from` on that begins at `time` or later; the number of all: none. */
static int instruction_at(const struct offloading *o, int from, double time)
{
    int low = from, high = o->program->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (o->begin[middle] < time) low = middle + 1;
        else high = middle;
    }
    return low;
}

static double copy_seconds(const struct offloading *o, const struct trip *trip)
{
    return MARGIN * cost_transfer(o->program, (double)o->program->values[trip->value].bytes);
}

/* The instruction with which the part of backward begins that a tensor waits for. */
static int turn_of(const struct offloading *o, const struct trip *trip)
{
    int i = trip->last + 1;
    while (o->program->instructions[i].phase == PHASE_FORWARD) i++;
    return i;
}

/* Copies out, one after another. Backward waits for those that have not ended; if there is no time for that,
 * the wait is after the next tensor is written. */
static void lay_out(struct offloading *o)
{
    double free_at = 0, late = 0;
    struct trip *before = NULL;
    for (int t = 0; t < o->count; t++) {
        struct trip *trip = &o->trips[t];
        if (!trip->taken) continue;
        if (o->may_wait && before && before->gone > trip->written + 1)
            before->gone = trip->written + 1 > before->last ? trip->written + 1 : before->last + 1;
        before = trip;
        double written = o->begin[trip->written + 1];
        trip->out_end = free_at = (free_at > written ? free_at : written) + copy_seconds(o, trip);
        trip->gone = instruction_at(o, trip->last + 1, trip->out_end);
        int turn = turn_of(o, trip);
        if (trip->gone > turn) trip->gone = turn;
        double behind = trip->out_end - o->begin[trip->gone];
        if (behind > late) late = behind;
    }
    o->waiting += late;
}

static int compare_next(const void *a, const void *b)
{
    const struct trip *left = *(const struct trip *const *)a, *right = *(const struct trip *const *)b;
    if (left->next != right->next) return left->next > right->next ? -1 : 1;
    return (left->value > right->value) - (left->value < right->value);
}

/* Copies back, each as late as possible, and not before its copy out has ended. If there is no time for that,
 * each begins when the preceding one is in use. */
static void lay_back(struct offloading *o)
{
    struct trip **order = memory_new((size_t)o->count + 1, sizeof *order);
    int count = 0;
    double free_until = o->begin[o->program->count], late = 0;
    for (int t = 0; t < o->count; t++)
        if (o->trips[t].taken) order[count++] = &o->trips[t];
    qsort(order, (size_t)count, sizeof *order, compare_next);
    for (int t = 0; t < count; t++) {
        struct trip *trip = order[t];
        double needed = o->begin[trip->next];
        trip->back_begin = (free_until < needed ? free_until : needed) - copy_seconds(o, trip);
        free_until = trip->back_begin;
        trip->back = instruction_at(o, trip->gone, trip->back_begin);
        if (trip->back > trip->gone && o->begin[trip->back] > trip->back_begin) trip->back--;
        if (o->may_wait && t + 1 < count && trip->back < order[t + 1]->next) trip->back = order[t + 1]->next;
        double behind = o->begin[trip->back] - trip->back_begin;
        if (behind > late) late = behind;
    }
    o->waiting += late;
    free(order);
}

static void offload_lay(struct offloading *o, int64_t limit)
{
    o->waiting = 0;
    lay_out(o);
    lay_back(o);
    int64_t away = 0;
    for (int i = 0; i <= o->program->count; i++) o->leaves[i] = 0;
    for (int t = 0; t < o->count; t++) {
        const struct trip *trip = &o->trips[t];
        bool leaves = trip->taken && trip->gone < trip->back;
        int64_t bytes = leaves ? plan_bytes(&o->program->values[trip->value]) : 0;
        o->leaves[trip->gone] += bytes;
        o->leaves[trip->back] -= bytes;
    }
    o->excess = 0;
    for (int i = 0; i < o->program->count; i++) {
        away += o->leaves[i];
        o->now[i] = o->alive[i] - away;
        if (o->now[i] > limit) o->excess += o->now[i] - limit;
    }
}

/* Selects the tensors that help, in order. */
static void offload_choose(struct offloading *o, const struct offload_options *options, bool may_wait)
{
    o->may_wait = may_wait;
    offload_lay(o, options->limit);
    for (int t = 0; t < o->count && o->excess > 0; t++) {
        int64_t before = o->excess;
        if (o->trips[t].taken) continue;
        o->trips[t].taken = true;
        offload_lay(o, options->limit);
        if (o->excess < before && (may_wait || o->waiting <= 0)) continue;
        o->trips[t].taken = false;
        offload_lay(o, options->limit);
    }
}

/* Values that need not be moved after all are kept, the last one first, since it waits the shortest time. */
static void offload_prune(struct offloading *o, int64_t limit)
{
    for (int t = o->count - 1; t >= 0; t--) {
        int64_t before = o->excess;
        if (!o->trips[t].taken) continue;
        o->trips[t].taken = false;
        offload_lay(o, limit);
        if (o->excess <= before) continue;
        o->trips[t].taken = true;
        offload_lay(o, limit);
    }
}

/* Builds the program with the copies. */

struct moving {
    struct program *program;
    struct instruction *from;
    int *now;                /* by value: its current replacement */
    int *out;                /* by trip: the instruction that copies it out */
    int *host;               /* and the value in host memory */
};

static int push_copy(struct program *program, enum instruction_kind kind, int micro_batch, int from, int to)
{
    bool out = kind == INSTRUCTION_COPY_TO_HOST;
    const char *name = program->values[out ? from : to].name, *suffix = out ? "to the host" : "from the host";
    struct instruction at = instruction_transfer(kind, out ? PHASE_FORWARD : PHASE_RECOMPUTE,
                                                 text_format("%s %s", name, suffix), from, to);
    at.micro_batch = micro_batch;
    *array_push(program->instructions, program->count) = at;
    return program->count - 1;
}

static void move_out(struct moving *moving, const struct trip *trip, int t)
{
    struct program *program = moving->program;
    struct value value = program->values[trip->value];
    char *name = text_format("%s in host memory", value.name);
    value.home = HOME_HOST;
    value.kind = KIND_OTHER;
    value.offset = program->host_bytes;
    program->host_bytes += (int64_t)align_up((size_t)value.bytes, HOST_ALIGNMENT);
    int micro_batch = moving->from[trip->written].micro_batch;
    moving->host[t] = build_value(program, value, name);
    moving->out[t] = push_copy(program, INSTRUCTION_COPY_TO_HOST, micro_batch, trip->value, moving->host[t]);
}

static void move_back(struct moving *moving, const struct trip *trip, int t)
{
    struct program *program = moving->program;
    struct value value = program->values[trip->value];
    char *name = text_format("%s, back", value.name);
    int micro_batch = moving->from[trip->next].micro_batch, back = build_value(program, value, name);
    moving->now[trip->value] = back;
    push_copy(program, INSTRUCTION_COPY_FROM_HOST, micro_batch, moving->host[t], back);
}

static void move_instruction(struct moving *moving, const struct offloading *o, int i)
{
    struct instruction at = moving->from[i];
    for (int t = 0; t < o->count; t++) {
        bool gone = o->trips[t].taken && o->trips[t].gone == i;
        if (gone && moving->out[t] > at.behind) at.behind = moving->out[t];
    }
    if (at.op) operands_replace(&at, moving->now, o->value_count);
    build_push(moving->program, at);
}

static void offload_rewrite(struct offloading *o)
{
    struct program *program = o->program;
    int count = program->count, first_backward = program->first_backward, values = program->value_count;
    struct moving moving = {.program = program, .from = program->instructions};
    moving.now = memory_new((size_t)values, sizeof *moving.now);
    moving.out = memory_new((size_t)o->count + 1, sizeof *moving.out);
    moving.host = memory_new((size_t)o->count + 1, sizeof *moving.host);
    for (int v = 0; v < values; v++) moving.now[v] = v;
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        for (int t = 0; t < o->count; t++)
            if (o->trips[t].taken && o->trips[t].back == i) move_back(&moving, &o->trips[t], t);
        if (i == first_backward) program->first_backward = program->count;
        move_instruction(&moving, o, i);
        for (int t = 0; t < o->count; t++)
            if (o->trips[t].taken && o->trips[t].written == i) move_out(&moving, &o->trips[t], t);
    }
    free(moving.from);
    free(moving.now);
    free(moving.out);
    free(moving.host);
}

static double later_of(double a, double b)
{
    return a > b ? a : b;
}

/* The additional time of the step due to copies, by simulating the streams. */
static double simulated_delay(const struct offloading *o)
{
    double chain = 0, out = 0, back = 0;
    double *end = memory_new((size_t)o->count + 1, sizeof *end);
    for (int i = 0; i < o->program->count; i++) {
        for (int t = 0; t < o->count; t++)
            if (o->trips[t].taken && o->trips[t].gone == i) chain = later_of(chain, end[t]);
        for (int t = 0; t < o->count; t++) {
            if (!o->trips[t].taken || o->trips[t].back != i) continue;
            end[t] = back = later_of(later_of(chain, back), end[t]) + copy_seconds(o, &o->trips[t]);
        }
        for (int t = 0; t < o->count; t++)
            if (o->trips[t].taken && o->trips[t].next == i) chain = later_of(chain, end[t]);
        chain += o->begin[i + 1] - o->begin[i];
        for (int t = 0; t < o->count; t++) {
            if (!o->trips[t].taken || o->trips[t].written != i) continue;
            end[t] = out = later_of(chain, out) + copy_seconds(o, &o->trips[t]);
        }
    }
    free(end);
    return chain - o->begin[o->program->count];
}

static void forecast_set(const struct offloading *o, struct offload_forecast *forecast)
{
    *forecast = (struct offload_forecast){.seconds = simulated_delay(o)};
    for (int i = 0; i < o->program->count; i++)
        if (o->now[i] > forecast->bytes) forecast->bytes = o->now[i];
    for (int t = 0; t < o->count; t++) {
        if (!o->trips[t].taken) continue;
        forecast->moved += o->program->values[o->trips[t].value].bytes;
        forecast->count++;
    }
}

bool offload(struct program *program, const struct offload_options *options,
             struct offload_forecast *forecast)
{
    struct offloading o = offloading_open(program, options->least);
    offload_choose(&o, options, false);
    if (!options->hidden && o.excess > 0) offload_choose(&o, options, true);
    offload_prune(&o, options->limit);
    forecast_set(&o, forecast);
    bool fits = o.excess == 0;
    if (forecast->count > 0) offload_rewrite(&o);
    offloading_close(&o);
    return fits;
}

int64_t offload_bytes(const struct program *program)
{
    int64_t bytes = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->kind == INSTRUCTION_COPY_TO_HOST) bytes += program->values[operand_y(at)].bytes;
    }
    return bytes;
}
