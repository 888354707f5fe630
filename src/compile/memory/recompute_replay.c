#include "compile/memory/recompute_replay.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/memory/plan.h"

bool replay_can_recompute(const struct replay *replay, int i)
{
    return replay->walk.again[i].made > 0;
}

static inline int copy_tensor(const struct replay *replay, int copy)
{
    return copy - replay->program->value_count + replay->slot_count;
}

/* The value that an instruction reads now: the original or its last copy. */
static inline int tensor_of(const struct replay *replay, int value)
{
    int copy = replay->walk.now[value];
    return copy >= 0 ? copy_tensor(replay, copy) : replay->slot[value];
}

static inline void tensor_use(struct replay *replay, int value)
{
    struct replay_tensor *tensor = &replay->tensors[tensor_of(replay, value)];
    if (tensor->first < 0) tensor->first = replay->time;
    tensor->last = replay->time;
}

static void use_in_place(struct replay *replay, struct in_place pair)
{
    if (pair.from < 0 || replay->slot[pair.to] < 0) return;
    if (replay->program->values[pair.to].home == HOME_PART) return;
    int from = tensor_of(replay, pair.from);
    if (from < 0) return;                /* not in the arena */
    *array_put(replay->in_place, replay->in_place_count, replay->in_place_room) =
        (struct replay_in_place){from, tensor_of(replay, pair.to), replay->time};
}

static void uses_in_place(struct replay *replay, const struct instruction *at)
{
    for (int p = 0; p < IN_PLACE_PAIRS; p++) use_in_place(replay, at->in_place[p]);
}

static void replay_step_end(struct replay *replay, int entry)
{
    *array_put(replay->sequence, replay->time, replay->sequence_room) = entry;
}

static void replay_as_is(struct replay *replay, int i)
{
    for (int u = replay->uses_first[i]; u < replay->uses_first[i + 1]; u++)
        tensor_use(replay, replay->uses[u]);
    uses_in_place(replay, &replay->program->instructions[i]);
    replay_step_end(replay, i);
}

static void copy_add(struct replay *replay, int value)
{
    int copy = copy_tensor(replay, replay->walk.now[value]);
    replay->tensors[copy] = (struct replay_tensor){value, replay->time, replay->time, copy,
                                                   plan_bytes(&replay->program->values[value])};
}

/* Grows the tensors to those that the walk has numbered; sums and workspaces count in `extra` instead. */
static void copies_begin(struct replay *replay)
{
    int count = copy_tensor(replay, replay->walk.value_count);
    while (replay->tensor_count < count)
        *array_put(replay->tensors, replay->tensor_count, replay->tensor_room) =
            (struct replay_tensor){.first = -1};
}

static void replay_recomputed(struct replay *replay, int i)
{
    const struct instruction *at = &replay->program->instructions[i];
    const struct recompute_again *again = &replay->walk.again[i];
    const int *reads = recompute_reads_of(&replay->walk, i), *made = recompute_made_of(&replay->walk, i);
    copies_begin(replay);
    for (int k = 0; k < again->reads; k++)
        if (replay->slot[reads[k]] >= 0) tensor_use(replay, reads[k]);
    for (int k = 0; k < again->made; k++) copy_add(replay, made[k]);
    uses_in_place(replay, at);
    replay_step_end(replay, ~i);
}

static void replay_step(void *context, int i, bool recomputed)
{
    if (recomputed) replay_recomputed(context, i);
    else replay_as_is(context, i);
}

/* A tensor may take the place of one that dies where it is written; a place lives as long as its last
 * tensor. */
static void addresses_share(struct replay *replay)
{
    for (int k = 0; k < replay->in_place_count; k++) {
        const struct replay_in_place *pair = &replay->in_place[k];
        const struct replay_tensor *from = &replay->tensors[pair->from];
        struct replay_tensor *to = &replay->tensors[pair->to];
        if (from->last != pair->time || to->bytes > from->bytes) continue;
        to->head = from->head;
        struct replay_tensor *head = &replay->tensors[from->head];
        if (to->last > head->last) head->last = to->last;
    }
}

static void changes_note(struct replay *replay)
{
    size_t length = (size_t)replay->time + 1;
    int64_t *change = replay->change;
    if (replay->change_room < replay->time + 1) {
        replay->change_room = 2 * replay->time + 1;
        change = replay->change = memory_resize(change, (size_t)replay->change_room, sizeof *change);
    }
    memset(change, 0, length * sizeof *change);
    for (int k = 0; k < replay->tensor_count; k++) {
        const struct replay_tensor *tensor = &replay->tensors[k];
        if (tensor->first < 0 || tensor->head != k) continue;
        change[tensor->first] += tensor->bytes;
        change[tensor->last + 1] -= tensor->bytes;
    }
}

