/* verify.c: independent verification of a plan: simulates the program's effect on memory.
 *
 * Every stream is a queue; the state of other streams is known only through waits. Memory is a list of the
 * tensors that it currently holds. A write that overlaps one of them is an error unless everything that uses
 * that tensor has ended; a read must find its tensor intact and its writer ended. Of a tensor with parts,
 * memory holds either it or the parts, whichever was written; reads of the other are checked against
 * these. */
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "compile/plan.h"

/* The history of a tensor, and its remaining uses. */
struct history {
    bool written;
    bool overwritten;
    int writer;
    int *touched;            /* by stream: the last instruction that touched it; -1 */
    int last_reader;         /* in the whole program; -1 */
};

struct simulation {
    const struct program *program;
    const struct plan *plan;
    bool *made;              /* by value: some instruction writes it as such */
    int *first, *next;       /* by value: its first part, and the next part of what it is a part of; -1 */
    struct history *histories;
    int *touched;            /* the histories' */
    int *done;               /* by instruction and stream: how many of the stream's instructions had ended */
    int *queued;             /* by stream: instructions so far */
    int *place;              /* by instruction: its number on its stream, from 1 */
    int *resident;           /* values in the arena, which do not overlap, in the order of addresses */
    int resident_count;
    struct reason *reason;
};

static const char *value_name(const struct simulation *sim, int value)
{
    return sim->program->values[value].name;
}

static const char *step_name(const struct simulation *sim, int i)
{
    return sim->program->instructions[i].name;
}

static bool in_arena(const struct simulation *sim, int value)
{
    enum home home = sim->program->values[value].home;
    return home == HOME_ARENA || home == HOME_PART;
}

/* The contents of a value's memory: first_standing, then next_standing until -1. */
static int first_standing(const struct simulation *sim, int value)
{
    const struct value *at = &sim->program->values[value];
    if (sim->made[value]) return value;
    if (at->home == HOME_PART) return at->whole;
    return sim->first[value] >= 0 ? sim->first[value] : value;
}

static int next_standing(const struct simulation *sim, int value, int standing)
{
    bool by_parts = standing != value && sim->program->values[standing].home == HOME_PART;
    return by_parts ? sim->next[standing] : -1;
}

static bool overlaps(const struct simulation *sim, int a, int b)
{
    int64_t a_at = sim->plan->offsets[a], b_at = sim->plan->offsets[b];
    return a_at < b_at + sim->program->values[b].bytes && b_at < a_at + sim->program->values[a].bytes;
}

static int *done_at(const struct simulation *sim, int i)
{
    return sim->done + (size_t)i * (size_t)sim->program->streams;
}

static bool has_ended(const struct simulation *sim, int other, int i)
{
    return done_at(sim, i)[sim->program->instructions[other].stream] >= sim->place[other];
}

/* The instructions that have ended when i starts: all before it on its stream, what it waits for, and what had
 * ended before those. */
static bool find_ended(struct simulation *sim, int i)
{
    const struct program *program = sim->program;
    const struct instruction *at = &program->instructions[i];
    int *done = done_at(sim, i);
    for (int j = i - 1; j >= 0; j--) {
        if (program->instructions[j].stream != at->stream) continue;
        memcpy(done, done_at(sim, j), (size_t)program->streams * sizeof *done);
        break;
    }
    done[at->stream] = sim->queued[at->stream];
    for (int w = 0; w < at->wait_count; w++) {
        int before = at->waits[w];
        if (before < 0 || before >= i)
            return because(sim->reason, "'%s' waits for a later instruction", step_name(sim, i));
        for (int l = 0; l < program->streams; l++)
            if (done_at(sim, before)[l] > done[l]) done[l] = done_at(sim, before)[l];
        int stream = program->instructions[before].stream;
        if (sim->place[before] > done[stream]) done[stream] = sim->place[before];
    }
    sim->place[i] = ++sim->queued[at->stream];
    return true;
}

