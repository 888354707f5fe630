/* streams.c: distributes a program over streams, and inserts the waits that make every reader run after its
 * writer.
 *
 * A chain is a sequence that runs in order; its weight gradients, which only the update waits for, run beside
 * it. There is one chain, or one for each micro-batch, or one for each layer, through which micro-batches
 * flow as in a pipeline, forward and then backward. Transfers and exchanges have separate streams.
 *
 * Matrix products are compute-bound, the ops between them memory-bound. So a weight gradient starts when a
 * data gradient has ended, and overlaps with normalisation, not with the data gradient of the same layer.
 *
 * The inputs of a weight gradient cannot be freed before it has ended. To limit the memory of values that
 * only weight gradients still need, the chain waits for all weight gradients but the
 * latest. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/time/cost.h"
#include "compile/rewrite/rewrites.h"

/* Weight gradients, and the sums of those of several micro-batches. */
static bool is_weight_gradient(const struct program *program, const struct instruction *at)
{
    if (instruction_is_collective(at)) return false;
    if (at->phase == PHASE_BACKWARD_PARAMS) return true;
    int y = operand_y(at);
    return y >= 0 && program->values[y].kind == KIND_PARAM_GRADIENT;
}

/* The last instruction on a stream that wrote or read a value, by value and stream; -1. */
struct touched {
    int *wrote, *read;
    int streams;
};

static void need(int *needs, const int *touched, int streams)
{
    for (int l = 0; l < streams; l++)
        if (touched[l] > needs[l]) needs[l] = touched[l];
}

/* Adds waits for what instruction i needs, unless its stream or another wait implies them; the latest first,
 * since it implies most. */
static void add_waits(struct program *program, int i, int *needs, int *known, const int *table)
{
    struct instruction *at = &program->instructions[i];
    for (;;) {
        int latest = -1;
        for (int l = 0; l < program->streams; l++)
            if (l != at->stream && needs[l] > known[l] && needs[l] > latest) latest = needs[l];
        if (latest < 0) return;
        *array_push(at->waits, at->wait_count) = latest;
        need(known, table + (size_t)latest * (size_t)program->streams, program->streams);
        known[program->instructions[latest].stream] = latest;
    }
}

static void need_one(int *needs, int stream, int i)
{
    if (i > needs[stream]) needs[stream] = i;
}

static void instruction_needs(const struct instruction *at, const struct touched *touched, int *needs)
{
    FOR_OPERANDS(o, at) {
        if (o->access == ACCESS_SHAPE) continue;
        need(needs, touched->wrote + o->value * touched->streams, touched->streams);
        if (o->access & ACCESS_WRITE)
            need(needs, touched->read + o->value * touched->streams, touched->streams);
    }
}

/* Instruction i accesses a value, and with it the value that it is a part of, or its parts. */
static void touch(const struct program *program, int *touched, int value, int i)
{
    int streams = program->streams, stream = program->instructions[i].stream;
    touched[value * streams + stream] = i;
    touched[value_placed(program, value) * streams + stream] = i;
    for (int v = 0; program->values[value].divided && v < program->value_count; v++)
        if (value_placed(program, v) == value) touched[v * streams + stream] = i;
}

/* behind[i] (behind may be NULL): an instruction that must have ended when i starts; -1: none. */
static void waits_set(struct program *program, const int *behind)
{
    int streams = program->streams;
    size_t cells = (size_t)program->value_count * (size_t)streams;
    struct touched touched = {memory_new(cells, sizeof(int)), memory_new(cells, sizeof(int)), streams};
    int *table = memory_new((size_t)program->count * (size_t)streams, sizeof *table);
    int *latest = memory_new((size_t)streams, sizeof *latest);
    int *needs = memory_new((size_t)streams, sizeof *needs);
    for (size_t c = 0; c < cells; c++) touched.wrote[c] = touched.read[c] = -1;
    for (int l = 0; l < streams; l++) latest[l] = -1;
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        int *known = table + (size_t)i * (size_t)streams;
        for (int l = 0; l < streams; l++) known[l] = needs[l] = -1;
        if (latest[at->stream] >= 0)
            need(known, table + (size_t)latest[at->stream] * (size_t)streams, streams);
        known[at->stream] = latest[at->stream];
        latest[at->stream] = i;
        at->wait_count = 0;
        instruction_needs(at, &touched, needs);
        if (at->behind >= 0) need_one(needs, program->instructions[at->behind].stream, at->behind);
        if (behind && behind[i] >= 0) need_one(needs, program->instructions[behind[i]].stream, behind[i]);
        add_waits(program, i, needs, known, table);
        FOR_READS(o, at) touch(program, touched.read, o->value, i);
        FOR_WRITES(o, at) touch(program, touched.wrote, o->value, i);
    }
    free(touched.wrote);
    free(touched.read);
    free(table);
    free(latest);
    free(needs);
}

void streams_wait(struct program *program)
{
    waits_set(program, NULL);
}

enum { MAIN };               /* the stream of the update, and of what else is not a chain's */

