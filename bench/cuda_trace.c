/* cuda_trace.c: a library that the CUDA driver loads into a program when CUDA_INJECTION64_PATH names it; at
 * the program's end it says, in the file $CUDA_TRACE or on standard error, what the host asked of CUDA while
 * recorded steps ran, how long the GPU had nothing to do between them, and how much of the copying of batches
 * went on while a step ran.
 *
 * A step is one launch of a graph. Two graphs take turns (one for each batch under way), and steps are the
 * last launches of the last two; the first SETTLING of them are not looked at. */
#include <cupti.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define BUFFER_BYTES (8u << 20)
#define SETTLING 10
#define BATCH_LEAST (1u << 20)   /* bytes; smaller copies are labels and the like */
#define PAUSE_LEAST 40000000     /* nanoseconds between steps that do not follow one another */
#define NAMES 1024           /* more than there are functions in the runtime's interface */

struct span {
    uint64_t start, end;     /* nanoseconds */
    uint32_t correlation;    /* of the launch and its graph */
    uint32_t name;           /* of a call, or of the graph */
    uint64_t bytes;          /* of a copy */
};

struct spans {
    struct span *at;
    size_t count, room;
};

/* The activity interface calls back without a place for what is ours. */
static struct spans graphs, calls, copies;

static void spans_add(struct spans *spans, struct span span)
{
    if (spans->count == spans->room) {
        spans->room = spans->room ? 2 * spans->room : 4096;
        spans->at = realloc(spans->at, spans->room * sizeof *spans->at);
        if (!spans->at) abort();
    }
    spans->at[spans->count++] = span;
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *bytes, size_t *records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *records = 0;
}

static void note(const CUpti_Activity *record)
{
    if (record->kind == CUPTI_ACTIVITY_KIND_GRAPH_TRACE) {
        const CUpti_ActivityGraphTrace2 *graph = (const void *)record;
        spans_add(&graphs, (struct span){graph->start, graph->end, graph->correlationId, graph->graphId, 0});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_RUNTIME) {
        const CUpti_ActivityAPI *call = (const void *)record;
        spans_add(&calls, (struct span){call->start, call->end, call->correlationId, call->cbid, 0});
    } else if (record->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy5 *copy = (const void *)record;
        if (copy->copyKind == CUPTI_ACTIVITY_MEMCPY_KIND_HTOD && copy->bytes >= BATCH_LEAST)
            spans_add(&copies, (struct span){copy->start, copy->end, copy->correlationId, 0, copy->bytes});
    }
}

static void CUPTIAPI buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer, size_t bytes,
                                 size_t valid)
{
    (void)context, (void)stream, (void)bytes;
    CUpti_Activity *record = NULL;
    while (cuptiActivityGetNextRecord(buffer, valid, &record) == CUPTI_SUCCESS) note(record);
    free(buffer);
}