static bool read_standing(struct simulation *sim, int i, int value)
{
    struct history *history = &sim->histories[value];
    if (in_arena(sim, value)) {
        if (!history->written)
            return because(sim->reason, "'%s' reads %s, which nothing has written", step_name(sim, i),
                           value_name(sim, value));
        if (history->overwritten)
            return because(sim->reason, "'%s' reads %s, which is overwritten", step_name(sim, i),
                           value_name(sim, value));
    }
    if (history->written && !has_ended(sim, history->writer, i))
        return because(sim->reason, "'%s' reads %s without waiting for '%s'", step_name(sim, i),
                       value_name(sim, value), step_name(sim, history->writer));
    return true;
}

static bool check_read(struct simulation *sim, int i, int value)
{
    for (int s = first_standing(sim, value); s >= 0; s = next_standing(sim, value, s))
        if (!read_standing(sim, i, s)) return false;
    return true;
}

/* Everything that has touched the value, other than i itself, must have ended. */
static bool users_ended(struct simulation *sim, int i, int value, int writes)
{
    const int *touched = sim->histories[value].touched;
    for (int l = 0; l < sim->program->streams; l++)
        if (touched[l] >= 0 && touched[l] != i && !has_ended(sim, touched[l], i))
            return because(sim->reason, "'%s' writes %s over %s while '%s' may still use it",
                           step_name(sim, i), value_name(sim, writes), value_name(sim, value),
                           step_name(sim, touched[l]));
    return true;
}

static bool may_replace(struct simulation *sim, int i, int old, int writes)
{
    const struct instruction *at = &sim->program->instructions[i];
    const struct history *history = &sim->histories[old];
    bool in_place = at->in_place_from == old && at->in_place_to == writes &&
                    sim->plan->offsets[old] == sim->plan->offsets[writes];
    if (history->last_reader > i || (history->last_reader == i && !in_place) || history->writer == i)
        return because(sim->reason, "'%s' writes %s over %s, which is still needed", step_name(sim, i),
                       value_name(sim, writes), value_name(sim, old));
    return users_ended(sim, i, old, writes);
}