/* Streams by number: chains, the weight gradients of each, transfers to the host and back. Collectives use
 * the last number, messages to and from higher and lower stages the four before it: those of each kind are in
 * order. Sends do not wait behind receives, which wait for another stage. */
struct division {
    int chains;
    bool by_layer;
    int *layers;             /* by node of the graph, with by_layer */
    int *chain;              /* by instruction */
};

static int stream_out(const struct division *division)
{
    return 2 * division->chains;
}

/* Weight gradients that are postponed. */
struct later {
    int *at, count;
};

static void order_all(int *order, int *count, struct later *later)
{
    for (int k = 0; k < later->count; k++) order[(*count)++] = later->at[k];
    later->count = 0;
}

/* The order in which weight gradients come behind the next data gradient, unless they already follow one or
 * have joined the chain, and only past instructions of the chain of their micro-batch: a stage of a pipeline
 * may have placed them to fill the time in which it waits. */
static void order_late(const struct program *program, const bool *joined, int *order)
{
    const struct instruction *from = program->instructions;
    struct later later = {0};
    int count = 0;
    bool behind = false;                 /* a data gradient was the last of the chain */
    for (int i = 0; i < program->count; i++) {
        enum phase phase = from[i].phase;
        if (later.count > 0 && from[later.at[0]].micro_batch != from[i].micro_batch)
            order_all(order, &count, &later);
        if (phase == PHASE_BACKWARD_PARAMS && joined[i]) {
            order[count++] = i;
            continue;
        }
        if (phase == PHASE_BACKWARD_PARAMS && !behind) {
            *array_push(later.at, later.count) = i;
            continue;
        }
        bool chain = from[i].op && (phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_DATA);
        if (!chain) order_all(order, &count, &later);
        order[count++] = i;
        if (chain) behind = phase == PHASE_BACKWARD_DATA;
        if (behind) order_all(order, &count, &later);
    }
    order_all(order, &count, &later);
    free(later.at);
}

static void put_in_order(struct program *program, const int *order)
{
    struct instruction *from = program->instructions;
    program->instructions = memory_new((size_t)program->count, sizeof *from);
    for (int i = 0; i < program->count; i++) program->instructions[i] = from[order[i]];
    free(from);
}

/* The new order of instructions: forward of all micro-batches, then the rest; both in their old order.
 * Returns the number of forward instructions. */
static int places_by_phase(const struct program *program, int *place)
{
    bool *begun = memory_new((size_t)program->micro_batches, sizeof *begun);
    bool *forward = memory_new((size_t)program->count, sizeof *forward);
    int count = 0, next = 0;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        begun[at->micro_batch] = begun[at->micro_batch] || instruction_is_backward(at);
        forward[i] = !begun[at->micro_batch] && at->phase != PHASE_UPDATE;
        count += forward[i];
    }
    for (int i = 0, rest = count; i < program->count; i++) place[i] = forward[i] ? next++ : rest++;
    free(begun);
    free(forward);
    return count;
}

/* A stream runs in order. All forward passes come first, so that forward of a micro-batch does not wait on a
 * layer's stream for backward of the preceding one. */
static void put_forward_first(struct program *program)
{
    int *place = memory_new((size_t)program->count, sizeof *place);
    struct instruction *from = program->instructions;
    struct instruction *to = memory_new((size_t)program->count, sizeof *to);
    program->first_backward = places_by_phase(program, place);
    for (int i = 0; i < program->count; i++) {
        to[place[i]] = from[i];
        if (from[i].behind >= 0) to[place[i]].behind = place[from[i].behind];
    }
    program->instructions = to;
    free(from);
    free(place);
}

/* A layer is an op with weights and what follows up to the next one. Returns the number of layers. */
static int number_layers(const struct program *program, int *layers)
{
    int layer = 0;
    bool weights = false;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        if (at->phase != PHASE_FORWARD || at->node < 0 || at->micro_batch > 0) continue;
        if (cost_flops(program, at) > 0) {
            layer += weights;
            weights = true;
        }
        layers[at->node] = layer;
    }
    return layer + 1;
}

static int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* Stages have their own order of micro-batches, on one chain. Ranks exchange in the program's order, which
 * must not depend on the number of streams that each has memory for. */
static struct division divide(const struct program *program, int streams, enum stream_division by)
{
    struct division division = {.chains = 1, .chain = memory_new((size_t)program->count, sizeof(int)),
                                .layers = memory_new((size_t)program->graph->count, sizeof(int))};
    if (program->micro_batches == 1 || program->stages > 1 || !program->training) return division;
    int layers = number_layers(program, division.layers);
    bool alone = program->all_micro_batches == program->micro_batches;
    division.by_layer = by == BY_LAYER && streams >= 2 * 2 && alone;
    int chains = division.by_layer ? layers : program->micro_batches;
    if (streams >= 2) division.chains = smaller(streams / 2, chains);
    return division;
}

/* Loss, casts and sums belong to the layer whose output they read. */
static int layer_of(const struct program *program, const struct division *division, int i)
{
    const struct instruction *at = &program->instructions[i];
    int x = operand_x(at, 0), node = at->node >= 0 || x < 0 ? at->node : program->values[x].node;
    return node >= 0 ? division->layers[node] : 0;
}