static void results_note(struct replay *replay)
{
    int64_t alive = replay->before;
    replay->seconds = replay->excess = 0;
    replay->peak = 0;
    for (int t = 0; t < replay->time; t++) {
        int entry = replay->sequence[t];
        alive += replay->change[t];
        if (entry >= 0) alive += replay->begins[entry];
        else replay->seconds += replay->cost[~entry];
        int64_t bytes = entry >= 0 ? alive : alive + replay->extra[~entry];
        if (bytes > replay->peak) replay->peak = bytes;
        replay->change[t] = bytes > replay->limit ? bytes - replay->limit : 0;
        replay->excess += (double)replay->change[t];
        if (entry >= 0) alive -= replay->ends[entry];
    }
}

void replay_run(struct replay *replay)
{
    memcpy(replay->tensors, replay->forward_tensors, (size_t)replay->slot_count * sizeof *replay->tensors);
    replay->tensor_count = replay->slot_count;
    replay->in_place_count = replay->forward_in_place_count;
    replay->time = replay->walk.first - replay->begin;
    recompute_walk(&replay->walk);
    addresses_share(replay);
    changes_note(replay);
    results_note(replay);
    replay->work += replay->time;
}

/* The excess that is due to a tensor: the bytes above the limit while it is live, at most its own. */
void replay_gain_bounds(const struct replay *replay, double *gain)
{
    size_t length = (size_t)replay->time + 1;
    double *excess = memory_new(length, sizeof *excess);      /* up to a time */
    int *over = memory_new(length, sizeof *over);             /* instructions above the limit, up to a time */
    for (int t = 0; t < replay->time; t++) {
        excess[t + 1] = excess[t] + (double)replay->change[t];
        over[t + 1] = over[t] + (replay->change[t] > 0);
    }
    for (int i = 0; i < replay->program->count; i++) gain[i] = 0;
    for (int k = 0; k < replay->tensor_count; k++) {
        const struct replay_tensor *tensor = &replay->tensors[k];
        int producer = replay->walk.producer[tensor->value];
        if (tensor->first < 0 || producer < 0) continue;
        double while_alive = excess[tensor->last + 1] - excess[tensor->first];
        int times = over[tensor->last + 1] - over[tensor->first];
        double own = (double)replay->tensors[tensor->head].bytes * times;
        gain[producer] += own < while_alive ? own : while_alive;
    }
    free(excess);
    free(over);
}

/* Values that forward calls read or write, since those calls may run again, and values that may share places
 * with them. */
static bool *varying_values(const struct replay *replay)
{
    const struct program *program = replay->program;
    bool *varies = memory_new((size_t)program->value_count + 1, sizeof *varies), more = true;
    for (int i = replay->begin; i < replay->walk.end; i++) {
        const struct instruction *at = &program->instructions[i];
        if (!replay_can_recompute(replay, i)) continue;
        FOR_OPERANDS(o, at)
            if (operand_rows[o->role].recompute != CALL_SHAPE && !operand_is_extra(o))
                varies[o->value] = true;
    }
    while (more) {
        more = false;
        for (int i = replay->begin; i < replay->walk.end; i++) {
            for (int p = 0; p < IN_PLACE_PAIRS; p++) {
                struct in_place pair = program->instructions[i].in_place[p];
                if (pair.from < 0 || varies[pair.from] == varies[pair.to]) continue;
                varies[pair.from] = varies[pair.to] = more = true;
            }
        }
    }
    return varies;
}

/* Numbers the slots of the values in the arena; all of them if `varies` is NULL. */
static void slots_note(struct replay *replay, const bool *varies)
{
    const struct program *program = replay->program;
    replay->slot_count = 0;
    for (int v = 0; v < program->value_count; v++) {
        bool has = program->values[v].home == HOME_ARENA && (!varies || varies[v]);
        int slot = replay->slot[v] = has ? replay->slot_count++ : -1;
        if (has)
            replay->tensors[slot] = (struct replay_tensor){v, -1, -1, slot, plan_bytes(&program->values[v])};
    }
    for (int v = 0; v < program->value_count; v++) replay->slot[v] = replay->slot[value_placed(program, v)];
}

static void uses_note(struct replay *replay)
{
    int count = 0;
    for (int i = 0; i < replay->program->count; i++) {
        const struct instruction *at = &replay->program->instructions[i];
        replay->uses_first[i] = count;
        FOR_OPERANDS(o, at)
            if (o->access != ACCESS_SHAPE && replay->slot[o->value] >= 0)
                *array_push(replay->uses, count) = o->value;
    }
    replay->uses_first[replay->program->count] = count;
}