/* The first resident that does not end at `offset` or below it. */
static int resident_from(const struct simulation *sim, int64_t offset)
{
    int low = 0, high = sim->resident_count;
    while (low < high) {
        int middle = (low + high) / 2, value = sim->resident[middle];
        if (sim->plan->offsets[value] + sim->program->values[value].bytes <= offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Replaces residents [begin, end) by a value. */
static void resident_replace(struct simulation *sim, int begin, int end, int value)
{
    memmove(sim->resident + begin + 1, sim->resident + end,
            (size_t)(sim->resident_count - end) * sizeof *sim->resident);
    sim->resident[begin] = value;
    sim->resident_count += 1 - (end - begin);
}

static bool lies_in_whole(const struct simulation *sim, int value)
{
    const struct value *part = &sim->program->values[value];
    if (part->home != HOME_PART) return true;
    const struct value *whole = &sim->program->values[part->whole];
    return part->offset >= 0 && part->offset + part->bytes <= whole->bytes &&
           sim->plan->offsets[value] == sim->plan->offsets[part->whole] + part->offset;
}

static bool check_write(struct simulation *sim, int i, int value)
{
    struct history *history = &sim->histories[value];
    if (!in_arena(sim, value)) return users_ended(sim, i, value, value);
    if (history->written)
        return because(sim->reason, "'%s' writes %s a second time", step_name(sim, i),
                       value_name(sim, value));
    if (!lies_in_whole(sim, value))
        return because(sim->reason, "%s lies outside the value that it is a part of",
                       value_name(sim, value));
    int64_t offset = sim->plan->offsets[value];
    if (offset < 0 || offset + sim->program->values[value].bytes > sim->plan->arena_bytes)
        return because(sim->reason, "%s lies outside the arena", value_name(sim, value));
    int begin = resident_from(sim, offset), end = begin;
    for (; end < sim->resident_count && overlaps(sim, sim->resident[end], value); end++) {
        if (!may_replace(sim, i, sim->resident[end], value)) return false;
        sim->histories[sim->resident[end]].overwritten = true;
    }
    resident_replace(sim, begin, end, value);
    return true;
}

/* All of an instruction's reads come before its writes; `touch` follows, so that in-place pairs and tensors
 * that are both read and written are checked against other instructions only. */
static bool check_instruction(struct simulation *sim, int i)
{
    const struct instruction *at = &sim->program->instructions[i];
    for (int k = 0; k < at->read_count; k++)
        if (!check_read(sim, i, at->reads[k])) return false;
    for (int k = 0; k < at->write_count; k++) {
        if (!check_write(sim, i, at->writes[k])) return false;
        sim->histories[at->writes[k]].written = true;
        sim->histories[at->writes[k]].writer = i;
    }
    for (int k = 0; k < at->read_count; k++)
        for (int s = first_standing(sim, at->reads[k]); s >= 0; s = next_standing(sim, at->reads[k], s))
            sim->histories[s].touched[at->stream] = i;
    for (int k = 0; k < at->write_count; k++) sim->histories[at->writes[k]].touched[at->stream] = i;
    return true;
}

static void find_parts(struct simulation *sim)
{
    const struct program *program = sim->program;
    for (int i = 0; i < program->count; i++)
        for (int k = 0; k < program->instructions[i].write_count; k++)
            sim->made[program->instructions[i].writes[k]] = true;
    for (int v = 0; v < program->value_count; v++) sim->first[v] = sim->next[v] = -1;
    for (int v = program->value_count - 1; v >= 0; v--) {
        if (program->values[v].home != HOME_PART) continue;
        int *first = &sim->first[program->values[v].whole];
        sim->next[v] = *first;
        *first = v;
    }
}

static void find_last_readers(struct simulation *sim, int i)
{
    const struct instruction *at = &sim->program->instructions[i];
    for (int k = 0; k < at->read_count; k++)
        for (int s = first_standing(sim, at->reads[k]); s >= 0; s = next_standing(sim, at->reads[k], s))
            sim->histories[s].last_reader = i;
}

static struct simulation simulation_open(const struct program *program, const struct plan *plan,
                                         struct reason *reason)
{
    size_t values = (size_t)program->value_count, count = (size_t)program->count;
    size_t streams = (size_t)program->streams;
    struct simulation sim = {.program = program, .plan = plan, .reason = reason};
    sim.made = memory_new(values, sizeof *sim.made);
    sim.first = memory_new(values, sizeof *sim.first);
    sim.next = memory_new(values, sizeof *sim.next);
    sim.histories = memory_new(values, sizeof *sim.histories);
    sim.touched = memory_new(values * streams, sizeof *sim.touched);
    sim.done = memory_new(count * streams, sizeof *sim.done);
    sim.queued = memory_new(streams, sizeof *sim.queued);
    sim.place = memory_new(count, sizeof *sim.place);
    sim.resident = memory_new(values, sizeof *sim.resident);
    for (size_t c = 0; c < values * streams; c++) sim.touched[c] = -1;
    for (size_t v = 0; v < values; v++)
        sim.histories[v] = (struct history){.writer = -1, .touched = sim.touched + v * streams,
                                            .last_reader = -1};
    find_parts(&sim);
    for (int i = 0; i < program->count; i++) find_last_readers(&sim, i);
    return sim;
}

static void simulation_close(struct simulation *sim)
{
    free(sim->made);
    free(sim->first);
    free(sim->next);
    free(sim->histories);
    free(sim->touched);
    free(sim->done);
    free(sim->queued);
    free(sim->place);
    free(sim->resident);
}

bool plan_verify(const struct program *program, const struct plan *plan, struct reason *reason)
{
    struct simulation sim = simulation_open(program, plan, reason);
    bool valid = true;
    for (int i = 0; valid && i < program->count; i++)
        valid = find_ended(&sim, i) && check_instruction(&sim, i);
    simulation_close(&sim);
    return valid;
}
