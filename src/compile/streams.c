/* streams.c: spreads a program over streams: weight gradients, which nobody but the update waits for,
 * beside the backward chain; transfers beside both; and the waits that keep every reader behind its writer.
 *
 * Products are bound by arithmetic, what lies between them by memory. So a weight gradient begins when a data
 * gradient has ended, and has normalisation for company, not the data gradient of the same layer.
 *
 * What a weight gradient reads cannot be given up before it has ended. So that memory does not fill
 * with what stream 0 has long done with, it waits there for all weight gradients but the latest. */
#include <stdlib.h>

#include "base/memory.h"
#include "compile/program_parts.h"

/* Weight gradients, and the sums of those of several micro-batches. */
static bool is_weight_gradient(const struct program *program, const struct instruction *at)
{
    if (instruction_is_collective(at)) return false;
    if (at->phase == PHASE_BACKWARD_PARAMS) return true;
    return at->y >= 0 && program->values[at->y].kind == KIND_PARAM_GRADIENT;
}

/* By value and stream: the last instruction on that stream that wrote or read it; -1. */
struct touched {
    int *wrote, *read;
    int streams;
};

static void need(int *needs, const int *touched, int streams)
{
    for (int l = 0; l < streams; l++)
        if (touched[l] > needs[l]) needs[l] = touched[l];
}

/* Of what instruction i needs, waits for what neither its stream nor another wait brings already:
 * the latest first, since it brings most. */
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
    for (int k = 0; k < at->read_count; k++)
        need(needs, touched->wrote + at->reads[k] * touched->streams, touched->streams);
    for (int k = 0; k < at->write_count; k++) {
        need(needs, touched->wrote + at->writes[k] * touched->streams, touched->streams);
        need(needs, touched->read + at->writes[k] * touched->streams, touched->streams);
    }
}

/* Instruction i touches a value, and with it what it is a part of, or its parts. */
static void touch(const struct program *program, int *touched, int value, int i)
{
    int streams = program->streams, stream = program->instructions[i].stream;
    touched[value * streams + stream] = i;
    touched[value_placed(program, value) * streams + stream] = i;
    for (int v = 0; program->values[value].divided && v < program->value_count; v++)
        if (value_placed(program, v) == value) touched[v * streams + stream] = i;
}

/* behind[i], if there are such: an instruction that must have ended when i starts; -1. */
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
        for (int k = 0; k < at->read_count; k++) touch(program, touched.read, at->reads[k], i);
        for (int k = 0; k < at->write_count; k++) touch(program, touched.wrote, at->writes[k], i);
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

/* Exchanges among ranks take the last number, sends and receives of stages the two before it. */
enum stream { STREAM_MAIN, STREAM_WEIGHT_GRADIENTS, STREAM_OUT, STREAM_BACK };
enum { STREAMS_COMPUTING = STREAM_OUT, STREAMS_ALL = STREAM_BACK + 1 };

/* Weight gradients that are to come later. */
struct later {
    int *at, count;
};

static void push_all(struct program *program, const struct instruction *from, struct later *later)
{
    for (int k = 0; k < later->count; k++)
        *array_push(program->instructions, program->count) = from[later->at[k]];
    later->count = 0;
}

/* Puts weight gradients behind the data gradient that follows, where they are not behind one; past nothing
 * but the chain. */
static void put_late(struct program *program)
{
    struct instruction *from = program->instructions;
    struct later later = {0};
    int count = program->count;
    bool behind = false;                 /* a data gradient was the last of the chain */
    program->instructions = NULL;
    program->count = 0;
    for (int i = 0; i < count; i++) {
        enum phase phase = from[i].phase;
        if (phase == PHASE_BACKWARD_PARAMS && !behind) {
            *array_push(later.at, later.count) = i;
            continue;
        }
        bool chain = from[i].op && (phase == PHASE_BACKWARD || phase == PHASE_BACKWARD_DATA);
        if (!chain) push_all(program, from, &later);
        *array_push(program->instructions, program->count) = from[i];
        if (chain) behind = phase == PHASE_BACKWARD_DATA;
        if (behind) push_all(program, from, &later);
    }
    push_all(program, from, &later);
    free(later.at);
    free(from);
}

/* For each instruction of the chain the last weight gradient but one before it; for a weight gradient, the
 * data gradient just before it in the chain; for one that brings a tensor back or receives it, the chain's
 * before it, since it takes memory that is free then. */
static int *hold_back(const struct program *program)
{
    int *behind = memory_new((size_t)program->count, sizeof *behind);
    int last = -1, before_last = -1, chain = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        behind[i] = -1;
        if (at->stream == STREAM_MAIN) {
            behind[i] = before_last;
            chain = i;
        } else if (at->stream == STREAM_WEIGHT_GRADIENTS) {
            before_last = last;
            last = i;
            if (chain >= 0 && program->instructions[chain].phase == PHASE_BACKWARD_DATA) behind[i] = chain;
        } else if (at->stream == STREAM_BACK || at->kind == INSTRUCTION_RECEIVE) {
            behind[i] = chain;
        }
    }
    return behind;
}

static bool has_exchanges(const struct program *program)
{
    for (int i = 0; i < program->count; i++)
        if (instruction_is_exchange(program, &program->instructions[i])) return true;
    return false;
}

static int stream_of(const struct program *program, const struct instruction *at)
{
    int last = program->streams - 1;
    if (at->kind == INSTRUCTION_COPY_TO_HOST) return STREAM_OUT;
    if (at->kind == INSTRUCTION_COPY_FROM_HOST) return STREAM_BACK;
    if (at->kind == INSTRUCTION_MEASURE) return STREAM_MAIN;
    if (instruction_is_message(at)) return at->kind == INSTRUCTION_SEND ? last - 2 : last - 1;
    if (instruction_is_exchange(program, at)) return last;
    return is_weight_gradient(program, at) ? STREAM_WEIGHT_GRADIENTS : STREAM_MAIN;
}

enum status streams_assign(struct program *program, int count)
{
    bool several = count >= STREAMS_COMPUTING;
    if (several) put_late(program);
    program->streams = !several ? 1 : program->host_bytes > 0 ? STREAMS_ALL : STREAMS_COMPUTING;
    if (several && has_exchanges(program)) program->streams += program->stages > 1 ? 3 : 1;
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        at->stream = several ? stream_of(program, at) : STREAM_MAIN;
    }
    int *behind = hold_back(program);
    waits_set(program, behind);
    free(behind);
    return OK;
}
