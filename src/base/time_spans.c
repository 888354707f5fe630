#include "base/time_spans.h"

#include "base/clock.h"
#include "base/memory.h"

void time_spans_add(struct time_spans *spans, const char *name, int thread, int64_t begin)
{
    if (!spans) return;
    *array_push(spans->at, spans->count) = (struct time_span){name, thread, begin, clock_nanoseconds()};
}
