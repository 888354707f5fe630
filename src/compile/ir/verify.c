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
#include "compile/memory/plan.h"

/* The history of a tensor, and its remaining uses. */
struct history {
    bool written;
    bool overwritten;
    int writer;
    int *touched;            /* by stream: the last instruction that touched it; -1 */
    int last_reader;         /* in the whole program; -1 */
};

struct memory_state {
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

static const char *value_name(const struct memory_state *mem, int value)
{
    return mem->program->values[value].name;
}

static const char *step_name(const struct memory_state *mem, int i)
{
    return mem->program->instructions[i].name;
}

static bool in_arena(const struct memory_state *mem, int value)
{
    enum value_home home = mem->program->values[value].home;
    return home == HOME_ARENA || home == HOME_PART;
}

/* The contents of a value's memory: first_standing, then next_standing until -1. */
static int first_standing(const struct memory_state *mem, int value)
{
    int whole = value_placed(mem->program, value);
    if (mem->made[value]) return value;
    return mem->made[whole] || mem->first[whole] < 0 ? whole : mem->first[whole];
}

static int next_standing(const struct memory_state *mem, int value, int standing)
{
    bool by_parts = standing != value && mem->program->values[standing].home == HOME_PART;
    return by_parts ? mem->next[standing] : -1;
}

static bool overlaps(const struct memory_state *mem, int a, int b)
{
    int64_t a_at = mem->plan->offsets[a], b_at = mem->plan->offsets[b];
    return a_at < b_at + mem->program->values[b].bytes && b_at < a_at + mem->program->values[a].bytes;
}

static int *done_at(const struct memory_state *mem, int i)
{
    return mem->done + (size_t)i * (size_t)mem->program->streams;
}

static bool has_ended(const struct memory_state *mem, int other, int i)
{
    return done_at(mem, i)[mem->program->instructions[other].stream] >= mem->place[other];
}

/* The instructions that have ended when i starts: all before it on its stream, what it waits for, and what
 * had ended before those. */
static bool find_ended(struct memory_state *mem, int i)
{
    const struct program *program = mem->program;
    const struct instruction *at = &program->instructions[i];
    int *done = done_at(mem, i);
    for (int j = i - 1; j >= 0; j--) {
        if (program->instructions[j].stream != at->stream) continue;
        memcpy(done, done_at(mem, j), (size_t)program->streams * sizeof *done);
        break;
    }
    done[at->stream] = mem->queued[at->stream];
    for (int w = 0; w < at->wait_count; w++) {
        int before = at->waits[w];
        if (before < 0 || before >= i)
            return because(mem->reason, "'%s' waits for a later instruction", step_name(mem, i));
        for (int l = 0; l < program->streams; l++)
            if (done_at(mem, before)[l] > done[l]) done[l] = done_at(mem, before)[l];
        int stream = program->instructions[before].stream;
        if (mem->place[before] > done[stream]) done[stream] = mem->place[before];
    }
    mem->place[i] = ++mem->queued[at->stream];
    return true;
}

static bool read_standing(struct memory_state *mem, int i, int value)
{
    struct history *history = &mem->histories[value];
    if (in_arena(mem, value)) {
        if (!history->written)
            return because(mem->reason, "'%s' reads %s, which nothing has written", step_name(mem, i),
                           value_name(mem, value));
        if (history->overwritten)
            return because(mem->reason, "'%s' reads %s, which is overwritten", step_name(mem, i),
                           value_name(mem, value));
    }
    if (history->written && !has_ended(mem, history->writer, i))
        return because(mem->reason, "'%s' reads %s without waiting for '%s'", step_name(mem, i),
                       value_name(mem, value), step_name(mem, history->writer));
    return true;
}

static bool check_read(struct memory_state *mem, int i, int value)
{
    for (int s = first_standing(mem, value); s >= 0; s = next_standing(mem, value, s))
        if (!read_standing(mem, i, s)) return false;
    return true;
}

/* Everything that has touched the value, other than i itself, must have ended. */
static bool users_ended(struct memory_state *mem, int i, int value, int writes)
{
    const int *touched = mem->histories[value].touched;
    for (int l = 0; l < mem->program->streams; l++)
        if (touched[l] >= 0 && touched[l] != i && !has_ended(mem, touched[l], i))
            return because(mem->reason, "'%s' writes %s over %s while '%s' may still use it",
                           step_name(mem, i), value_name(mem, writes), value_name(mem, value),
                           step_name(mem, touched[l]));
    return true;
}

static bool may_replace(struct memory_state *mem, int i, int old, int writes)
{
    const struct instruction *at = &mem->program->instructions[i];
    const struct history *history = &mem->histories[old];
    bool in_place = instruction_over(at, writes) == old &&
                    mem->plan->offsets[old] == mem->plan->offsets[writes];
    bool stays = at->kind == INSTRUCTION_ALL_GATHER && operand_x(at, 0) == old &&
                 value_placed(mem->program, old) == writes;
    if (history->last_reader > i || (history->last_reader == i && !in_place && !stays) ||
        history->writer == i)
        return because(mem->reason, "'%s' writes %s over %s, which is still needed", step_name(mem, i),
                       value_name(mem, writes), value_name(mem, old));
    return users_ended(mem, i, old, writes);
}

/* The first resident that does not end at `offset` or below it. */
static int resident_from(const struct memory_state *mem, int64_t offset)
{
    int low = 0, high = mem->resident_count;
    while (low < high) {
        int middle = (low + high) / 2, value = mem->resident[middle];
        if (mem->plan->offsets[value] + mem->program->values[value].bytes <= offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Replaces residents [begin, end) by a value. */
static void resident_replace(struct memory_state *mem, int begin, int end, int value)
{
    memmove(mem->resident + begin + 1, mem->resident + end,
            (size_t)(mem->resident_count - end) * sizeof *mem->resident);
    mem->resident[begin] = value;
    mem->resident_count += 1 - (end - begin);
}

static bool lies_in_whole(const struct memory_state *mem, int value)
{
    const struct value *part = &mem->program->values[value];
    if (part->home != HOME_PART) return true;
    const struct value *whole = &mem->program->values[part->whole];
    return part->offset >= 0 && part->offset + part->bytes <= whole->bytes &&
           mem->plan->offsets[value] == mem->plan->offsets[part->whole] + part->offset;
}

static bool check_write(struct memory_state *mem, int i, int value)
{
    struct history *history = &mem->histories[value];
    if (!in_arena(mem, value)) return users_ended(mem, i, value, value);
    if (history->written)
        return because(mem->reason, "'%s' writes %s a second time", step_name(mem, i),
                       value_name(mem, value));
    if (!lies_in_whole(mem, value))
        return because(mem->reason, "%s lies outside the value that it is a part of",
                       value_name(mem, value));
    int64_t offset = mem->plan->offsets[value];
    if (offset < 0 || offset + mem->program->values[value].bytes > mem->plan->arena_bytes)
        return because(mem->reason, "%s lies outside the arena", value_name(mem, value));
    int begin = resident_from(mem, offset), end = begin;
    for (; end < mem->resident_count && overlaps(mem, mem->resident[end], value); end++) {
        if (!may_replace(mem, i, mem->resident[end], value)) return false;
        mem->histories[mem->resident[end]].overwritten = true;
    }
    resident_replace(mem, begin, end, value);
    return true;
}

/* All of an instruction's reads come before its writes; `touch` follows, so that in-place pairs and tensors
 * that are both read and written are checked against other instructions only. */
static bool check_instruction(struct memory_state *mem, int i)
{
    const struct instruction *at = &mem->program->instructions[i];
    FOR_READS(o, at)
        if (!check_read(mem, i, o->value)) return false;
    FOR_WRITES(o, at) {
        if (!check_write(mem, i, o->value)) return false;
        mem->histories[o->value].written = true;
        mem->histories[o->value].writer = i;
    }
    FOR_READS(o, at)
        for (int s = first_standing(mem, o->value); s >= 0; s = next_standing(mem, o->value, s))
            mem->histories[s].touched[at->stream] = i;
    FOR_WRITES(o, at) mem->histories[o->value].touched[at->stream] = i;
    return true;
}

static void find_parts(struct memory_state *mem)
{
    const struct program *program = mem->program;
    for (int i = 0; i < program->count; i++)
        FOR_WRITES(o, &program->instructions[i]) mem->made[o->value] = true;
    for (int v = 0; v < program->value_count; v++) mem->first[v] = mem->next[v] = -1;
    for (int v = program->value_count - 1; v >= 0; v--) {
        if (program->values[v].home != HOME_PART || !mem->made[v]) continue;
        int *first = &mem->first[program->values[v].whole];
        mem->next[v] = *first;
        *first = v;
    }
}

static void find_last_readers(struct memory_state *mem, int i)
{
    const struct instruction *at = &mem->program->instructions[i];
    FOR_READS(o, at)
        for (int s = first_standing(mem, o->value); s >= 0; s = next_standing(mem, o->value, s))
            mem->histories[s].last_reader = i;
}

static struct memory_state memory_state_open(const struct program *program, const struct plan *plan,
                                             struct reason *reason)
{
    size_t values = (size_t)program->value_count, count = (size_t)program->count;
    size_t streams = (size_t)program->streams;
    struct memory_state mem = {.program = program, .plan = plan, .reason = reason};
    mem.made = memory_new(values, sizeof *mem.made);
    mem.first = memory_new(values, sizeof *mem.first);
    mem.next = memory_new(values, sizeof *mem.next);
    mem.histories = memory_new(values, sizeof *mem.histories);
    mem.touched = memory_new(values * streams, sizeof *mem.touched);
    mem.done = memory_new(count * streams, sizeof *mem.done);
    mem.queued = memory_new(streams, sizeof *mem.queued);
    mem.place = memory_new(count, sizeof *mem.place);
    mem.resident = memory_new(values, sizeof *mem.resident);
    for (size_t c = 0; c < values * streams; c++) mem.touched[c] = -1;
    for (size_t v = 0; v < values; v++)
        mem.histories[v] = (struct history){.writer = -1, .touched = mem.touched + v * streams,
                                            .last_reader = -1};
    find_parts(&mem);
    for (int i = 0; i < program->count; i++) find_last_readers(&mem, i);
    return mem;
}

static void memory_state_close(struct memory_state *mem)
{
    free(mem->made);
    free(mem->first);
    free(mem->next);
    free(mem->histories);
    free(mem->touched);
    free(mem->done);
    free(mem->queued);
    free(mem->place);
    free(mem->resident);
}

bool plan_verify(const struct program *program, const struct plan *plan, struct reason *reason)
{
    struct memory_state mem = memory_state_open(program, plan, reason);
    bool valid = true;
    for (int i = 0; valid && i < program->count; i++)
        valid = find_ended(&mem, i) && check_instruction(&mem, i);
    memory_state_close(&mem);
    return valid;
}
