/* lanes.c: spreads a program over lanes: weight gradients, which nobody but the update waits for,
 * beside the backward chain; and the waits that keep every reader behind its writer.
 *
 * What a weight gradient reads cannot be given up before it has ended. So that memory does not fill
 * with what lane 0 has long done with, it waits there for all weight gradients but the latest. */
#include <stdlib.h>

#include "base/memory.h"
#include "graph/build.h"

/* Weight gradients, and the sums of those of several micro-batches. */
static bool is_aside(const struct program *program, const struct instruction *at)
{
    if (at->phase == PHASE_BACKWARD_PARAMS) return true;
    return at->y >= 0 && program->values[at->y].kind == KIND_PARAM_GRADIENT;
}

/* By value and lane: the last instruction on that lane that wrote or read it; -1. */
struct touched {
    int *wrote, *read;
    int lanes;
};

static void need(int *needs, const int *touched, int lanes)
{
    for (int l = 0; l < lanes; l++)
        if (touched[l] > needs[l]) needs[l] = touched[l];
}

/* Of what instruction i needs, waits for what neither its lane nor another wait brings already:
 * the latest first, since it brings most. */
static void add_waits(struct program *program, int i, int *needs, int *known, const int *table)
{
    struct instruction *at = &program->instructions[i];
    for (;;) {
        int latest = -1;
        for (int l = 0; l < program->lanes; l++)
            if (l != at->lane && needs[l] > known[l] && needs[l] > latest) latest = needs[l];
        if (latest < 0) return;
        *array_push(at->waits, at->wait_count) = latest;
        need(known, table + (size_t)latest * (size_t)program->lanes, program->lanes);
        known[program->instructions[latest].lane] = latest;
    }
}

static void need_one(int *needs, int lane, int i)
{
    if (i > needs[lane]) needs[lane] = i;
}

static void instruction_needs(const struct instruction *at, const struct touched *touched, int *needs)
{
    for (int k = 0; k < at->read_count; k++)
        need(needs, touched->wrote + at->reads[k] * touched->lanes, touched->lanes);
    for (int k = 0; k < at->write_count; k++) {
        need(needs, touched->wrote + at->writes[k] * touched->lanes, touched->lanes);
        need(needs, touched->read + at->writes[k] * touched->lanes, touched->lanes);
    }
}

/* behind[i], if there are such: an instruction that must have ended when i starts; -1. */
static void waits_set(struct program *program, const int *behind)
{
    int lanes = program->lanes;
    size_t cells = (size_t)program->value_count * (size_t)lanes;
    struct touched touched = {memory_new(cells, sizeof(int)), memory_new(cells, sizeof(int)), lanes};
    int *table = memory_new((size_t)program->count * (size_t)lanes, sizeof *table);
    int *latest = memory_new((size_t)lanes, sizeof *latest);
    int *needs = memory_new((size_t)lanes, sizeof *needs);
    for (size_t c = 0; c < cells; c++) touched.wrote[c] = touched.read[c] = -1;
    for (int l = 0; l < lanes; l++) latest[l] = -1;
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        int *known = table + (size_t)i * (size_t)lanes;
        for (int l = 0; l < lanes; l++) known[l] = needs[l] = -1;
        if (latest[at->lane] >= 0) need(known, table + (size_t)latest[at->lane] * (size_t)lanes, lanes);
        known[at->lane] = latest[at->lane];
        latest[at->lane] = i;
        at->wait_count = 0;
        instruction_needs(at, &touched, needs);
        if (behind && behind[i] >= 0) need_one(needs, program->instructions[behind[i]].lane, behind[i]);
        add_waits(program, i, needs, known, table);
        for (int k = 0; k < at->read_count; k++) touched.read[at->reads[k] * lanes + at->lane] = i;
        for (int k = 0; k < at->write_count; k++) touched.wrote[at->writes[k] * lanes + at->lane] = i;
    }
    free(touched.wrote);
    free(touched.read);
    free(table);
    free(latest);
    free(needs);
}

void lanes_wait(struct program *program)
{
    waits_set(program, NULL);
}

/* For each instruction on lane 0 the last weight gradient but one before it. */
static int *hold_back(const struct program *program)
{
    int *behind = memory_new((size_t)program->count, sizeof *behind);
    int last = -1, before_last = -1;
    for (int i = 0; i < program->count; i++) {
        const struct instruction *at = &program->instructions[i];
        behind[i] = at->lane == 0 ? before_last : -1;
        if (at->lane == 0) continue;
        before_last = last;
        last = i;
    }
    return behind;
}

enum status lanes(struct program *program, int count)
{
    program->lanes = count >= 2 ? 2 : 1;
    for (int i = 0; i < program->count; i++) {
        struct instruction *at = &program->instructions[i];
        at->lane = count >= 2 && is_aside(program, at) ? 1 : 0;
    }
    int *behind = hold_back(program);
    waits_set(program, behind);
    free(behind);
    return OK;
}
