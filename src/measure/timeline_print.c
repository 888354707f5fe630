#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "measure/timeline.h"

/* Groups other than streams, by number; the loader's workers follow. */
enum { GROUP_STEPS = 1000, GROUP_COPIES, GROUP_OTHERS, GROUP_HOST, GROUP_WORKERS };

/* A span with its activities: an instruction in a step, or another one. */
struct unit {
    const char *name;
    int group;
    int64_t begin, end;
    int first, last;             /* of its activities; others may lie between them */
    int tag;
};

/* A track: spans that overlap without being nested are on different tracks. Numbers begin at 1, because
 * Perfetto does not accept 0. */
struct track {
    int group;
    int64_t end;
};

struct printing {
    const struct timeline *timeline;
    const struct program *program;
    struct text *out;
    struct track *tracks;
    int track_count;
    int64_t zero;
};

static void print_separator(struct text *out)
{
    text_add(out, out->length > 0 ? ",\n" : "");
}

static void name_track(struct text *out, const struct track *track, int thread, bool more)
{
    char name[48];
    static const char *const names[] = {"steps and stages", "copies", "other kernels", "host"};
    if (track->group < GROUP_STEPS) snprintf(name, sizeof name, "stream %d", track->group);
    else if (track->group < GROUP_WORKERS)
        snprintf(name, sizeof name, "%s", names[track->group - GROUP_STEPS]);
    else snprintf(name, sizeof name, "loader %d", track->group - GROUP_WORKERS);
    print_separator(out);
    text_add(out, "{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":1,\"tid\":%d,\"args\":{\"name\":\"%s%s\"}}",
             thread, name, more ? ", at the same time" : "");
}

/* The track that is free for a span from begin to end. */
static int track_of(struct printing *p, int group, int64_t begin, int64_t end)
{
    bool more = false;
    for (int i = 0; i < p->track_count; i++) {
        struct track *track = &p->tracks[i];
        if (track->group != group) continue;
        more = true;
        if (track->end > begin) continue;
        track->end = end;
        return i + 1;
    }
    *array_push(p->tracks, p->track_count) = (struct track){group, end};
    name_track(p->out, &p->tracks[p->track_count - 1], p->track_count, more);
    return p->track_count;
}

static void print_span(struct printing *p, int thread, const char *name, int64_t begin, int64_t end)
{
    print_separator(p->out);
    text_add(p->out, "{\"ph\":\"X\",\"pid\":1,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":", thread,
             1e-3 * (double)(begin - p->zero), 1e-3 * (double)(end - begin));
    text_json_string(p->out, name);
    text_add(p->out, "}");
}

/* The instruction's kernels are nested in it, unless there is only one. One that overlaps the preceding one
 * is on another track. */
static void print_unit(struct printing *p, const struct unit *unit)
{
    const struct device_activity *activities = p->timeline->activities;
    int thread = track_of(p, unit->group, unit->begin, unit->end);
    int64_t ended = unit->begin;
    print_span(p, thread, unit->name, unit->begin, unit->end);
    for (int i = unit->first; i <= unit->last && unit->tag >= 0; i++) {
        const struct device_activity *at = &activities[i];
        if (at->tag != unit->tag || at->run != activities[unit->first].run) continue;
        if (strcmp(at->name, unit->name) == 0) continue;
        bool free = at->begin >= ended;
        int to = free ? thread : track_of(p, unit->group, at->begin, at->end);
        print_span(p, to, at->name, at->begin, at->end);
        if (free) ended = at->end;
    }
}

static struct unit unit_of(const struct printing *p, int i)
{
    const struct device_activity *at = &p->timeline->activities[i];
    const struct instruction *instruction = at->tag >= 0 ? &p->program->instructions[at->tag] : NULL;
    return (struct unit){
        .name = instruction ? instruction->name : at->name,
        .group = instruction ? instruction->stream : at->copy ? GROUP_COPIES : GROUP_OTHERS,
        .begin = at->begin, .end = at->end, .first = i, .last = i, .tag = at->tag,
    };
}