/* All runs are the same up to the first instruction for which something may be recomputed. */
static void forward_note(struct replay *replay, const bool *varies)
{
    slots_note(replay, varies);
    uses_note(replay);
    replay->time = replay->in_place_count = 0;
    for (int i = replay->begin; i < replay->walk.first; i++) replay_as_is(replay, i);
    memcpy(replay->forward_tensors, replay->tensors, (size_t)replay->slot_count * sizeof *replay->tensors);
    replay->forward_in_place_count = replay->in_place_count;
}

/* The first of a micro-batch's instructions. */
static int micro_batch_begin(const struct replay *replay, int micro_batch)
{
    int i = 0, count = replay->program->count;
    if (micro_batch == 0) return 0;
    while (i < count && (!replay_can_recompute(replay, i) ||
                         replay->program->instructions[i].micro_batch < micro_batch)) i++;
    return i;
}

/* The instructions that runs replay, after a first run of all of them without limit that kept everything:
 * those of a micro-batch and of the one before it, unless others come between. */
static void window_note(struct replay *replay, bool whole)
{
    struct recompute_walk *walk = &replay->walk;
    int peak = 0;
    for (int t = 1; t < replay->time; t++)
        if (replay->change[t] > replay->change[peak]) peak = t;
    replay->micro_batch = replay->program->instructions[peak].micro_batch;
    whole = whole || pipeline_interleaves(replay->program->schedule);
    if (whole || replay->program->micro_batches < 2) replay->micro_batch = 0;
    else if (replay->micro_batch == 0) replay->micro_batch = 1;
    if (replay->micro_batch > 0) {
        replay->begin = micro_batch_begin(replay, replay->micro_batch - 1);
        walk->end = micro_batch_begin(replay, replay->micro_batch + 1);
    }
    walk->first = replay->begin;
    while (walk->first < walk->end && walk->wanted_first[walk->first] == walk->wanted_first[walk->first + 1])
        walk->first++;
}

/* Lifetimes of the values that do not vary, as in the run that kept everything. */
static void fixed_note(struct replay *replay, const bool *varies)
{
    for (int v = 0; v < replay->program->value_count; v++) {
        int slot = replay->slot[v];
        if (slot < 0 || varies[v] || replay->program->values[v].home == HOME_PART) continue;
        const struct replay_tensor *tensor = &replay->tensors[slot];
        if (tensor->first < 0 || tensor->head != slot) continue;
        replay->begins[tensor->first] += tensor->bytes;
        replay->ends[tensor->last] += tensor->bytes;
    }
    for (int i = 0; i < replay->begin; i++) replay->before += replay->begins[i] - replay->ends[i];
    free(replay->uses);
    replay->uses = NULL;
}

static void calls_note(struct replay *replay, const double *cost)
{
    const struct program *program = replay->program;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        replay->cost[i] = REPLAY_TICK * nearbyint(cost[i] / REPLAY_TICK);
        FOR_WRITES(o, at)
            if (operand_is_extra(o)) replay->extra[i] += plan_bytes(&program->values[o->value]);
    }
}

void replay_open(struct replay *replay, const struct program *program, const double *cost, bool whole)
{
    size_t count = (size_t)program->count + 1, values = (size_t)program->value_count + 1;
    *replay = (struct replay){.program = program, .walk = recompute_walk_open(program)};
    replay->modes = memory_new(count, sizeof *replay->modes);
    replay->cost = memory_new(count, sizeof *replay->cost);
    replay->extra = memory_new(count, sizeof *replay->extra);
    replay->begins = memory_new(count, sizeof *replay->begins);
    replay->ends = memory_new(count, sizeof *replay->ends);
    replay->slot = memory_new(values, sizeof *replay->slot);
    replay->uses_first = memory_new(count, sizeof *replay->uses_first);
    replay->tensors = memory_new(values, sizeof *replay->tensors);
    replay->tensor_room = (int)values;
    replay->forward_tensors = memory_new(values, sizeof *replay->forward_tensors);
    replay->walk.modes = replay->modes;
    replay->walk.next = replay_step;
    replay->walk.context = replay;
    calls_note(replay, cost);
    forward_note(replay, NULL);
    replay_run(replay);
    window_note(replay, whole);
    bool *varies = varying_values(replay);
    fixed_note(replay, varies);
    forward_note(replay, varies);
    replay->limit = INT64_MAX;
    free(varies);
}

void replay_close(struct replay *replay)
{
    recompute_walk_close(&replay->walk);
    free(replay->modes);
    free(replay->cost);
    free(replay->extra);
    free(replay->begins);
    free(replay->ends);
    free(replay->slot);
    free(replay->uses);
    free(replay->uses_first);
    free(replay->tensors);
    free(replay->forward_tensors);
    free(replay->in_place);
    free(replay->sequence);
    free(replay->change);
}
