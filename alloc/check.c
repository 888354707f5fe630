#include "check.h"

#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

/* A span begins or ends. */
struct event {
    int64_t time;
    bool begins;
    int span;
};

/* Ends come before begins at the same time, since lifetimes are half-open. */
static int compare_events(const void *a, const void *b)
{
    const struct event *left = a, *right = b;
    if (left->time != right->time) return left->time < right->time ? -1 : 1;
    if (left->begins != right->begins) return left->begins ? 1 : -1;
    return (left->span > right->span) - (left->span < right->span);
}

/* The spans alive at one moment, by offset. */
struct alive {
    const struct span *spans;
    int *index;
    int count;
};

/* How many of those alive lie below `offset`. */
static int alive_below(const struct alive *alive, int64_t offset)
{
    int low = 0, high = alive->count;
    while (low < high) {
        int middle = low + (high - low) / 2;
        if (alive->spans[alive->index[middle]].offset < offset) low = middle + 1;
        else high = middle;
    }
    return low;
}

/* `b` does not lie below `a`. */
static bool check_collide(const struct alive *alive, int a, int b, struct reason *reason)
{
    const struct span *low = &alive->spans[a], *high = &alive->spans[b];
    if (high->offset - low->offset >= low->size) return false;
    because(reason, "block %d [%lld, %lld) and block %d [%lld, %lld) overlap while both are live", a,
            (long long)low->offset, (long long)(low->offset + low->size), b, (long long)high->offset,
            (long long)(high->offset + high->size));
    return true;
}

/* Live spans do not overlap, so a new one can only collide with its neighbours. */
static bool alive_enter(struct alive *alive, int span, struct reason *reason)
{
    int place = alive_below(alive, alive->spans[span].offset);
    if (place > 0 && check_collide(alive, alive->index[place - 1], span, reason)) return false;
    if (place < alive->count && check_collide(alive, span, alive->index[place], reason)) return false;
    memmove(alive->index + place + 1, alive->index + place,
            (size_t)(alive->count - place) * sizeof *alive->index);
    alive->index[place] = span;
    alive->count++;
    return true;
}

static void alive_leave(struct alive *alive, int span)
{
    int place = alive_below(alive, alive->spans[span].offset);
    alive->count--;
    memmove(alive->index + place, alive->index + place + 1,
            (size_t)(alive->count - place) * sizeof *alive->index);
}

static bool never_alive(const struct span *span)
{
    return span->lower >= span->upper;
}

static bool check_place(const struct span *span, int index, int64_t alignment, int64_t limit,
                        struct reason *reason)
{
    if (never_alive(span)) return true;
    if (span->size < 0) return because(reason, "block %d has a negative size", index);
    if (span->offset < 0 || span->offset % alignment != 0)
        return because(reason, "block %d lies at %lld, not a multiple of %lld", index,
                       (long long)span->offset, (long long)alignment);
    if (span->offset > limit || span->size > limit - span->offset)
        return because(reason, "block %d [%lld, +%lld) exceeds the limit of %lld", index,
                       (long long)span->offset, (long long)span->size, (long long)limit);
    return true;
}

static bool check_events(const struct event *events, int count, struct alive *alive,
                         struct reason *reason)
{
    for (int i = 0; i < count; i++) {
        if (!events[i].begins) alive_leave(alive, events[i].span);
        else if (!alive_enter(alive, events[i].span, reason)) return false;
    }
    return true;
}

bool check_spans(const struct span *spans, int count, int64_t alignment, int64_t limit,
                 struct reason *reason)
{
    for (int i = 0; i < count; i++)
        if (!check_place(&spans[i], i, alignment, limit, reason)) return false;
    struct event *events = memory_new(2 * (size_t)count, sizeof *events);
    struct alive alive = {spans, memory_new((size_t)count, sizeof *alive.index), 0};
    int event_count = 0;
    for (int i = 0; i < count; i++) {
        if (never_alive(&spans[i]) || spans[i].size == 0) continue;
        events[event_count++] = (struct event){spans[i].lower, true, i};
        events[event_count++] = (struct event){spans[i].upper, false, i};
    }
    qsort(events, (size_t)event_count, sizeof *events, compare_events);
    bool good = check_events(events, event_count, &alive, reason);
    free(alive.index);
    free(events);
    return good;
}
