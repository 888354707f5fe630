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

struct play {
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

static const char *value_name(const struct play *play, int value)
{
    return play->program->values[value].name;
}

static const char *step_name(const struct play *play, int i)
{
    return play->program->instructions[i].name;
}

static bool in_arena(const struct play *play, int value)
{
    enum home home = play->program->values[value].home;
    return home == HOME_ARENA || home == HOME_PART;
}

/* The contents of a value's memory: first_standing, then next_standing until -1. */
static int first_standing(const struct play *play, int value)
{
    const struct value *at = &play->program->values[value];
    if (play->made[value]) return value;
    if (at->home == HOME_PART) return at->whole;
    return play->first[value] >= 0 ? play->first[value] : value;
}

static int next_standing(const struct play *play, int value, int standing)
{
    bool by_parts = standing != value && play->program->values[standing].home == HOME_PART;
    return by_parts ? play->next[standing] : -1;
}

static bool overlaps(const struct play *play, int a, int b)
{
    int64_t a_at = play->plan->offsets[a], b_at = play->plan->offsets[b];
    return a_at < b_at + play->program->values[b].bytes && b_at < a_at + play->program->values[a].bytes;
}

static int *done_at(const struct play *play, int i)
{
    return play->done + (size_t)i * (size_t)play->program->streams;
}

static bool has_ended(const struct play *play, int other, int i)
{
    return done_at(play, i)[play->program->instructions[other].stream] >= play->place[other];
}

/* The instructions ended when i starts: all before it on its stream, what it waits for, and what had ended
 * before those. */
static bool start(struct play *play, int i)
{
    const struct program *program = play->program;
    const struct instruction *at = &program->instructions[i];
    int *done = done_at(play, i);
    for (int j = i - 1; j >= 0; j--) {
        if (program->instructions[j].stream != at->stream) continue;
        memcpy(done, done_at(play, j), (size_t)program->streams * sizeof *done);
        break;
    }
    done[at->stream] = play->queued[at->stream];
    for (int w = 0; w < at->wait_count; w++) {
        int before = at->waits[w];
        if (before < 0 || before >= i)
            return because(play->reason, "'%s' waits for a later instruction", step_name(play, i));
        for (int l = 0; l < program->streams; l++)
            if (done_at(play, before)[l] > done[l]) done[l] = done_at(play, before)[l];
        int stream = program->instructions[before].stream;
        if (play->place[before] > done[stream]) done[stream] = play->place[before];
    }
    play->place[i] = ++play->queued[at->stream];
    return true;
}

static bool read_standing(struct play *play, int i, int value)
{
    struct history *history = &play->histories[value];
    if (in_arena(play, value)) {
        if (!history->written)
            return because(play->reason, "'%s' reads %s, which nothing has written", step_name(play, i),
                           value_name(play, value));
        if (history->overwritten)
            return because(play->reason, "'%s' reads %s, which is overwritten", step_name(play, i),
                           value_name(play, value));
    }
    if (history->written && !has_ended(play, history->writer, i))
        return because(play->reason, "'%s' reads %s without waiting for '%s'", step_name(play, i),
                       value_name(play, value), step_name(play, history->writer));
    return true;
}

static bool play_read(struct play *play, int i, int value)
{
    for (int s = first_standing(play, value); s >= 0; s = next_standing(play, value, s))
        if (!read_standing(play, i, s)) return false;
    return true;
}

/* Everything that has touched the value, other than i itself, must have ended. */
static bool quiet(struct play *play, int i, int value, int writes)
{
    const int *touched = play->histories[value].touched;
    for (int l = 0; l < play->program->streams; l++)
        if (touched[l] >= 0 && touched[l] != i && !has_ended(play, touched[l], i))
            return because(play->reason, "'%s' writes %s over %s while '%s' may still use it",
                           step_name(play, i), value_name(play, writes), value_name(play, value),
                           step_name(play, touched[l]));
    return true;
}

static bool may_replace(struct play *play, int i, int old, int writes)
{
    const struct instruction *at = &play->program->instructions[i];
    const struct history *history = &play->histories[old];
    bool in_place = at->in_place_from == old && at->in_place_to == writes &&
                    play->plan->offsets[old] == play->plan->offsets[writes];
    if (history->last_reader > i || (history->last_reader == i && !in_place) || history->writer == i)
        return because(play->reason, "'%s' writes %s over %s, which is still needed", step_name(play, i),
                       value_name(play, writes), value_name(play, old));
    return quiet(play, i, old, writes);
}

/* The first resident that does not end at `offset` or below it. */
static int resident_from(const struct play *play, int64_t offset)
{
    int low = 0, high = play->resident_count;
    while (low < high) {
        int middle = (low + high) / 2, value = play->resident[middle];
        if (play->plan->offsets[value] + play->program->values[value].bytes <= offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* Replaces residents [begin, end) by a value. */
static void resident_replace(struct play *play, int begin, int end, int value)
{
    memmove(play->resident + begin + 1, play->resident + end,
            (size_t)(play->resident_count - end) * sizeof *play->resident);
    play->resident[begin] = value;
    play->resident_count += 1 - (end - begin);
}

static bool lies_in_whole(const struct play *play, int value)
{
    const struct value *part = &play->program->values[value];
    if (part->home != HOME_PART) return true;
    const struct value *whole = &play->program->values[part->whole];
    return part->offset >= 0 && part->offset + part->bytes <= whole->bytes &&
           play->plan->offsets[value] == play->plan->offsets[part->whole] + part->offset;
}

static bool play_write(struct play *play, int i, int value)
{
    struct history *history = &play->histories[value];
    if (!in_arena(play, value)) return quiet(play, i, value, value);
    if (history->written)
        return because(play->reason, "'%s' writes %s a second time", step_name(play, i),
                       value_name(play, value));
    if (!lies_in_whole(play, value))
        return because(play->reason, "%s lies outside the value that it is a part of",
                       value_name(play, value));
    int64_t offset = play->plan->offsets[value];
    if (offset < 0 || offset + play->program->values[value].bytes > play->plan->arena_bytes)
        return because(play->reason, "%s lies outside the arena", value_name(play, value));
    int begin = resident_from(play, offset), end = begin;
    for (; end < play->resident_count && overlaps(play, play->resident[end], value); end++) {
        if (!may_replace(play, i, play->resident[end], value)) return false;
        play->histories[play->resident[end]].overwritten = true;
    }
    resident_replace(play, begin, end, value);
    return true;
}

/* All of an instruction's reads come before its writes; `touch` follows, so that in-place pairs and tensors
 * that are both read and written are checked against other instructions only. */
static bool perform(struct play *play, int i)
{
    const struct instruction *at = &play->program->instructions[i];
    for (int k = 0; k < at->read_count; k++)
        if (!play_read(play, i, at->reads[k])) return false;
    for (int k = 0; k < at->write_count; k++) {
        if (!play_write(play, i, at->writes[k])) return false;
        play->histories[at->writes[k]].written = true;
        play->histories[at->writes[k]].writer = i;
    }
    for (int k = 0; k < at->read_count; k++)
        for (int s = first_standing(play, at->reads[k]); s >= 0; s = next_standing(play, at->reads[k], s))
            play->histories[s].touched[at->stream] = i;
    for (int k = 0; k < at->write_count; k++) play->histories[at->writes[k]].touched[at->stream] = i;
    return true;
}

static void parts_note(struct play *play)
{
    const struct program *program = play->program;
    for (int i = 0; i < program->count; i++)
        for (int k = 0; k < program->instructions[i].write_count; k++)
            play->made[program->instructions[i].writes[k]] = true;
    for (int v = 0; v < program->value_count; v++) play->first[v] = play->next[v] = -1;
    for (int v = program->value_count - 1; v >= 0; v--) {
        if (program->values[v].home != HOME_PART) continue;
        int *first = &play->first[program->values[v].whole];
        play->next[v] = *first;
        *first = v;
    }
}

static void readers_note(struct play *play, int i)
{
    const struct instruction *at = &play->program->instructions[i];
    for (int k = 0; k < at->read_count; k++)
        for (int s = first_standing(play, at->reads[k]); s >= 0; s = next_standing(play, at->reads[k], s))
            play->histories[s].last_reader = i;
}

static struct play play_open(const struct program *program, const struct plan *plan, struct reason *reason)
{
    size_t values = (size_t)program->value_count, count = (size_t)program->count;
    size_t streams = (size_t)program->streams;
    struct play play = {.program = program, .plan = plan, .reason = reason};
    play.made = memory_new(values, sizeof *play.made);
    play.first = memory_new(values, sizeof *play.first);
    play.next = memory_new(values, sizeof *play.next);
    play.histories = memory_new(values, sizeof *play.histories);
    play.touched = memory_new(values * streams, sizeof *play.touched);
    play.done = memory_new(count * streams, sizeof *play.done);
    play.queued = memory_new(streams, sizeof *play.queued);
    play.place = memory_new(count, sizeof *play.place);
    play.resident = memory_new(values, sizeof *play.resident);
    for (size_t c = 0; c < values * streams; c++) play.touched[c] = -1;
    for (size_t v = 0; v < values; v++)
        play.histories[v] = (struct history){.writer = -1, .touched = play.touched + v * streams,
                                             .last_reader = -1};
    parts_note(&play);
    for (int i = 0; i < program->count; i++) readers_note(&play, i);
    return play;
}

static void play_close(struct play *play)
{
    free(play->made);
    free(play->first);
    free(play->next);
    free(play->histories);
    free(play->touched);
    free(play->done);
    free(play->queued);
    free(play->place);
    free(play->resident);
}

bool plan_verify(const struct program *program, const struct plan *plan, struct reason *reason)
{
    struct play play = play_open(program, plan, reason);
    bool right = true;
    for (int i = 0; right && i < program->count; i++) right = start(&play, i) && perform(&play, i);
    play_close(&play);
    return right;
}