static int by_start(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

/* When the host began to launch a graph; 0: not seen. */
static uint64_t launched_at(const struct span *graph)
{
    for (size_t i = 0; i < calls.count; i++)
        if (calls.at[i].correlation == graph->correlation) return calls.at[i].start;
    return 0;
}

static void report_gaps(FILE *out, const struct span *steps, size_t count)
{
    uint64_t idle = 0, longest = 0, all = steps[count - 1].end - steps[0].start;
    size_t ahead = 0;
    for (size_t i = 1; i < count; i++) {
        uint64_t gap = steps[i].start > steps[i - 1].end ? steps[i].start - steps[i - 1].end : 0;
        uint64_t launch = launched_at(&steps[i]);
        idle += gap;
        if (gap > longest) longest = gap;
        if (launch > 0 && launch < steps[i - 1].end) ahead++;
    }
    fprintf(out, "steps %zu\nstep_ms %.3f\n", count, 1e-6 * (double)all / (double)count);
    fprintf(out, "idle_percent %.4f\n", 100 * (double)idle / (double)all);
    fprintf(out, "idle_us_mean %.2f\nidle_us_longest %.2f\n", 1e-3 * (double)idle / (double)(count - 1),
            1e-3 * (double)longest);
    fprintf(out, "launched_before_the_step_before_ended %zu of %zu\n", ahead, count - 1);
}

/* Calls that began between the launches of the first step and of the last. */
static void report_calls(FILE *out, const struct span *steps, size_t count)
{
    static size_t times[NAMES];
    static double milliseconds[NAMES];
    uint64_t from = launched_at(&steps[0]), to = launched_at(&steps[count - 1]);
    for (size_t i = 0; i < calls.count; i++) {
        const struct span *call = &calls.at[i];
        if (call->start < from || call->start >= to || call->name >= NAMES) continue;
        times[call->name]++;
        milliseconds[call->name] += 1e-6 * (double)(call->end - call->start);
    }
    fprintf(out, "what the host asked for, calls and milliseconds a step:\n");
    for (uint32_t name = 0; name < NAMES; name++) {
        const char *text = "";
        if (times[name] == 0) continue;
        cuptiGetCallbackName(CUPTI_CB_DOMAIN_RUNTIME_API, name, &text);
        fprintf(out, "  %-44s %8.2f %9.4f\n", text, (double)times[name] / (double)(count - 1),
                milliseconds[name] / (double)(count - 1));
    }
}

/* Nanoseconds of a span during which one of the steps, which are in order and apart, ran. */
static uint64_t shared(const struct span *span, const struct span *steps, size_t count)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < count && steps[i].start < span->end; i++) {
        uint64_t from = steps[i].start > span->start ? steps[i].start : span->start;
        uint64_t to = steps[i].end < span->end ? steps[i].end : span->end;
        if (to > from) sum += to - from;
    }
    return sum;
}

/* Copies of batches that lie between steps that follow one another: `amptrain bench --data` pauses for other
 * measurements before it runs those that get a batch each. */
static void report_copies(FILE *out, const struct span *steps, size_t count)
{
    for (size_t i = count - 1; i > 0; i--) {
        if (steps[i].start < steps[i - 1].end + PAUSE_LEAST) continue;
        steps += i;
        count -= i;
        break;
    }
    uint64_t bytes = 0, time = 0, beside = 0;
    size_t found = 0;
    for (size_t i = 0; i < copies.count; i++) {
        const struct span *copy = &copies.at[i];
        if (copy->start < steps[0].start || copy->end > steps[count - 1].end) continue;
        found++;
        bytes += copy->bytes;
        time += copy->end - copy->start;
        beside += shared(copy, steps, count);
    }
    fprintf(out, "copies %zu\n", found);
    if (found == 0 || time == 0) return;
    fprintf(out, "copy_mib %.1f\ncopy_ms %.3f\ncopy_gb_per_s %.1f\n",
            (double)bytes / (double)found / (1 << 20), 1e-6 * (double)time / (double)found,
            (double)bytes / (double)time);
    fprintf(out, "copy_beside_steps_percent %.2f\n", 100 * (double)beside / (double)time);
}

/* Where the steps begin: before it other graphs were launched, to measure what to choose. */
static size_t first_step(void)
{
    size_t first = graphs.count;
    uint32_t last = first ? graphs.at[first - 1].name : 0, other = last;
    for (; first > 0; first--) {
        uint32_t name = graphs.at[first - 1].name;
        if (name != last && other != last && name != other) break;
        if (name != last) other = name;
    }
    return first;
}

static void report(void)
{
    cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    const char *path = getenv("CUDA_TRACE");
    FILE *out = path ? fopen(path, "w") : stderr;
    if (!out) return;
    qsort(graphs.at, graphs.count, sizeof *graphs.at, by_start);
    size_t first = first_step() + SETTLING;
    if (graphs.count < first + 2) {
        fprintf(out, "too few steps\n");
    } else {
        report_gaps(out, graphs.at + first, graphs.count - first);
        report_copies(out, graphs.at + first, graphs.count - first);
        report_calls(out, graphs.at + first, graphs.count - first);
    }
    if (path) fclose(out);
}

/* The driver calls it when CUDA starts; not 0: all is well. */
int InitializeInjection(void)
{
    CUptiResult result = cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full);
    if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_RUNTIME);
    if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
    if (result == CUPTI_SUCCESS) result = cuptiActivityEnable(CUPTI_ACTIVITY_KIND_MEMCPY);
    if (result != CUPTI_SUCCESS) fprintf(stderr, "cuda_trace: CUPTI refuses (%d)\n", (int)result);
    else atexit(report);
    return 1;
}