/* Activities are sorted by begin, and so are the units. */
static struct unit *units_new(const struct printing *p, int *count)
{
    struct unit *units = NULL;
    int *open = memory_new((size_t)p->program->count, sizeof *open);   /* the newest unit of a tag */
    *count = 0;
    for (int i = 0; i < p->program->count; i++) open[i] = -1;
    for (int i = 0; i < p->timeline->count; i++) {
        const struct device_activity *at = &p->timeline->activities[i];
        struct unit *same = at->tag >= 0 && open[at->tag] >= 0 ? &units[open[at->tag]] : NULL;
        if (same && p->timeline->activities[same->first].run == at->run) {
            same->last = i;
            if (at->end > same->end) same->end = at->end;
            continue;
        }
        if (at->tag >= 0) open[at->tag] = *count;
        *array_push(units, *count) = unit_of(p, i);
    }
    free(open);
    return units;
}

/* From the first begin to the last end of instructions `from` to `to`. */
static struct unit units_span(const struct timeline *timeline, uint32_t run, const struct unit *units,
                              int count, int from, int to)
{
    struct unit span = {.begin = INT64_MAX, .end = INT64_MIN};
    for (int i = 0; i < count; i++) {
        const struct unit *unit = &units[i];
        if (unit->tag < from || unit->tag > to || timeline->activities[unit->first].run != run) continue;
        if (unit->begin < span.begin) span.begin = unit->begin;
        if (unit->end > span.end) span.end = unit->end;
    }
    return span;
}

/* A stage begins where the preceding one has ended, although on other streams some of its work may be
 * earlier. Parts of a stage are merged if no other stage is between them. */
static void print_step(struct printing *p, const struct timeline_stages *stages, int step,
                       const struct unit *units, int count)
{
    uint32_t run = p->timeline->runs[step];
    int last = p->program->count - 1, from = 0, shown = -1;
    struct unit whole = units_span(p->timeline, run, units, count, 0, last), now = {0};
    char name[32];
    snprintf(name, sizeof name, "step %d", step + 1);
    int thread = track_of(p, GROUP_STEPS, whole.begin, whole.end);
    print_span(p, thread, name, whole.begin, whole.end);
    now.end = whole.begin;
    for (int i = 0; i <= last; i++) {
        int stage = stages->stage_of(p->program, i);
        if (i < last && stages->stage_of(p->program, i + 1) == stage) continue;
        struct unit span = units_span(p->timeline, run, units, count, from, i);
        from = i + 1;
        if (span.begin < now.end) span.begin = now.end;
        if (span.begin >= span.end) continue;
        if (stage != shown) {
            if (shown >= 0) print_span(p, thread, stages->names[shown], now.begin, now.end);
            now.begin = span.begin;
            shown = stage;
        }
        now.end = span.end;
    }
    if (shown >= 0) print_span(p, thread, stages->names[shown], now.begin, now.end);
}

/* Activities that began before the first step are not shown. */
static void print_host(struct printing *p, const struct time_spans *spans, int group)
{
    for (int i = 0; i < spans->count; i++) {
        const struct time_span *span = &spans->at[i];
        if (span->begin < p->zero) continue;
        print_span(p, track_of(p, group + span->thread, span->begin, span->end), span->name, span->begin,
                   span->end);
    }
}

void timeline_print(const struct timeline *timeline, const struct program *program,
                    const struct timeline_stages *stages, struct text *out)
{
    struct printing printing = {.timeline = timeline, .program = program, .out = out};
    if (timeline->count == 0) return;
    text_add(out, "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":1,\"args\":{\"name\":\"amptrain\"}}");
    int count;
    struct unit *units = units_new(&printing, &count);
    printing.zero = timeline->activities[0].begin;
    for (int i = 0; i < timeline->run_count; i++) print_step(&printing, stages, i, units, count);
    for (int i = 0; i < count; i++) print_unit(&printing, &units[i]);
    print_host(&printing, &timeline->host, GROUP_HOST);
    print_host(&printing, &timeline->workers, GROUP_WORKERS);
    free(units);
    free(printing.tracks);
}