static void divide_instructions(const struct program *program, struct division *division)
{
    for (int i = 0; i < program->count; i++) {
        int micro_batch = program->instructions[i].micro_batch;
        int number = division->by_layer ? layer_of(program, division, i) : micro_batch;
        division->chain[i] = number % division->chains;
    }
}

static void division_free(struct division *division)
{
    free(division->layers);
    free(division->chain);
}

/* The latest instruction of a chain, and its last two weight gradients; -1: none. */
struct latest {
    int chain, weights, weights_before;
};

/* The first node that is not in the first chunk of a pipeline. */
static int first_chunk_end(const struct program *program)
{
    int node = 0, count = program->graph->count;
    if (program->stages == 1) return count;
    while (node < count && program->node_stages[node] == program->node_stages[0]) node++;
    return node;
}

/* For each instruction of a chain the last weight gradient but one before it; for a weight gradient, the
 * data gradient just before it in the chain, and behind the first chunk whatever is before it there, since
 * stages wait for what the chain makes; for one that brings a tensor back or receives it, the chain's
 * before it, since it takes memory that is free then. Sums of weight gradients, of several chains or a stage,
 * hold nothing back. */
static int *hold_back(const struct program *program, const struct division *division)
{
    int *behind = memory_new((size_t)program->count, sizeof *behind);
    struct latest *latest = memory_new((size_t)division->chains, sizeof *latest);
    int first_end = first_chunk_end(program);
    for (int c = 0; c < division->chains; c++) latest[c] = (struct latest){-1, -1, -1};
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        struct latest *own = &latest[division->chain[i]];
        behind[i] = -1;
        if (at->stream < division->chains) {
            behind[i] = own->weights_before;
            own->chain = i;
        } else if (at->stream < 2 * division->chains) {
            bool several = division->chains > 1 || program->stages > 1;
            if (several && at->phase != PHASE_BACKWARD_PARAMS) continue;
            own->weights_before = own->weights;
            own->weights = i;
            if (own->chain >= 0 && (at->node >= first_end ||
                                    program->instructions[own->chain].phase == PHASE_BACKWARD_DATA))
                behind[i] = own->chain;
        } else if (at->kind == INSTRUCTION_COPY_FROM_HOST || at->kind == INSTRUCTION_RECEIVE) {
            behind[i] = own->chain;
        }
    }
    free(latest);
    return behind;
}

static bool has_exchanges(const struct program *program)
{
    for (int i = 0; i < program->count; i++)
        if (instruction_is_exchange(program, &program->instructions[i])) return true;
    return false;
}

#define MESSAGE_STREAMS 4

static int message_stream(const struct program *program, const struct instruction *at)
{
    int last = program->streams - 1, higher = at->peer > program->stage;
    return last - 1 - 2 * higher - (at->kind == INSTRUCTION_SEND);
}

/* True if a layer waits for it: a collective of one, between two of its ops. */
static bool is_of_chain(const struct instruction *at)
{
    return instruction_is_collective(at) && at->node >= 0;
}

/* Updates follow each other on one stream. `apart`: on another stream than the chain's. */
static int stream_of(const struct program *program, const struct division *division, int i, bool apart)
{
    const struct instruction *at = &program->instructions[i];
    int last = program->streams - 1;
    if (at->kind == INSTRUCTION_COPY_TO_HOST) return stream_out(division);
    if (at->kind == INSTRUCTION_COPY_FROM_HOST) return stream_out(division) + 1;
    if (at->kind == INSTRUCTION_MEASURE) return MAIN;
    if (instruction_is_message(at)) return message_stream(program, at);
    if (instruction_is_exchange(program, at) && !is_of_chain(at)) return last;
    if (at->phase == PHASE_UPDATE) return MAIN;
    return division->chain[i] + (apart && is_weight_gradient(program, at) ? division->chains : 0);
}

static int streams_needed(const struct program *program, const struct division *division)
{
    int streams = stream_out(division) + (program->host_bytes > 0 ? 2 : 0);
    if (has_exchanges(program)) streams += 1 + (program->stages > 1 ? MESSAGE_STREAMS : 0);
    return streams;
}

void streams_arrange(struct program *program, int count, enum stream_division by, const bool *joined,
                     int *order)
{
    struct division division = divide(program, count, by);
    bool apart = count > 1, several = apart || program->host_bytes > 0;
    for (int i = 0; i < program->count; i++) order[i] = i;
    if (apart) {
        order_late(program, joined, order);
        put_in_order(program, order);
    }
    if (division.by_layer) put_forward_first(program);
    divide_instructions(program, &division);
    program->streams = several ? streams_needed(program, &division) : 1;
    for (int i = 0; i < program->count; i++)
        program->instructions[i].stream =
            several ? stream_of(program, &division, i, apart && !joined[order[i]]) : MAIN;
    int *behind = hold_back(program, &division);
    waits_set(program, behind);
    free(behind);
    division_free(&division);
}
